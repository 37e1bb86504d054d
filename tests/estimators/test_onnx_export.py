import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from sklearn.exceptions import NotFittedError

from bidual.estimators.base import ConvexEstimator
from bidual.estimators.mlp import ConvexMLPClassifier, ConvexMLPRegressor
from bidual.estimators.onnx_export import head_of
from bidual.losses import Huber

rng = np.random.default_rng(0)
X = rng.standard_normal((40, 2))
NEW = rng.standard_normal((101, 2))
THREE = np.array(["a", "b", "c"])[np.arange(40) % 3]
TWO = np.where(X[:, 0] > 0, "yes", "no")
RELU: dict[str, Any] = {"tol": 1e-2, "beta": 0.3}
GATED: dict[str, Any] = {"activation": "gated_relu", "n_gates": 8, **RELU}


def run(estimator: ConvexEstimator, folder: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    path = folder / "model.onnx"
    estimator.to_onnx(str(path))
    onnx.checker.check_model(str(path))
    session = onnxruntime.InferenceSession(path)
    names = [output.name for output in session.get_outputs()]
    assert len(session.run(None, {"X": NEW[:1]})[0]) == 1  # any number of rows
    return dict(zip(names, session.run(None, {"X": NEW}), strict=True)), session.get_modelmeta().custom_metadata_map


CLASSIFIERS: dict[str, tuple[ConvexMLPClassifier, np.ndarray]] = {
    "softmax": (ConvexMLPClassifier(loss="log_loss", **RELU), THREE),
    "gated softmax": (ConvexMLPClassifier(loss="log_loss", **GATED), THREE),
    "logistic": (ConvexMLPClassifier(loss="log_loss", **GATED), TWO),
    "relu logistic": (ConvexMLPClassifier(loss="log_loss", **RELU), TWO),
    "squared": (ConvexMLPClassifier(**RELU | {"beta": 0.01}), TWO),
    "squared of three": (ConvexMLPClassifier(**GATED | {"beta": 0.01}), THREE),
    "hinge": (ConvexMLPClassifier(loss="hinge", **GATED), THREE),
    "huber": (ConvexMLPClassifier(loss=Huber(1.3), **GATED | {"beta": 0.01}), TWO),
    "softmax of two": (ConvexMLPClassifier(loss="softmax", activation="linear", **RELU), TWO),
    "logistic of three": (ConvexMLPClassifier(loss="logistic", **GATED), THREE),
}
QUICK = ("softmax", "gated softmax", "logistic", "squared of three", "huber")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CLASSIFIERS]
)
def test_classifiers_agree(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    estimator, y = CLASSIFIERS[name]
    outputs, properties = run(estimator.fit(X, y), tmp_path)
    np.testing.assert_allclose(outputs["scores"], estimator.decision_function(NEW), rtol=0, atol=1e-9)
    np.testing.assert_array_equal(np.array(json.loads(properties["classes"]))[outputs["label"]], estimator.predict(NEW))
    assert outputs["label"].dtype == np.int64
    assert ("probabilities" in outputs) == hasattr(estimator, "predict_proba")
    if "probabilities" in outputs:
        np.testing.assert_allclose(outputs["probabilities"], estimator.predict_proba(NEW), rtol=0, atol=1e-9)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_what_is_exported_computes_the_estimators_answers(name: str) -> None:
    estimator, y = CLASSIFIERS[name]
    head, names = head_of(estimator.fit(X, y))
    outputs = dict(zip(names, head(torch.tensor(NEW)), strict=True))
    np.testing.assert_array_equal(outputs["scores"].detach(), estimator.decision_function(NEW))
    np.testing.assert_array_equal(estimator.classes_[outputs["label"]], estimator.predict(NEW))
    assert ("probabilities" in outputs) == hasattr(estimator, "predict_proba")
    if "probabilities" in outputs:
        np.testing.assert_allclose(outputs["probabilities"].detach(), estimator.predict_proba(NEW), rtol=0, atol=1e-12)


@pytest.mark.parametrize("y", [X[:, 0], pytest.param(X[:, :2], marks=pytest.mark.slow)], ids=["flat", "two"])
def test_regressors_agree(y: np.ndarray, tmp_path: Path) -> None:
    estimator = ConvexMLPRegressor(**RELU).fit(X, y)
    outputs, _ = run(estimator, tmp_path)
    assert list(outputs) == ["predictions"]
    np.testing.assert_allclose(outputs["predictions"], estimator.predict(NEW), rtol=0, atol=1e-9)


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        ConvexMLPRegressor().to_onnx(str(tmp_path / "m.onnx"))
    with pytest.raises(FileNotFoundError, match="does not exist"):
        ConvexMLPRegressor(**GATED).fit(X, X[:, 0]).to_onnx(str(tmp_path / "none" / "m.onnx"))
    assert not list(tmp_path.iterdir())
