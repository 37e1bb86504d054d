"""adelie: group elastic net on its own matrix of a convex ReLU network, for squared, logistic and softmax loss."""

from collections.abc import Callable
from typing import Any

import adelie as ad
import numpy as np

from harness import Answer, Task, each_output, main, network
from problems import Array


def prepare(task: Task, tolerance: float) -> Callable[[], Answer]:
    """Its objective is a mean over samples (over outputs too for softmax); its tolerance is one of coordinate steps."""
    X, Y, mask, _ = task.arrays
    relu, shape = task.spec.network == "relu", (mask.shape[1], X.shape[1])
    matrix = ad.matrix.convex_relu(np.asfortranarray(X), np.asfortranarray(mask), gated=not relu)
    options: dict[str, Any] = {
        "groups": shape[1] * np.arange(shape[0] * (1 + relu)),
        "penalty": np.ones(shape[0] * (1 + relu)),
        "intercept": False,
        "early_exit": False,
        "progress_bar": False,
        "tol": tolerance,
        "max_iters": 10_000_000,
        "irls_tol": tolerance,
    }
    if relu:
        options["constraints"] = _cones(X, mask)

    def run(glm: Any, mean: int) -> Array:
        state = ad.grpnet(matrix, glm, lmda_path=np.array(task.betas) / mean, **options)
        if state.betas.shape[0] < len(task.betas):
            raise RuntimeError(" ".join(state.error.split()))
        return state.betas.toarray()

    def solve() -> Answer:
        if task.spec.loss == "softmax":
            found = run(ad.glm.multinomial(Y), Y.size)
            return {"Z": found.reshape(len(task.betas), *shape, Y.shape[1])}
        if task.spec.loss == "logistic":
            return {"Z": run(ad.glm.binomial((Y[:, 0] + 1) / 2), len(Y)).reshape(-1, *shape, 1)}
        if relu:
            both = run(ad.glm.gaussian(Y[:, 0]), len(Y)).reshape(2, *shape)
            return network(both[0], both[1])
        if len(task.betas) > 1:
            return {"Z": run(ad.glm.gaussian(Y[:, 0]), len(Y)).reshape(-1, *shape, 1)}
        return {"Z": each_output(Y, lambda y: run(ad.glm.gaussian(y), len(y)), shape)}

    return solve


def _cones(X: Array, mask: np.ndarray) -> list[Any]:
    """(2 D_p - I) X u >= 0 for both weights of every pattern, at default settings: tighter ones are slower or fail."""
    zero, free = np.zeros(len(X)), np.full(len(X), np.inf)
    sides = [np.ascontiguousarray((2.0 * on - 1)[:, None] * X) for on in mask.T]
    return [ad.constraint.linear(A, zero, free) for A in (*sides, *sides)]


if __name__ == "__main__":
    main(prepare)
