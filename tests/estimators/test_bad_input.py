"""Every bad input gets one clear sentence before any work is done."""

import numpy as np
import pytest

from bidual import ConvexMLPClassifier, ConvexMLPClassifierCV, ConvexMLPRegressor, regularization_path
from bidual.memory import human_bytes

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
        ({"patterns": 0}, "patterns must be 'auto' or a positive whole number"),
        ({"patterns": 2.5}, "got 2.5"),
        ({"tol": 0}, "tol must be between 0 and 1"),
        ({"max_iter": -1}, "max_iter must be None or a positive whole number"),
        ({"max_iter": 2.5}, "max_iter must be None or a positive whole number"),
        ({"device": "gpu"}, "device must be one that torch has here"),
        ({"max_time": 0}, "max_time must be None or positive"),
        ({"gates": np.ones((2, 5))}, "gates must have shape (n_features, P) with 3 rows"),
        ({"gates": np.full((3, 5), np.nan)}, "gates must be finite"),
        ({"solver": "eta_newton", "loss": "logistic"}, "eta_newton needs squared loss, got logistic"),
        ({"solver": "fista", "loss": "hinge"}, "fista needs a smooth loss; hinge has kinks"),
    ],
)
def test_parameters(parameters, words):
    assert words in refusal(ConvexMLPClassifier(**parameters))


def test_a_solver_that_cannot_take_the_gauge_names_both_and_an_alternative():
    words = refusal(ConvexMLPClassifier(solver="burer_monteiro", penalty="frobenius"), y=np.arange(20) % 3)
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
    fitted = ConvexMLPClassifier(patterns=5).fit(X, y)
    with pytest.raises(ValueError, match="features"):
        fitted.predict(X[:, :2])


def test_one_class_only():
    assert "at least two classes in y of positive weight, got one class only" in refusal(
        ConvexMLPClassifier(), y=np.zeros(20)
    )


def test_classification_losses_are_not_for_regression():
    assert "hinge loss is for classifiers" in refusal(ConvexMLPRegressor(loss="hinge"))


def test_weights():
    assert "zero" in refusal(ConvexMLPClassifier(), sample_weight=np.zeros(20))
    assert refusal(ConvexMLPClassifier(), sample_weight=-np.ones(20))
    assert "one class only" in refusal(ConvexMLPClassifier(), sample_weight=y)


def test_more_patterns_than_memory_says_the_bytes():
    words = refusal(ConvexMLPClassifier(patterns=10**12))
    assert "would need" in words
    assert "TB" in words
    assert "lower patterns" in words


def test_cross_validation_and_paths():
    assert "betas must be a list of positive" in refusal(ConvexMLPClassifierCV(betas=[1.0, -1.0]))
    with pytest.raises(ValueError, match="betas must be a list of positive"):
        regularization_path(ConvexMLPClassifier(), X, y, betas=[0.0])
    with pytest.raises(ValueError, match="0 < ratio < 1"):
        regularization_path(ConvexMLPClassifier(), X, y, ratio=2.0)


@pytest.mark.parametrize(("count", "said"), [(512, "512 B"), (2_500_000, "2.5 MB"), (3.2e13, "32 TB")])
def test_bytes_are_said_in_units(count, said):
    assert human_bytes(count) == said
