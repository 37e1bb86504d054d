import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import mean_pinball_loss

from bidual.losses import Absolute, Huber, Quantile
from bidual.losses.datafit import Datafit
from bidual.testing import own_checks_only
from helpers.draws import normal


@pytest.mark.parametrize("q", [0.05, 0.5, 0.9])
def test_it_is_the_pinball_loss(q: float) -> None:
    Y, P = normal(40, 1), normal(40, 1, seed=1)
    expected = mean_pinball_loss(Y.numpy(), P.numpy(), alpha=q)
    assert float(Quantile(q).value(P, Y).mean()) == pytest.approx(expected, rel=1e-13)


def test_the_median_is_half_of_the_absolute_loss() -> None:
    Y, P, V = normal(9, 2), normal(9, 2, seed=1), normal(9, 2, seed=2).clamp(-0.5, 0.5)
    torch.testing.assert_close(2 * Quantile().value(P, Y), Absolute().value(P, Y))
    torch.testing.assert_close(2 * Quantile().conjugate(V, Y), Absolute().conjugate(2 * V, Y))
    torch.testing.assert_close(Quantile().prox(P, Y, 0.6), Absolute().prox(P, Y, 0.3))


@pytest.mark.parametrize("q", [0.1, 0.25, 0.77])
def test_the_intercept_is_the_sample_quantile(q: float) -> None:
    Y = normal(11, 1)
    fit = Datafit(Quantile(q), Y, None, True)
    found = float(fit.offset(torch.zeros_like(Y)) + fit.shift)
    assert found == pytest.approx(np.quantile(Y.numpy(), q, method="inverted_cdf"), abs=1e-12)


def test_gradients_of_an_intercept_are_balanced_and_within_the_box() -> None:
    fit = Datafit(Quantile(0.9), normal(12, 1), None, True)
    V = fit.into_domain(fit.grad(normal(12, 1, seed=1)))
    assert float(V.sum()) == pytest.approx(0, abs=1e-12)
    assert -0.9 <= float(V.min()) <= float(V.max()) <= 0.1 * (1 + 1e-15)


@pytest.mark.parametrize("bad", [0, 1, -0.5, 1.5, math.nan, "0.5", None])
def test_a_quantile_outside_of_the_open_interval_is_refused(bad: Any) -> None:
    with own_checks_only(), pytest.raises(ValueError, match="quantile must be a number between 0 and 1, got"):
        Quantile(bad)


@pytest.mark.parametrize("number", [np.float32(0.9), np.float64(0.9), Fraction(9, 10)], ids=lambda q: type(q).__name__)
@pytest.mark.parametrize("loss", [Quantile, Huber])
def test_a_setting_of_any_type_computes_in_float64(loss: Any, number: Any) -> None:
    with own_checks_only():
        made = loss(number)
    P, Y = normal(6, 1), normal(6, 1, seed=1)
    assert all(type(setting) is float for setting in vars(made).values())
    for found in (made.value(P, Y), made.grad(P, Y), made.prox(P, Y, 0.5), made.conjugate(0.1 * Y, Y)):
        assert found.dtype == torch.float64


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf, "1", None])
def test_a_bad_delta_is_refused(bad: Any) -> None:
    with (
        own_checks_only(),
        pytest.raises(ValueError, match=r"delta must be a positive finite number, got .*; use loss='absolute'"),
    ):
        Huber(bad)
