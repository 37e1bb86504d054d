"""PR Theorem 2, corrected: power one for Lipschitz losses; for squared loss a factor that grows with the targets."""

import mpmath
import numpy as np
import pytest
import torch

from bidual.losses import LOSSES, Squared
from bidual.losses.datafit import Datafit
from bidual.papers.methods.low_rank import LowRankGuarantee, _Cut, guarantee, rank_for, train_low_rank, truncated
from bidual.problems.parallel import ParallelProblem
from bidual.problems.solution import Limits
from bidual.training.parallel.plan import ParallelPlan


def problem(loss: str, n: int = 6, seed: int = 0, beta: float = 0.3, sigma: float = 0.1) -> ParallelProblem:
    """Samples in the plane whose second singular value is sigma; width 1, as in PR Fig. 4."""
    rng = np.random.default_rng(seed)
    U, _, Vt = np.linalg.svd(rng.standard_normal((n, 2)), full_matrices=False)
    X = torch.from_numpy(U * np.array([3.0, sigma]) @ Vt)
    y = torch.from_numpy(np.sign(rng.standard_normal((n, 1))))
    return ParallelProblem(X, Datafit(LOSSES[loss](), y), beta, 1)


@pytest.mark.parametrize("loss", ["absolute", "hinge", "huber", "logistic", "quantile", "squared"])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_ratio_never_exceeds_the_bound(loss: str, seed: int) -> None:
    full = problem(loss, seed=seed)
    best = ParallelPlan(full.X, 1).train(full, Limits(1e-5)).certificate
    low = train_low_rank(full, 1, Limits(1e-5))
    assert low.guarantee.factor is not None
    assert low.certificate.primal <= low.guarantee.factor * best.primal * (1 + 1e-4)
    assert low.certificate.primal >= best.dual * (1 - 1e-9)
    assert low.certificate.dual <= best.primal * (1 + 1e-9)


def test_objectives_on_both_samples_agree() -> None:
    """The first layer lies in the row space of X_r, where X and X_r agree: p_r is the optimum on X_r."""
    low = train_low_rank(problem("huber"), 1, Limits(1e-6))
    assert low.certificate.primal == pytest.approx(low.solution.certificate.primal, rel=1e-9)


def test_squared_loss_is_a_counterexample_to_the_printed_bound() -> None:
    """R = 1 would promise a factor of (1 + sigma / beta)^2; targets grow, and so does the ratio."""
    ratios = []
    for size in (1.0, 100.0):
        U, _, Vt = np.linalg.svd(np.random.default_rng(0).standard_normal((6, 2)), full_matrices=False)
        X = torch.from_numpy(U * np.array([3.0, 1.0]) @ Vt)
        y = size * torch.relu(X @ torch.from_numpy(Vt[1:]).T)
        full = ParallelProblem(X, Datafit(Squared(), y), 0.1, 1)
        best = ParallelPlan(X, 1).train(full, Limits(1e-4)).certificate
        low = train_low_rank(full, 1, Limits(1e-4))
        ratios.append(low.certificate.primal / best.dual)
        assert low.certificate.dual <= best.primal * (1 + 1e-9)
        known = guarantee(full, 1).factor
        assert known is not None
        assert ratios[-1] <= known
    assert ratios == sorted(ratios)
    assert ratios[-1] > (1 + 1.0 / 0.1) ** 2


@pytest.mark.parametrize("intercept", [False, True])
def test_squared_loss_with_weights_and_an_intercept(intercept: bool) -> None:
    rng = np.random.default_rng(3)
    X = truncated(torch.from_numpy(rng.standard_normal((6, 2))), 2)
    y, weight = torch.from_numpy(rng.standard_normal((6, 1))), torch.from_numpy(rng.uniform(0.2, 5.0, 6))
    full = ParallelProblem(X, Datafit(Squared(), y, weight, intercept), 0.2, 2)
    best = ParallelPlan(X, 2).train(full, Limits(1e-5)).certificate
    low = train_low_rank(full, 1, Limits(1e-5))
    known = low.guarantee.factor
    assert known is not None
    assert best.dual * (1 - 1e-9) <= low.certificate.primal <= known * best.primal * (1 + 1e-4)


def test_choosing_a_rank() -> None:
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.standard_normal((8, 5)) * np.array([3.0, 2.0, 1e-2, 1e-3, 1e-6]))
    full = ParallelProblem(X, Datafit(LOSSES["hinge"](), torch.ones(8, 1, dtype=torch.float64)), 1.0, 1)
    assert [rank_for(full, accuracy) for accuracy in (1e-1, 1e-2, 1e-4)] == sorted(
        rank_for(full, accuracy) for accuracy in (1e-1, 1e-2, 1e-4)
    )
    chosen = guarantee(full, rank_for(full, 0.1))
    assert chosen.factor is not None
    assert chosen.factor <= 1.1
    assert guarantee(full, 1).is_vacuous(full.datafit.value(torch.zeros(8, 1, dtype=torch.float64)))
    assert torch.linalg.matrix_rank(truncated(X, 2)) == 2


def test_bad_ranks_and_losses() -> None:
    full = problem("hinge")
    with pytest.raises(ValueError, match="rank must be between 1 and the rank of X, 2, got 3"):
        train_low_rank(full, 3)
    with pytest.raises(ValueError, match="accuracy must be positive"):
        rank_for(full, 0.0)
    assert rank_for(problem("squared"), 0.1) == 2


@pytest.mark.parametrize("scale", [1.0, 1e-5, 1e-11])
@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (30, 8)])
def test_what_is_cut_is_measured(shape: tuple[int, int], scale: float) -> None:
    """|X - X_r| in 40 digits is no more than sigma, for every rank; at full rank nothing is cut at all."""
    rng, most = np.random.default_rng(0), min(shape)
    U, _, Vt = np.linalg.svd(rng.standard_normal(shape), full_matrices=False)
    X = torch.from_numpy((U * np.geomspace(1.0, scale, most)) @ Vt)
    for rank in (1, 2, most):
        cut = _Cut.of(X, rank)
        D = mpmath.matrix(X.tolist()) - mpmath.matrix(cut.X_r.tolist())
        size = max(mpmath.svd_r(D, compute_uv=False)) if rank < min(X.shape) else mpmath.norm(D)
        assert size <= cut.sigma
        assert cut.sigma <= float(size) * (1 + 1e-10) + 1e-13
        assert cut.inside <= min(cut.sigma, 1e-13)
    assert torch.equal(truncated(X, most), X)


def test_numbers_are_printed_up() -> None:
    for factor, text in (
        (1.00001, "1.001"),
        (1.0, "1"),
        (1.2345, "1.235"),
        (1.23449999, "1.235"),
        (12341.0, "1.235e+04"),
    ):
        assert f"at most {text} times" in str(LowRankGuarantee(1, 0.1, factor, 1.0))


def test_at_full_rank_the_guarantee_is_exact() -> None:
    known = guarantee(problem("hinge"), 2)
    assert (known.sigma, known.factor) == (0.0, 1.0)
