"""The data term under a decayed intercept, against its definition."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from bidual.losses import Absolute, Hinge, Huber, Logistic, Loss, Poisson, Quantile, Softmax, Squared, SquaredHinge
from bidual.losses.datafit import Datafit
from bidual.losses.decayed_bias import with_decayed_bias
from bidual.testing import example_targets
from helpers.draws import normal

LOSSES = [Squared(), Logistic(), Softmax(), SquaredHinge(), Hinge(), Huber(0.1), Absolute(), Quantile(0.8), Poisson()]
EVERY_LOSS = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
N, C = 8, 2


def both(loss: Loss, decay: float, seed: int = 0) -> tuple[Datafit, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    Y, weight = example_targets(loss, N, C, generator), 0.1 + torch.rand(N, generator=generator, dtype=torch.float64)
    return with_decayed_bias(Datafit(loss, Y, weight, True), decay), Y


def silent(P: torch.Tensor) -> torch.Tensor:
    return torch.cat([P, torch.zeros_like(P[:1])])


@pytest.mark.parametrize("decay", [1e-3, 1.0, 30.0])
@EVERY_LOSS
def test_it_is_the_least_over_decayed_intercepts(loss: Loss, decay: float) -> None:
    fit, Y = both(loss, decay)
    P, weight = normal(N, C, seed=1), fit.weights[:N, 0]

    def penalised(b: np.ndarray) -> float:
        value = float((weight * loss.value(P + torch.from_numpy(b), Y)).sum())
        return value + 0.5 * decay * float((b**2).sum())

    centred = silent(P)
    best = fit.offset(centred) + fit.shift
    assert fit.value(centred) == pytest.approx(penalised(best.numpy()), rel=1e-10)
    for start in (best.numpy(), np.zeros(C)):
        found = minimize(penalised, start, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12})
        assert fit.value(centred) <= found.fun * (1 + 1e-9)


@pytest.mark.parametrize("decay", [1e-3, 1.0, 30.0])
@EVERY_LOSS
def test_dual_bounds_are_true_and_tight(loss: Loss, decay: float) -> None:
    fit, _ = both(loss, decay)
    P = silent(normal(N, C, seed=1))
    V = fit.into_domain(fit.grad(P)) * (1 - 1e-12)
    lower, distance = fit.dual_lower_bound(V)
    assert distance < 1e-9
    assert lower == pytest.approx(fit.value(P) - float((P * V).sum()), rel=1e-5, abs=1e-7)
    for seed in range(20):
        Q = silent(3 * normal(N, C, seed=10 + seed))
        assert fit.value(Q) >= lower + float((Q * V).sum()) - distance * float(torch.linalg.vector_norm(Q)) - 1e-12


@EVERY_LOSS
def test_an_unbalanced_dual_is_repaired_at_its_price(loss: Loss) -> None:
    """The bound is that of some balanced W within the distance; the true conjugate of a nearby one is no larger."""
    fit, _ = both(loss, 0.7)
    V = fit.into_domain(fit.grad(silent(normal(N, C, seed=2)))) * (1 - 1e-9)
    off = V.clone()
    off[-1] += torch.tensor([1e-6, -3e-6], dtype=torch.float64)
    balanced = torch.cat([V[:-1], -V[:-1].sum(0, keepdim=True)])
    lower, distance = fit.dual_lower_bound(off)
    assert distance >= float(torch.linalg.vector_norm(off - balanced))
    assert lower <= -float(fit.conjugate_rows(balanced).sum()) <= lower + 1e-4


@EVERY_LOSS
def test_upper_bounds_hold_within_the_error(loss: Loss) -> None:
    fit, _ = both(loss, 0.7)
    P = silent(normal(N, C, seed=3))
    assert fit.value(P) <= fit.upper_bound(P, 1e-12) <= fit.value(P) * (1 + 1e-8)
    for seed in range(10):
        E = silent(normal(N, C, seed=seed))
        E = 0.01 * E / torch.linalg.vector_norm(E)
        assert fit.value(P + E) <= fit.upper_bound(P, 0.01)
