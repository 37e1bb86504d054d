"""PR Proposition 1: what a solution of the convex program decodes to has its predictions and its objective."""

import pytest
import torch

from bidual.architectures import ParallelMLP
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.papers.methods.path_norm import path_norm
from bidual.problems.parallel import ParallelProblem
from bidual.problems.solution import Limits
from bidual.training.parallel.plan import ParallelPlan
from oracles.parallel_cases import data

CASES = [
    (3, 2, 0, 0.1, "teacher"),
    (3, 2, 1, 0.02, "random"),
    (4, 1, 2, 0.05, "random"),
    (5, 3, 3, 0.01, "alternating"),
]


@pytest.mark.parametrize(("n", "width", "seed", "beta", "kind"), CASES)
def test_proposition_1_keeps_predictions_and_objective(n: int, width: int, seed: int, beta: float, kind: str) -> None:
    X, y = data(n, seed, kind)
    done = ParallelPlan(X, width).train(ParallelProblem(X, Datafit(Squared(), y), beta, width), Limits(1e-4))
    module = ParallelMLP(done.neurons, width).decode(done.Z)
    with torch.no_grad():
        loss = 0.5 * float((module(X) - y).square().sum())
        price = float(path_norm([layer.detach() for layer in module.layers]))
    assert loss + beta * price == pytest.approx(done.certificate.primal, rel=1e-9)
