"""A function of the user's that sees every certificate, and may end a fit."""

from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from bidual import ConvexMLPClassifier, ConvexMLPRegressor, ConvexMLPRegressorCV, ConvexParallelRegressor, load
from bidual.problems.solution import Record

X = np.random.default_rng(0).standard_normal((30, 3))
y = X[:, 0] * X[:, 1]
GATED: dict[str, Any] = {"activation": "gated_relu", "n_gates": 5, "beta": 0.1, "solver": "fista", "tol": 1e-6}
RELU: dict[str, Any] = {"beta": 0.1, "oracle": "search", "n_starts": 8, "max_time": 5.0, "tol": 1e-6}
NETWORKS = {
    "gated": lambda callback: ConvexMLPRegressor(callback=callback, **GATED),
    "auto": lambda callback: ConvexMLPRegressor(callback=callback, **GATED | {"solver": "auto", "tol": 1e-9}),
    "relu": lambda callback: ConvexMLPRegressor(callback=callback, **RELU),
    "parallel": lambda callback: ConvexParallelRegressor(callback=callback, widths=2, **RELU),
}


def test_it_is_told_every_certificate() -> None:
    told: list[Record] = []
    model = ConvexMLPRegressor(callback=told.append, **GATED).fit(X, y)
    assert tuple(told) == model.history_
    assert told[-1].relative_gap <= 1e-6
    with pytest.raises(FrozenInstanceError):
        told[0].step = 3  # type: ignore[misc]


@pytest.mark.parametrize("name", NETWORKS)
def test_true_ends_the_fit_with_a_sound_network(name: str) -> None:
    told: list[Record] = []

    def first_only(record: Record) -> np.bool_:
        told.append(record)
        return np.bool_(len(told) == 1)  # later answers do not count

    model = NETWORKS[name](first_only)
    with pytest.warns(ConvergenceWarning, match="the callback ended training"):
        model.fit(X, y)
    assert len(told) == len(model.history_) == 1
    certificate = model.certificate_
    assert 0 < certificate.dual <= certificate.primal or certificate.dual == 0.0
    assert certificate.relative_gap > model.tol
    price = certificate.primal - 0.5 * ((model.predict(X) - y) ** 2).sum()
    assert price >= -1e-6 * certificate.primal  # the network has the objective that is certified


def test_only_true_ends_a_fit() -> None:
    model = ConvexMLPRegressor(callback=lambda record: 1, **GATED).fit(X, y)
    assert model.certificate_.relative_gap <= 1e-6


def test_a_fit_that_ends_within_the_tolerance_is_silent(recwarn: pytest.WarningsRecorder) -> None:
    ConvexMLPRegressor(callback=lambda record: record.relative_gap <= 1e-6, **GATED).fit(X, y)
    assert not recwarn.list


def test_verbose_fits_ask_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(ConvergenceWarning, match="the callback ended training"):
        ConvexMLPRegressor(verbose=1, callback=lambda record: True, **GATED).fit(X, y)
    assert "certified relative gap" in capsys.readouterr().err


def test_folds_are_not_told() -> None:
    told: list[Record] = []
    model = ConvexMLPRegressorCV(activation="linear", n_betas=3, cv=3, tol=1e-3, callback=told.append).fit(X, y)
    assert tuple(told) == model.history_
    assert model.cv_scores_.shape == (3, 3)


@pytest.mark.parametrize("error", [KeyError("mine"), FloatingPointError("mine"), KeyboardInterrupt("mine")])
def test_its_errors_end_the_fit_and_leave_the_model_as_it_was(error: BaseException) -> None:
    def fail(record: Record) -> None:
        raise error

    model = ConvexMLPRegressor(**GATED | {"solver": "auto"}).fit(X, y)
    before = model.predict(X)
    kind = RuntimeError if isinstance(error, FloatingPointError) else type(error)  # not taken for the solver's
    with pytest.raises(kind, match="mine"):
        model.set_params(callback=fail).fit(X, -y)
    np.testing.assert_array_equal(model.predict(X), before)


def test_clones_have_it_and_files_do_not(tmp_path: Path) -> None:
    told: list[Record] = []
    model = clone(ConvexMLPRegressor(callback=told.append, **GATED)).fit(X, y)
    assert tuple(told) == model.history_
    model.save(tmp_path / "model")
    assert model.callback is not None
    again = load(tmp_path / "model")
    assert again.callback is None
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(ValueError, match="callback must be None or a function of a record, got 3"):
        ConvexMLPClassifier(callback=3).fit(X, y > 0)
