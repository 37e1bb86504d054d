"""Every bad input gets one clear sentence before any work is done."""

import re

import numpy as np
import pytest

from bidual import ConvexMLPClassifier, ConvexMLPClassifierCV, ConvexMLPRegressor, regularization_path
from bidual.runtime.memory import human_bytes

GATED = {"activation": "gated_relu"}
X = np.random.default_rng(0).standard_normal((20, 3))
y = np.arange(20) % 2


def refusal(estimator, X=X, y=y, **fit):
    with pytest.raises((ValueError, TypeError)) as caught:
        estimator.fit(X, y, **fit)
    assert not hasattr(estimator, "module_")
    return str(caught.value)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"beta": -0.1}, "beta must be 'auto' or a positive finite number, got -0.1"),
        ({"beta": float("nan")}, "got nan"),
        ({"beta": 0}, "got 0"),
        ({"beta": "large"}, "got 'large'"),
        ({"activation": "tanh"}, "activation must be one of"),
        ({"penalty": "l1"}, "penalty must be one of"),
        ({"solver": "sgd"}, "solver must be 'auto' or one of"),
        ({"loss": "cubic"}, "loss must be 'auto'"),
        ({"activation": None}, "activation must be one of ['relu', 'gated_relu', 'linear'], got None"),
        ({"solver": 3}, "solver must be a string or a Solver, got 3"),
        ({"n_starts": 0}, "n_starts must be 'auto' or a positive whole number, got 0"),
        ({"n_gates": 2.5, **GATED}, "n_gates must be 'auto' or a positive whole number, got 2.5"),
        ({"oracle": "all"}, "oracle must be one of ['auto', 'exact', 'search'], got 'all'"),
        ({"n_gates": 5}, "the parameter n_gates is for activation='gated_relu', got activation='relu'; leave it out"),
        ({"oracle": "exact", **GATED}, "the parameter oracle is for activation='relu', got activation='gated_relu'"),
        ({"n_starts": 5, "activation": "linear"}, "n_starts is for activation='relu', got activation='linear'"),
        ({"tol": 0}, "tol must be between 0 and 1"),
        ({"max_iter": -1}, "max_iter must be None or a positive whole number"),
        ({"max_iter": 2.5}, "max_iter must be None or a positive whole number"),
        ({"device": "gpu"}, "device must be one that torch has here"),
        ({"max_time": 0}, "max_time must be None or positive"),
        ({"gates": np.ones((2, 5)), **GATED}, "gates must have shape (n_features, P) with 3 rows"),
        ({"gates": np.full((3, 5), np.nan), **GATED}, "gates must be finite"),
        ({"gates": np.ones((3, 5))}, "the parameter gates is for activation='gated_relu', got activation='relu'"),
        ({"penalty": "frobenius"}, "a relu network has the price of weight decay"),
        ({"solver": "fista"}, "solver must be 'auto' or one of ['closed_form', 'column_generation'"),
        ({"solver": "column_generation", **GATED}, "solver must be 'auto' or one of"),
        ({"solver": "closed_form"}, "Use solver='auto'"),
        ({"solver": "eta_newton", "loss": "logistic", **GATED}, "eta_newton needs squared loss, got logistic"),
        ({"solver": "fista", "loss": "hinge", **GATED}, "fista needs a smooth loss; hinge has kinks"),
    ],
)
def test_parameters(parameters, words):
    assert words in refusal(ConvexMLPClassifier(**parameters))


def test_a_solver_that_cannot_take_the_gauge_names_both_and_an_alternative():
    settings = {"solver": "burer_monteiro", "penalty": "frobenius", **GATED}
    words = refusal(ConvexMLPClassifier(**settings), y=np.arange(20) % 3)
    assert "frobenius" in words
    assert "Use solver='kernel_admm' or 'auto'" in words


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_data_that_are_not_finite(bad):
    broken = X.copy()
    broken[3, 1] = bad
    assert "NaN" in refusal(ConvexMLPClassifier(), X=broken) or "infinity" in refusal(ConvexMLPClassifier(), X=broken)
    assert refusal(ConvexMLPRegressor(), y=np.where(y == 1, bad, 0.0))


def test_wrong_shapes():
    assert "inconsistent" in refusal(ConvexMLPClassifier(), y=y[:-1])
    assert "2D array" in refusal(ConvexMLPClassifier(), X=X[:, 0])
    fitted = ConvexMLPClassifier(n_gates=5, **GATED).fit(X, y)
    with pytest.raises(ValueError, match="features"):
        fitted.predict(X[:, :2])


def test_one_class_only():
    assert "at least two classes, got one class only" in refusal(ConvexMLPClassifier(), y=np.zeros(20))


def test_classification_losses_are_not_for_regression():
    assert "hinge loss is for classifiers" in refusal(ConvexMLPRegressor(loss="hinge"))
    assert "log loss is for classifiers; use 'squared'" in refusal(ConvexMLPRegressor(loss="log_loss"))
    assert "quantile loss is for numbers, not for classes" in refusal(ConvexMLPClassifier(loss="quantile"))
    assert "'log_loss', 'logistic'" in refusal(ConvexMLPClassifier(loss="log"))


def test_weights():
    assert "zero" in refusal(ConvexMLPClassifier(), sample_weight=np.zeros(20))
    assert refusal(ConvexMLPClassifier(), sample_weight=-np.ones(20))
    assert "one class only" in refusal(ConvexMLPClassifier(), sample_weight=y)


@pytest.mark.parametrize(("activation", "name"), [("relu", "n_starts"), ("gated_relu", "n_gates")])
def test_more_than_memory_says_the_bytes(activation, name):
    words = refusal(ConvexMLPClassifier(activation=activation, **{name: 10**12}))
    assert "would need" in words
    assert "TB" in words
    assert f"lower {name}, or use fewer samples" in words


def test_all_patterns_beyond_memory_say_their_count_and_the_bytes():
    wide = np.random.default_rng(0).standard_normal((200, 17))  # distinct, since equal samples count once
    words = refusal(ConvexMLPClassifier(oracle="exact"), X=wide, y=np.tile(y, 10))
    assert re.search(r"200 samples of rank 18 have up to [\d,]+ activation patterns", words)
    assert "use oracle='search'" in words


def test_cross_validation_and_paths():
    assert "betas must be a list of positive" in refusal(ConvexMLPClassifierCV(betas=[1.0, -1.0]))
    with pytest.raises(ValueError, match="betas must be a list of positive"):
        regularization_path(ConvexMLPClassifier(), X, y, betas=[0.0])
    with pytest.raises(ValueError, match="0 < ratio < 1"):
        regularization_path(ConvexMLPClassifier(), X, y, ratio=2.0)


@pytest.mark.parametrize(("count", "said"), [(512, "512 B"), (2_500_000, "2.5 MB"), (3.2e13, "32 TB")])
def test_bytes_are_said_in_units(count, said):
    assert human_bytes(count) == said


@pytest.mark.parametrize("other", [None, 1], ids=["none", "number"])
def test_labels_of_two_kinds(other):
    labels = np.array(["a", other] * 10, dtype=object)
    assert "labels must be all numbers or all strings" in refusal(ConvexMLPClassifier(), y=labels)
