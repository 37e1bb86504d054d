"""Small training problems of networks on patches: convolutions on images and self-attention on tokens."""

import torch
from torch import Tensor

from bidual.gauges import Gauge, Nuclear
from bidual.losses import LOSSES
from bidual.losses.datafit import Datafit
from bidual.operators import PooledOperator
from bidual.operators.patches import Convolution, ImagePatches, Patches
from bidual.polar import Faces
from bidual.problems.problem import Problem, ReluProblem
from helpers.draws import normal
from oracles.explicit_readouts import Explicit, image_rows, pooled_readout, window_averages
from oracles.problems import random_targets

PATCHES = 6
MATRIX = torch.randn(2, PATCHES, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
POOLINGS: dict[str, tuple[int, ...] | Tensor] = {"average": (), "grid": (2,), "matrix": MATRIX}


def signals(h: int = 3, n: int = 6, seed: int = 0) -> Tensor:
    """n signals of one channel that have six patches of length h."""
    return normal(n, 1, PATCHES + h - 1, seed=seed)


def convolved(X: Tensor, pooling: str) -> ImagePatches:
    return ImagePatches(X, Convolution.of(1, X.shape[2] - PATCHES + 1, pooling=POOLINGS[pooling]))


def pooling_matrix(pooling: str) -> Tensor:
    """P_a (a, 6)."""
    given = POOLINGS[pooling]
    return given if isinstance(given, Tensor) else window_averages((PATCHES,), given or (1,))


def explicit_signals(X: Tensor, pooling: str) -> Explicit:
    """The same patches and pooling by loops."""
    rows = image_rows(X, (X.shape[2] - PATCHES + 1,), (1,), (0,), (1,))
    return Explicit(rows, pooled_readout(pooling_matrix(pooling), len(X)))


def targets_for(patches: Patches, loss: str, c: int, seed: int = 4) -> Tensor:
    return random_targets(LOSSES[loss](), patches.n_predictions, c, torch.Generator().manual_seed(seed))


def pooled_problem(
    patches: Patches,
    loss: str = "squared",
    c: int = 2,
    gates: Tensor | None = None,
    *,
    share: float = 0.1,
    gauge: Gauge | None = None,
    intercept: bool = False,
    weighted: bool = False,
) -> Problem:
    """A linear network, or a gated one, at a share of beta_max."""
    weight = 0.5 + normal(patches.n_predictions, seed=4).abs() if weighted else None
    datafit = Datafit(LOSSES[loss](), targets_for(patches, loss, c), weight, intercept)
    problem = Problem(PooledOperator(patches, c, gates=gates), datafit, gauge or Nuclear(), 1.0)
    return problem.with_beta(share * problem.beta_max)


def pooled_relu(
    patches: Patches, loss: str = "squared", c: int = 2, *, share: float = 0.1, intercept: bool = False
) -> ReluProblem:
    """A ReLU network at a share of the beta of the zero network."""
    datafit = Datafit(LOSSES[loss](), targets_for(patches, loss, c), None, intercept)
    problem = ReluProblem.on(patches, datafit, 1.0)
    V = datafit.into_domain(datafit.grad(torch.zeros_like(datafit.targets)))
    return problem.with_beta(share * problem.oracle(Faces).steepest(V).bracket.lower)
