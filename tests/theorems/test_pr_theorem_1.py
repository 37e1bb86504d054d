"""PR Theorem 1 in the form (21): training by columns against all cells listed, and the misprint (8)."""

import numpy as np
import pytest
import torch

from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.problems.certificate import Scope
from bidual.problems.parallel import ParallelProblem
from bidual.problems.solution import Limits
from bidual.training.parallel.plan import ParallelPlan
from oracles.parallel_cases import data
from oracles.parallel_oracle import three_layer_optimum

CASES = [
    (3, 2, 0, 0.1, "teacher"),
    (3, 2, 1, 0.02, "random"),
    (4, 1, 2, 0.05, "random"),
    (3, 2, 3, 0.01, "alternating"),
]


@pytest.mark.parametrize(("n", "width", "seed", "beta", "kind"), CASES)
def test_columns_reach_the_optimum_over_all_cells(n: int, width: int, seed: int, beta: float, kind: str) -> None:
    X, y = data(n, seed, kind)
    done = ParallelPlan(X, width).train(ParallelProblem(X, Datafit(Squared(), y), beta, width), Limits(1e-6))
    certificate = done.certificate
    optimum = three_layer_optimum(X.numpy(), y[:, 0].numpy(), beta, width)
    assert certificate.scope is Scope.ALL_PATTERNS
    assert certificate.relative_gap <= 1e-6
    assert certificate.primal == pytest.approx(optimum, rel=1e-5)
    assert certificate.dual <= optimum * (1 + 1e-7)


def test_the_printed_program_8_is_too_low_by_known_numbers() -> None:
    """A teacher with five sub-networks on four samples: .065836 as printed, .066225 is the optimum."""
    rng = np.random.default_rng(0)
    X, W, w, z = (rng.standard_normal(size) for size in ((4, 2), (5, 2, 2), (5, 2, 1), (5, 1, 1)))
    y = (np.maximum(np.maximum(X @ W, 0) @ w, 0) @ z).sum(0)[:, 0]
    samples, targets = torch.from_numpy(X), torch.from_numpy(y)[:, None]
    done = ParallelPlan(samples, 2).train(ParallelProblem(samples, Datafit(Squared(), targets), 0.1, 2), Limits(1e-7))
    assert done.certificate.primal == pytest.approx(0.06622550, rel=1e-6)
    assert three_layer_optimum(X, y, 0.1, 2, printed=True) == pytest.approx(0.065836, abs=1e-6)


def test_the_printed_program_8_is_too_low() -> None:
    """(8) has the signs in the second-layer constraint only; its value is below what any network reaches."""
    X, y = data(3, 1, "random")
    right = three_layer_optimum(X.numpy(), y[:, 0].numpy(), 0.02, 2)
    printed = three_layer_optimum(X.numpy(), y[:, 0].numpy(), 0.02, 2, printed=True)
    assert printed < right * (1 - 1e-4)
