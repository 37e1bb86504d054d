"""The problems of the race as the package states them: a sum over samples, as in the papers."""

import torch
from torch import Tensor

from bidual.gauges import GAUGES
from bidual.losses import LOSSES
from bidual.losses.datafit import Datafit
from bidual.operators import GatedOperator
from bidual.problems.problem import Problem, ReluProblem
from problems import Arrays, Spec


def gated_problem(spec: Spec, arrays: Arrays, beta: float) -> Problem:
    """F(sum_p D_p X Z_p) + beta Omega(Z)."""
    X = torch.from_numpy(arrays.X)
    operator = GatedOperator(X, patterns(arrays), arrays.Y.shape[1])
    return Problem(operator, _datafit(spec, arrays), GAUGES[spec.penalty](), beta)


def relu_problem(spec: Spec, arrays: Arrays, beta: float) -> ReluProblem:
    """F(sum_j (X u_j)_+ w_j) + beta sum_j |u_j| |w_j|; which patterns neurons may have is said elsewhere."""
    return ReluProblem(torch.from_numpy(arrays.X), _datafit(spec, arrays), beta)


def patterns(arrays: Arrays) -> Tensor:
    return torch.from_numpy(arrays.mask.T.copy())


def _datafit(spec: Spec, arrays: Arrays) -> Datafit:
    return Datafit(LOSSES[spec.loss](), torch.from_numpy(arrays.Y))
