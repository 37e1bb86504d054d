"""predict_proba, predict_log_proba and decision_function of the classifiers."""

import warnings
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import get_scorer

import bidual
from bidual.losses import Huber

rng = np.random.default_rng(0)
X = rng.standard_normal((40, 2))
NEW = 3 * rng.standard_normal((200, 2))
TWO = np.where(X[:, 0] + 0.3 * rng.standard_normal(40) > 0, "yes", "no")
THREE = np.digitize(X[:, 0] + 0.3 * rng.standard_normal(40), [-0.4, 0.4])
GATED: dict[str, Any] = {"activation": "gated_relu", "n_gates": 6, "tol": 1e-3}
MODELS: dict[str, Any] = {
    "mlp": lambda loss: bidual.ConvexMLPClassifier(loss=loss, beta=0.01, **GATED),
    "relu": lambda loss: bidual.ConvexMLPClassifier(loss=loss, beta=0.1, tol=1e-2),
    "cv": lambda loss: bidual.ConvexMLPClassifierCV(loss=loss, n_betas=2, cv=2, **GATED),
    "cnn": lambda loss: bidual.ConvexCNNClassifier(loss=loss, image_shape=(1, -1), kernel_size=2, **GATED),
    "attention": lambda loss: bidual.ConvexAttentionClassifier(loss=loss, token_shape=(1, -1), **GATED),
    "parallel": lambda loss: bidual.ConvexParallelClassifier(
        loss=loss, activation="gated_relu", n_subnetworks=4, widths=2, tol=1e-3
    ),
    "general": lambda loss: bidual.ConvexClassifier(loss=loss, beta=0.01, tol=1e-3),
}


def projected(p: np.ndarray) -> np.ndarray:
    """The nearest of the points that are best on a face of the simplex."""
    found = []
    for size in range(1, len(p) + 1):
        for face in map(list, combinations(range(len(p)), size)):
            q = np.zeros(len(p))
            q[face] = p[face] - (p[face].sum() - 1) / size
            found += [q] if q.min() >= 0 else []
    return min(found, key=lambda q: ((q - p) ** 2).sum())


@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize("family", MODELS)
def test_squared_outputs_are_projected_onto_the_simplex(family: str, y: np.ndarray) -> None:
    model = MODELS[family]("squared").fit(X, y)
    scores, shares = model.decision_function(NEW), model.predict_proba(NEW)
    assert scores.shape == ((200,) if y is TWO else (200, 3))
    outputs = np.stack([(1 - scores) / 2, (1 + scores) / 2], 1) if y is TWO else scores
    np.testing.assert_allclose(shares, [projected(p) for p in outputs], atol=1e-12)
    np.testing.assert_array_equal(model.classes_[shares.argmax(1)], model.predict(NEW))
    assert not shares.all()  # so that logarithms are tested


@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize("loss", ["squared", "huber", "log_loss", "logistic", "softmax"])
def test_predictions_and_logarithms_agree(loss: str, y: np.ndarray) -> None:
    model = MODELS["mlp"](loss).fit(X, y)
    for samples in (NEW, 1e3 * NEW, 0 * NEW):
        shares = model.predict_proba(samples)
        np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-14)
        np.testing.assert_array_equal(model.classes_[shares.argmax(1)], model.predict(samples))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            logs = model.predict_log_proba(samples)
        np.testing.assert_array_equal(np.exp(logs) == 0, shares == 0)
        assert np.isneginf(logs[shares == 0]).all()
        assert model.decision_function(samples).shape == ((200,) if y is TWO else (200, 3))


def test_a_tie_is_the_first_class_for_both() -> None:
    flat = bidual.ConvexClassifier(beta=1e6).fit(np.ones((4, 1)), ["b", "a", "b", "a"])
    assert flat.decision_function([[1.0]]).tolist() == [0.0]
    assert flat.predict([[1.0]]).tolist() == ["a"]
    assert flat.predict_proba([[1.0]]).tolist() == [[0.5, 0.5]]


@pytest.mark.parametrize("family", MODELS)
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "absolute", Huber(0.5)], ids=str)
def test_losses_without_probabilities_say_what_to_use(family: str, loss: Any) -> None:
    model = MODELS[family](loss)
    for name in ("predict_proba", "predict_log_proba"):
        assert not hasattr(model, name)
        with pytest.raises(
            AttributeError, match=r"^\w+ loss .*gives no probabilities; use .*loss='log_loss' or 's.*\.$"
        ):
            getattr(model, name)
        assert getattr(type(model), name).__doc__


def test_scikit_learn_finds_them() -> None:
    hinge, squared = (MODELS["mlp"](loss).fit(X, TWO == "yes") for loss in ("hinge", "squared"))
    assert get_scorer("neg_brier_score")(squared, X, TWO == "yes") > -0.25
    with pytest.raises(AttributeError, match=r"gives no probabilities|predict_proba"):
        get_scorer("neg_brier_score")(hinge, X, TWO == "yes")
    calibrated = CalibratedClassifierCV(MODELS["mlp"]("hinge"), cv=2).fit(X, TWO)
    assert calibrated.predict_proba(X).shape == (40, 2)


def test_an_unknown_loss_has_none_either() -> None:
    with pytest.raises(AttributeError, match="loss must be 'auto'"):
        bidual.ConvexMLPClassifier(loss="nothing").predict_proba  # noqa: B018


def test_probabilities_are_saved(tmp_path: Any) -> None:
    model = MODELS["mlp"]("auto").fit(X, THREE)
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(bidual.load(tmp_path / "m").predict_proba(NEW), model.predict_proba(NEW))


def test_a_fitted_classifier_keeps_its_loss_until_the_next_fit() -> None:
    model = MODELS["mlp"]("log_loss").fit(X, TWO)
    shares = model.predict_proba(NEW)
    model.set_params(loss="hinge", activation="linear")
    np.testing.assert_array_equal(model.predict_proba(NEW), shares)
    model.set_params(activation="gated_relu").fit(X, TWO)
    assert not hasattr(model, "predict_proba")
    with pytest.raises(ValueError, match="needs predict_proba"):
        MODELS["cv"]("log_loss").fit(X, TWO).set_params(loss="hinge", scoring="neg_log_loss").fit(X, TWO)
