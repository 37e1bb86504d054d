import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from sklearn.exceptions import NotFittedError

from bidual.architectures import GatedMLP, ReluMLP
from bidual.estimators.base import ConvexEstimator
from bidual.estimators.cv import ConvexMLPClassifierCV
from bidual.estimators.mlp import ConvexMLPClassifier, ConvexMLPRegressor
from bidual.estimators.saving import load, read, save
from bidual.io.tables import TableEncoder
from bidual.losses import Huber
from bidual.losses.datafit import Datafit
from bidual.patterns import with_constant
from bidual.polar import Faces
from bidual.problems.certificate import Scope
from bidual.problems.problem import Problem, ReluProblem
from bidual.runtime.container import UnreadableFileError

rng = np.random.default_rng(0)
X = rng.standard_normal((30, 2))
LABELS: dict[str, Any] = {
    "texts": np.array(["no", "yes"])[(X[:, 0] > 0).astype(int)],
    "objects": np.array(["a", "bb", "c"], dtype=object)[np.arange(30) % 3],
    "integers": np.array([3, 7, 11])[np.arange(30) % 3],
    "truth values": X[:, 1] > 0,
    "floats": np.array([0.0, 2.0])[(X[:, 0] > 0).astype(int)],
}
RELU: dict[str, Any] = {"tol": 1e-2}
GATED: dict[str, Any] = {"activation": "gated_relu", "n_gates": 6, "tol": 1e-2}
SMALL = {"relu": RELU, "gated_relu": GATED}


def roundtrip(estimator: ConvexEstimator, folder: Path) -> ConvexEstimator:
    estimator.save(str(folder / "model.safetensors"))
    return load(folder / "model.safetensors")


@pytest.fixture(scope="module", params=SMALL)
def fitted(request: pytest.FixtureRequest) -> ConvexMLPClassifier:
    return ConvexMLPClassifier(**SMALL[request.param]).fit(X, LABELS["objects"])


@pytest.mark.parametrize("activation", SMALL)
@pytest.mark.parametrize("name", LABELS)
def test_labels_keep_their_type(name: str, activation: str, tmp_path: Path) -> None:
    est = ConvexMLPClassifier(loss="log_loss", **SMALL[activation]).fit(X, LABELS[name])
    again = roundtrip(est, tmp_path)
    assert type(again) is ConvexMLPClassifier
    assert again.classes_.dtype == est.classes_.dtype
    np.testing.assert_array_equal(again.predict(X), est.predict(X))
    np.testing.assert_array_equal(again.predict_proba(X), est.predict_proba(X))


@pytest.mark.parametrize("targets", [X[:, 0], X[:, :1], X[:, :2]], ids=["flat", "column", "two"])
def test_regressors_keep_the_shape_of_their_targets(targets: np.ndarray, tmp_path: Path) -> None:
    est = ConvexMLPRegressor(loss=Huber(0.5), activation="linear", **RELU).fit(X, targets)
    again = roundtrip(est, tmp_path)
    np.testing.assert_array_equal(again.predict(X), est.predict(X))
    assert again.predict(X).shape == targets.shape
    assert again.loss == Huber(0.5)


def test_attributes_and_history_come_back(fitted: ConvexMLPClassifier, tmp_path: Path) -> None:
    again = roundtrip(fitted, tmp_path)
    assert again.get_params() == fitted.get_params()
    for name in ("beta_", "beta_max_", "n_neurons_", "n_iter_", "solver_", "n_features_in_", "history_"):
        assert getattr(again, name) == getattr(fitted, name)
    assert str(again.certificate_) == str(fitted.certificate_)


def test_the_certificate_of_a_relu_network_can_be_rechecked_from_the_file(tmp_path: Path) -> None:
    again = roundtrip(ConvexMLPRegressor(**RELU).fit(X, X[:, 0]), tmp_path)
    architecture = again.architecture_
    assert isinstance(architecture, ReluMLP)
    samples = with_constant(torch.tensor(X))
    problem = ReluProblem(samples, Datafit(again.loss_, torch.tensor(X[:, :1]), None, True), again.beta_)
    oracle = Faces(samples)
    assert again.certificate_.scope is Scope.ALL_PATTERNS
    assert again.certificate_.recheck(problem.restricted_to(architecture.neurons), oracle)
    assert not again.certificate_.recheck(
        problem.with_beta(2 * again.beta_).restricted_to(architecture.neurons), oracle
    )


def test_the_certificate_can_be_rechecked_from_the_file(tmp_path: Path) -> None:
    est = ConvexMLPRegressor(**GATED).fit(X, X[:, 0])
    again = roundtrip(est, tmp_path)
    architecture = again.architecture_
    assert isinstance(architecture, GatedMLP)
    datafit = Datafit(again.loss_, torch.tensor(X[:, :1]), None, True)
    problem = Problem(architecture.lift(torch.tensor(X), 1), datafit, architecture.gauge(), again.beta_)
    assert again.certificate_.recheck(problem)
    assert not again.certificate_.recheck(problem.with_beta(2 * again.beta_))


def test_feature_names_and_own_gates(tmp_path: Path) -> None:
    frame, gates = pd.DataFrame(X, columns=["a", "b"]), rng.standard_normal((2, 5))
    est = ConvexMLPRegressor(gates=gates, **GATED).fit(frame, X[:, 0])
    again = roundtrip(est, tmp_path)
    assert list(again.feature_names_in_) == ["a", "b"]
    np.testing.assert_array_equal(again.gates, gates)
    np.testing.assert_array_equal(again.predict(frame), est.predict(frame))
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame[["b", "a"]])


@pytest.mark.parametrize("activation", SMALL)
def test_a_loaded_model_can_start_warm(activation: str, tmp_path: Path) -> None:
    est = ConvexMLPRegressor(warm_start=True, **{**SMALL[activation], "tol": 1e-6}).fit(X, X[:, 0])
    again = roundtrip(est, tmp_path).fit(X, X[:, 0])
    assert len(again.history_) < len(est.history_)
    assert again.certificate_.relative_gap <= 1e-6


def test_cross_validated_models(tmp_path: Path) -> None:
    est = ConvexMLPClassifierCV(n_betas=2, cv=2, **RELU).fit(X, LABELS["texts"])
    again = roundtrip(est, tmp_path)
    np.testing.assert_array_equal(again.cv_scores_, est.cv_scores_)
    np.testing.assert_array_equal(again.betas_, est.betas_)
    np.testing.assert_array_equal(again.predict(X), est.predict(X))


def test_the_encoder_of_a_table_is_kept(fitted: ConvexMLPClassifier, tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0, None], "s": ["a", "b", None]})
    save(fitted, tmp_path / "m", TableEncoder().fit(frame))
    saved = read(tmp_path / "m")
    assert saved.encoder is not None
    pd.testing.assert_frame_equal(saved.encoder.transform(frame), TableEncoder().fit(frame).transform(frame))


def rewrite(path: Path, change: Callable[[dict[str, Any]], object], inside: bool = True) -> None:
    """Change the header of a model file, or what is said about it."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    outer = json.loads(data[8 : 8 + length])
    about = json.loads(outer["__metadata__"]["bidual"])
    change(about["header"] if inside else about)
    outer["__metadata__"]["bidual"] = json.dumps(about)
    text = json.dumps(outer).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


DAMAGE: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "estimator": (lambda h: h.update(estimator="os.system"), "unknown estimator 'os.system'"),
    "parameter": (lambda h: h["parameters"].update(colour=1), "damaged model file"),
    "no network": (lambda h: h.pop("network"), "damaged model file"),
    "sizes": (lambda h: h["network"]["sizes"].update(n_neurons=10**12), "do not have the shapes of a network"),
    "swapped sizes": (lambda h: h["network"]["sizes"].update(n_outputs=6), "tensors"),
    "classes": (lambda h: h["fitted"]["classes_"]["values"].append("d"), "4 classes do not match"),
    "features": (lambda h: h["fitted"].update(n_features_in_=4), "n_features_in_=4 numbers"),
    "attribute": (lambda h: h["fitted"].update(__class__="x"), "unknown attribute"),
    "kind": (lambda h: h["network"].update(kind="os"), "unknown network 'os'"),
    "architecture": (lambda h: h["fitted"]["architecture_"].update(architecture="mine"), "unknown architecture 'mine'"),
    "scope": (lambda h: h["fitted"]["certificate_"]["settings"].update(scope="EVERYTHING"), "damaged model file"),
    "bound": (lambda h: h["fitted"]["certificate_"]["settings"].update(dual="low"), "'dual' must be of type float"),
    "record": (
        lambda h: h["fitted"]["history_"]["tuple"][0]["settings"].update(step=10**400),
        "'step' must be of type int",
    ),
    "history": (lambda h: h["fitted"].update(history_={"tuple": [1]}), "history is something else"),
    "unknown field": (lambda h: h.update(code="x"), "its header: 'code' Extra inputs are not permitted"),
    "list": (lambda h: h.update(parameters=[]), "damaged model file"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_headers_are_refused(name: str, fitted: ConvexMLPClassifier, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save(fitted, path)
    rewrite(path, DAMAGE[name][0])
    with pytest.raises(UnreadableFileError, match=DAMAGE[name][1]) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_other_formats_are_refused_by_their_version(fitted: ConvexMLPClassifier, tmp_path: Path) -> None:
    save(fitted, path := tmp_path / "model.safetensors")
    rewrite(path, lambda about: about.update(format=5, version="9.9"), inside=False)
    with pytest.raises(UnreadableFileError, match=r"has model format 5 \(written by bidual 9\.9\).* reads format 4"):
        load(path)
    old = json.dumps({"format": 1, "version": "0.1.0", "estimator": "ConvexMLPClassifier", "parameters": {}})
    save_file({"a": torch.zeros(2)}, path, {"bidual": old})
    with pytest.raises(UnreadableFileError, match=r"has model format 1 \(written by bidual 0\.1\.0\), this is bidual"):
        load(path)


@pytest.mark.parametrize("keep", [0, 4, 100, -1, -200])
def test_truncated_files_are_refused(keep: int, fitted: ConvexMLPClassifier, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save(fitted, path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(UnreadableFileError, match="not a model file, or is cut off"):
        load(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFileError, match="there is no such file"):
        load(tmp_path / "none")
    with pytest.raises(UnreadableFileError, match="it is a folder"):
        load(tmp_path)
    (tmp_path / "text").write_text("a,b\n1,2\n" * 40)
    with pytest.raises(UnreadableFileError, match="not a model file"):
        load(tmp_path / "text")
    save_file({"a": torch.zeros(2)}, tmp_path / "other")
    with pytest.raises(UnreadableFileError, match="not a model that was saved by bidual"):
        load(tmp_path / "other")


def test_a_failed_save_leaves_the_old_file(fitted: ConvexMLPClassifier, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save(fitted, path)
    before = path.read_bytes()
    unsaved = ConvexMLPRegressor(random_state=np.random.RandomState(0), **GATED).fit(X, X[:, 0])
    with pytest.raises(ValueError, match=r"set_params\(random_state=None\)"):
        save(unsaved, path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_failed_write_leaves_the_old_file(
    fitted: ConvexMLPClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.safetensors"
    path.write_text("old")

    def full(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="disk full"):
        save(fitted, path)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_what_cannot_be_saved(fitted: ConvexMLPClassifier, tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        save(ConvexMLPRegressor(), tmp_path / "m")
    with pytest.raises(FileNotFoundError, match=r"folder .* does not exist"):
        save(fitted, tmp_path / "none" / "m")
    other = type("ConvexMLPClassifier", (ConvexMLPClassifier,), {})(**GATED).fit(X, LABELS["texts"])
    with pytest.raises(ValueError, match=r"cannot save a ConvexMLPClassifier: .* is not its own name"):
        save(other, tmp_path / "m")
    assert not list(tmp_path.iterdir())
