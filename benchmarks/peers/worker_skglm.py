"""skglm: group lasso by block coordinate descent with Anderson acceleration, on the explicit matrix, one output at a
time."""

import warnings
from collections.abc import Callable

import numpy as np
from skglm.datafits import QuadraticGroup
from skglm.penalties import WeightedGroupL2
from skglm.solvers import GroupBCD
from skglm.utils.data import grp_converter

from harness import Answer, Task, each_output, main
from problems import Array, design


def prepare(task: Task, tolerance: float) -> Callable[[], Answer]:
    """Its objective is a mean over samples; its tolerance the distance of the gradient to the subdifferential."""
    X, Y, mask, _ = task.arrays
    A = design(task.arrays)
    indices, pointers = grp_converter(X.shape[1], A.shape[1])
    datafit = QuadraticGroup(pointers, indices)
    penalty = WeightedGroupL2(task.beta / len(X), np.ones(mask.shape[1]), pointers, indices)
    solver = GroupBCD(max_iter=1000, tol=tolerance)

    def fit(y: Array) -> Array:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the judge says how far it came
            return solver.solve(A, y, datafit, penalty)[0]

    return lambda: {"Z": each_output(Y, fit, (mask.shape[1], X.shape[1]))}


if __name__ == "__main__":
    main(prepare)
