"""pyscnn: proximal gradient for gated networks, augmented Lagrangian for ReLU networks; float64, given gates."""

from collections.abc import Callable

import numpy as np
from scnn.metrics import Metrics
from scnn.models import ConvexGatedReLU, ConvexReLU
from scnn.optimize import optimize_model
from scnn.regularizers import NeuronGL1
from scnn.solvers import AL, RFISTA

from harness import Answer, Task, main, network
from problems import Array


def prepare(task: Task, tolerance: float) -> Callable[[], Answer]:
    """Its objective is a mean over samples and outputs; its tolerance a squared absolute norm of a subgradient."""
    X, Y, _, gates = task.arrays
    relu, c = task.spec.network == "relu", Y.shape[1]
    price = NeuronGL1(task.beta / Y.size)
    model = (ConvexReLU if relu else ConvexGatedReLU)(gates.copy(), c=c)
    if relu:
        solver = AL(model, tol=tolerance, constraint_tol=tolerance)
    else:
        solver = RFISTA(model, max_iters=100_000, tol=tolerance)

    def solve() -> Answer:
        found, _ = optimize_model(
            model,
            solver,
            Metrics(),
            X,
            Y,
            regularizer=price,
            return_convex=True,
            unitize_data=False,
            dtype="float64",
        )
        order = _order(gates, np.asarray(found.G, dtype=np.float64))
        weights = [np.asarray(part, dtype=np.float64)[:, order] for part in found.parameters]
        return network(weights[0][0], weights[1][0]) if relu else {"Z": weights[0].transpose(1, 2, 0)[None]}

    return solve


def _order(gates: Array, sorted_gates: Array) -> np.ndarray:
    """Where each gate has gone: it sorts them by their patterns."""
    return np.array([np.abs(sorted_gates - gate[:, None]).sum(axis=0).argmin() for gate in gates.T])


if __name__ == "__main__":
    main(prepare)
