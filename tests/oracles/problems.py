"""Random and degenerate problems for the solver tests."""

import torch
from torch import Tensor

from bidual.gauges import GAUGES
from bidual.losses import LOSSES, Loss, MarginLoss, Softmax
from bidual.losses.datafit import Datafit
from bidual.operators import GatedOperator
from bidual.patterns import activations, sample_gates
from bidual.problems.problem import Problem
from helpers.draws import normal

CASES = [(loss, c) for loss in LOSSES for c in (1, 3) if not (loss == "softmax" and c == 1)]


def random_targets(loss: Loss, n: int, c: int, generator: torch.Generator) -> Tensor:
    scores = torch.randn(n, c, generator=generator, dtype=torch.float64)
    if isinstance(loss, Softmax):
        return torch.nn.functional.one_hot(scores.argmax(1), c).double()
    if isinstance(loss, MarginLoss):
        return torch.where(scores >= 0, 1.0, -1.0).double()
    if loss.counts:
        return scores.mul(2).exp().floor().clamp(max=20)
    return 2 * scores


def gated_problem(
    X: Tensor, loss: Loss, c: int, gauge: str = "nuclear", *, intercept: bool = False, weighted: bool = False
) -> Problem:
    """A gated problem on X with random gates and targets, at a tenth of beta_max."""
    generator = torch.Generator().manual_seed(1)
    operator = GatedOperator(X, activations(X, sample_gates(X, 5, generator)), c)
    targets = random_targets(loss, len(X), c, generator)
    weight = 0.5 + torch.rand(len(X), generator=generator, dtype=torch.float64) if weighted else None
    problem = Problem(operator, Datafit(loss, targets, weight, intercept), GAUGES[gauge](), 1.0)
    return problem.with_beta(0.1 * problem.beta_max or 0.1)


def repeated_rows() -> Tensor:
    return normal(4, 3).repeat(3, 1)


def zero_column() -> Tensor:
    X = normal(12, 3)
    X[:, 1] = 0
    return X


SHAPES = {
    "tall": normal(12, 3),
    "wide": normal(4, 6),
    "one feature": normal(9, 1),
    "one sample": normal(1, 3),
    "repeated rows": repeated_rows(),
    "zero column": zero_column(),
}
