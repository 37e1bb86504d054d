import math

import pytest
import torch
from torch import Tensor

from bidual.losses import Absolute, Hinge, Huber, Logistic, Loss, Poisson, Quantile, Softmax, Squared, SquaredHinge
from bidual.losses.datafit import Datafit
from bidual.testing import example_targets, own_checks_only
from helpers.draws import normal

LOSSES = [Squared(), Logistic(), Softmax(), SquaredHinge(), Hinge(), Huber(0.1), Absolute(), Quantile(0.8), Poisson()]
EVERY_LOSS = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def matrix(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("intercept", [False, True])
@EVERY_LOSS
def test_into_domain_of_a_weighted_sum_is_finite(loss: Loss, intercept: bool) -> None:
    for seed in range(20):
        weight = 0.1 + 3 * torch.rand(9, generator=rng(seed), dtype=torch.float64)
        fit = Datafit(loss, example_targets(loss, 9, 2, rng(seed)), weight, intercept)
        V = fit.into_domain(5 * normal(9, 2, seed=seed))
        assert math.isfinite(fit.conjugate(V))
        torch.testing.assert_close(fit.into_domain(V), V, rtol=1e-10, atol=1e-12)


@EVERY_LOSS
def test_adding_a_constant_to_an_output_changes_nothing_with_an_intercept(loss: Loss) -> None:
    fit, P = Datafit(loss, example_targets(loss, 9, 2, rng()), None, True), normal(9, 2, seed=1)
    for shift in (1.0, -30.0, 1e3):
        assert fit.value(P + shift) == pytest.approx(fit.value(P), rel=1e-8)


@EVERY_LOSS
def test_gradients_balance_with_an_intercept(loss: Loss) -> None:
    fit = Datafit(loss, example_targets(loss, 9, 2, rng()), None, True)
    for scale in (0.1, 1.0, 10.0):
        V = fit.grad(scale * normal(9, 2))
        assert float(V.sum(0).abs().max()) <= 1e-6 * float(V.abs().sum()) + 1e-7


@EVERY_LOSS
def test_smoothness_bounds_gradient_changes_also_after_the_intercept(loss: Loss) -> None:
    weight = 0.1 + torch.rand(9, generator=rng(), dtype=torch.float64)
    fit = Datafit(loss, example_targets(loss, 9, 2, rng()), weight, True)
    if fit.smoothness is None:
        assert loss.name in {"hinge", "absolute", "quantile", "poisson"}
        return
    for seed in range(20):
        P, Q = normal(9, 2, seed=seed), normal(9, 2, seed=100 + seed)
        change, move = torch.linalg.vector_norm(fit.grad(P) - fit.grad(Q)), torch.linalg.vector_norm(P - Q)
        assert float(change) <= fit.smoothness * float(move) * (1 + 1e-9)


def test_the_intercept_of_the_absolute_loss_is_a_weighted_median() -> None:
    Y, weight = matrix([1.0], [2.0], [10.0]), torch.tensor([1.0, 1.0, 5.0], dtype=torch.float64)
    for given, median in ((None, 2), (weight, 10)):
        fit = Datafit(Absolute(), Y, given, True)
        assert float(fit.offset(torch.zeros_like(Y)) + fit.shift) == pytest.approx(median, abs=1e-9)


def test_the_intercept_of_the_squared_loss_is_the_mean_residual() -> None:
    Y, P = normal(9, 2), normal(9, 2, seed=1)
    fit = Datafit(Squared(), Y, None, True)
    torch.testing.assert_close(fit.offset(P) + fit.shift, (Y - P).mean(0))


def test_the_intercept_of_softmax_gives_the_class_frequencies() -> None:
    Y = torch.eye(3, dtype=torch.float64)[[0, 0, 0, 1, 1, 2]]
    b = Datafit(Softmax(), Y, None, True).offset(torch.zeros_like(Y))
    torch.testing.assert_close(torch.softmax(b, 0), Y.mean(0))


@pytest.mark.parametrize("loss", [Logistic(), SquaredHinge(), Hinge()], ids=lambda loss: loss.name)
def test_one_class_needs_only_the_intercept(loss: Loss) -> None:
    fit, P = Datafit(loss, torch.ones(5, 1, dtype=torch.float64), None, True), normal(5, 1)
    assert fit.value(P) <= 1e-9
    assert float(fit.into_domain(fit.grad(P)).abs().max()) <= 1e-9


def test_softmax_finds_its_intercept_from_saturated_predictions() -> None:
    P, Y = matrix([1000.0, 0.0], [1000.0, 0.0], [1000.0, 0.0]), torch.eye(2, dtype=torch.float64)[[1, 0, 1]]
    assert Datafit(Softmax(), Y, None, True).value(P) == pytest.approx(3 * math.log(3) - 2 * math.log(2), rel=1e-9)


@pytest.mark.parametrize("scale", [1.0, 1e2, 1e4])
def test_softmax_intercepts_balance_at_every_scale(scale: float) -> None:
    fit, P = Datafit(Softmax(), torch.eye(3, dtype=torch.float64)[[0, 0, 1, 1, 0, 2]], None, True), scale * normal(6, 3)
    zero = torch.zeros(3, dtype=torch.float64)
    assert fit.value(P) <= min(fit.value_at(P, zero), fit.value_at(P, -P.mean(0)))
    assert float(fit.grad(P).sum(0).abs().max()) <= 1e-6


def test_softmax_with_an_absent_class_still_has_a_tight_dual() -> None:
    fit, P = Datafit(Softmax(), torch.eye(3, dtype=torch.float64)[[0, 0, 0, 1, 1, 1]], None, True), normal(6, 3)
    V = fit.into_domain(fit.grad(P))
    assert fit.value(P) + fit.conjugate(V) - float((P * V).sum()) == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("loss", [Logistic(), Softmax()], ids=lambda loss: loss.name)
def test_large_predictions_neither_overflow_nor_lose_the_loss(loss: Loss) -> None:
    Y = matrix([1.0, 0.0]) if loss.name == "softmax" else matrix([1.0, -1.0])
    assert Datafit(loss, Y).value(matrix([-1e4, 1e4])) == pytest.approx(2e4)
    assert Datafit(loss, Y).value(matrix([1e17, 1e17 if loss.name == "softmax" else -1e17])) == pytest.approx(
        math.log(2) if loss.name == "softmax" else 0
    )


def test_prox_weighs_its_samples() -> None:
    weight = torch.tensor([1.0, 3.0], dtype=torch.float64)
    Q = Datafit(Squared(), torch.ones(2, 1, dtype=torch.float64), weight).prox(
        torch.zeros(2, 1, dtype=torch.float64), 2.0
    )
    torch.testing.assert_close(Q, matrix([2 / 3], [6 / 7]))


def test_to_changes_the_precision_of_targets_and_weights() -> None:
    fit = Datafit(Squared(), normal(4, 2), torch.ones(4, dtype=torch.float64), True).to(torch.float32)
    assert fit.targets.dtype == fit.weights.dtype == fit.grad(torch.zeros(4, 2)).dtype == torch.float32
    assert fit.intercept


@pytest.mark.parametrize(
    ("loss", "Y", "weight", "message"),
    [
        (Squared(), torch.zeros(3), None, "shape"),
        (Squared(), torch.full((3, 1), torch.nan), None, "finite"),
        (Squared(), torch.zeros(3, 1), torch.tensor([1.0, 0.0, 1.0]), "positive"),
        (Squared(), torch.zeros(3, 1), torch.ones(2), "one positive finite number per sample"),
        (Logistic(), torch.zeros(3, 1), None, "-1 or \\+1"),
        (Softmax(), torch.ones(3, 2), None, "one-hot"),
    ],
)
def test_bad_targets_and_weights_are_refused(loss: Loss, Y: Tensor, weight: Tensor | None, message: str) -> None:
    with own_checks_only(), pytest.raises(ValueError, match=message):
        Datafit(loss, Y, weight)


@pytest.mark.parametrize("seed", range(12))
def test_the_softmax_intercept_ends_in_single_precision_too(seed, monkeypatch):
    """Rounding of the sum rejected every step of seed 11, and the search went on to its limit."""
    generator = torch.Generator().manual_seed(seed)
    P = 3 * torch.randn(2000, 10, generator=generator) + 3 * torch.randn(10, generator=generator)
    fit = Datafit(Softmax(), torch.eye(10)[torch.randint(10, (2000,), generator=generator)], intercept=True)
    looked, value_at = [], Datafit.value_at
    monkeypatch.setattr(Datafit, "value_at", lambda self, *rest: looked.append(0) or value_at(self, *rest))
    found = fit.offset(P)
    assert len(looked) < 40
    torch.testing.assert_close(found, fit.to(torch.float64).offset(P.double()).float(), rtol=1e-3, atol=1e-3)


def test_an_override_by_a_name_that_nothing_calls_is_refused() -> None:
    with pytest.raises(TypeError, match="defines _repair, which nothing calls; call it repair"):
        type("Old", (Squared,), {"_repair": lambda self, *parts: None})
