"""Parameters are declared once: the declaration makes the keyword, its default and its check."""

import inspect
from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.base import clone

from bidual import ConvexMLPRegressor, ConvexMLPRegressorCV, LayerwiseCNNClassifier
from bidual.estimators import ESTIMATORS
from bidual.estimators.parameters import must, parameter

X = np.random.default_rng(0).standard_normal((12, 2))
y = X[:, 0]


@dataclass(kw_only=True, eq=False, repr=False)
class Patient(ConvexMLPRegressor):
    """An estimator with one parameter more, for one activation, and another default."""

    patience: int = parameter(3, must("a positive number", lambda value: value > 0), activation="gated_relu")
    tol: float = 1e-2


@pytest.mark.parametrize("family", [*ESTIMATORS.values(), LayerwiseCNNClassifier])
def test_every_parameter_is_a_keyword(family):
    keywords = inspect.signature(family).parameters
    assert {each.kind for each in keywords.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert family().get_params() == {name: each.default for name, each in keywords.items()}


def test_what_a_family_does_not_have_is_no_keyword():
    assert not {"beta", "warm_start"} & set(ConvexMLPRegressorCV().get_params())
    assert "hidden_bias" not in ESTIMATORS["ConvexAttentionRegressor"]().get_params()


def test_a_new_parameter_is_one_declaration():
    gated = Patient(patience=5, activation="gated_relu", n_gates=4)
    assert clone(gated).get_params()["patience"] == 5
    assert gated.fit(X, y).certificate_.relative_gap <= 1e-2
    with pytest.raises(ValueError, match="patience must be a positive number, got 0"):
        Patient(patience=0, activation="gated_relu").fit(X, y)
    with pytest.raises(ValueError, match="patience is for activation='gated_relu', got activation='linear'"):
        Patient(patience=5, activation="linear").fit(X, y)


def test_another_default_keeps_the_check():
    with pytest.raises(ValueError, match="tol must be between 0 and 1, got 2"):
        Patient(tol=2).fit(X, y)


def test_a_cross_validated_fit_validates_once_and_builds_once_for_each_fold(monkeypatch):
    calls = []
    for name in ("_check_parameters", "_validate_fit", "_program"):
        real = getattr(ConvexMLPRegressorCV, name)

        def counted(self, *args, real=real, name=name):
            calls.append(name)
            return real(self, *args)

        monkeypatch.setattr(ConvexMLPRegressorCV, name, counted)
    ConvexMLPRegressorCV(activation="gated_relu", n_gates=4, n_betas=2, cv=2, tol=1e-2).fit(X, y)
    assert calls == ["_check_parameters", "_validate_fit", "_program", *["_program"] * 2]  # and one for each fold
