"""A fit that misses its tolerance warns at the user's line, and tells what was searched from what is proved."""

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bidual import ConvexMLPRegressor


def table() -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).standard_normal((40, 7))
    return X, np.maximum(X[:, 0], 0) - X[:, 1]


def warned(model: Any) -> warnings.WarningMessage:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit(*table())
    (found,) = [one for one in caught if issubclass(one.category, ConvergenceWarning)]
    return found


@pytest.mark.parametrize("wrap", [lambda model: model, lambda model: make_pipeline(StandardScaler(), model)])
def test_the_warning_points_at_the_line_that_calls_fit(wrap: Any) -> None:
    assert warned(wrap(ConvexMLPRegressor(tol=1e-12, max_time=0.5))).filename == __file__


def test_a_proof_that_is_not_tight_asks_for_a_longer_proof() -> None:
    model = ConvexMLPRegressor(tol=1e-6, max_iter=60)
    message = str(warned(model).message)
    assert "training has ended" in message
    assert f"{model.search_gap_:.1e}" in message
    assert f"{model.certificate_.relative_gap:.1e}" in message
    assert model.search_gap_ < 0.1 * model.certificate_.relative_gap
    assert "longer proof" in message


def test_training_that_has_not_ended_asks_for_more_of_it() -> None:
    model = ConvexMLPRegressor(tol=1e-3, max_iter=2, beta=0.01)
    message = str(warned(model).message)
    assert "training has not ended" in message
    assert f"{model.search_gap_:.1e}" in message
    assert "max_iter" in message
