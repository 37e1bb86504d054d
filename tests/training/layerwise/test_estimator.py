from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.class_weight import compute_class_weight

import bidual
from bidual import LayerwiseCNNClassifier
from bidual.runtime.container import UnreadableFileError
from bidual.training.layerwise.trainer import LayerwiseResult, LayerwiseTrainer
from helpers.small_images import bars

NAMES = np.array(["row", "column", "none"])


def small(**changes: object) -> LayerwiseCNNClassifier:
    plain: dict[str, object] = {"stages": 2, "n_gates": 4, "epochs": 2, "learning_rate": 0.1, "certificate_samples": 20}
    return LayerwiseCNNClassifier(**(plain | changes))  # type: ignore[arg-type]


def data(n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    images, labels = bars(n)
    return images.numpy(), NAMES[labels.numpy()]


def test_labels_probabilities_and_stages() -> None:
    X, y = data(240)
    model = small(n_gates=6, epochs=4, flip=False, crop=0).fit(X, y)
    assert set(model.classes_) == set(NAMES)
    assert model.score(X, y) > 0.8
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1, rtol=1e-6)
    np.testing.assert_array_equal(model.classes_[model.predict_proba(X).argmax(1)], model.predict(X))
    staged = list(model.staged_predict(X))
    assert len(staged) == 2
    np.testing.assert_array_equal(staged[-1], model.predict(X))
    assert not np.array_equal(staged[0], staged[1])


def test_scores_of_two_classes_are_one_number() -> None:
    X, y = data()
    model = small(stages=1, downsample=()).fit(X, y == "row")
    scores, shares = model.decision_function(X), model.predict_proba(X)
    assert scores.shape == (60,)
    np.testing.assert_allclose(shares[:, 1], 1 / (1 + np.exp(-scores.astype(float))), rtol=1e-5)
    np.testing.assert_array_equal(model.predict(X), scores > 0)
    np.testing.assert_array_equal(model.predict_log_proba(X), np.log(shares))


def test_class_weights_count_in_training_and_in_certificates(tmp_path: Path) -> None:
    X, y = data()
    y = np.random.default_rng(0).permutation(y)  # there is nothing to learn but how often a class is
    plain, heavy = (small(class_weight=each, learning_rate=0.01).fit(X, y) for each in (None, {"none": 50.0}))
    place = heavy.classes_.tolist().index("none")
    assert heavy.predict_proba(X)[:, place].mean() > 0.1 + plain.predict_proba(X)[:, place].mean()
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))[:20]
    with torch.no_grad():
        outputs = heavy.module_(torch.tensor(X[order])).double()
    target = torch.tensor(np.searchsorted(heavy.classes_, y[order]))
    weight = torch.where(target == place, 50.0, 1.0)
    loss = float((weight * torch.nn.functional.cross_entropy(outputs, target, reduction="none")).sum())
    stage, head = heavy.module_.stages.last, heavy.module_.heads.last
    squares = sum(float(p.detach().square().sum()) for p in (*stage.hidden.parameters(), head.output.weight))
    assert heavy.certificates_[-1].objective == pytest.approx(loss + 20 * 5e-4 / 2 * squares, rel=1e-4)
    assert heavy.certificates_[-1].dual <= heavy.certificates_[-1].objective
    heavy.save(tmp_path / "m")
    assert bidual.load(tmp_path / "m").class_weight == {"none": 50.0}


def test_balanced_classes_are_those_of_scikit_learn() -> None:
    X, y = data()
    keep = (y != "none") | (np.arange(60) % 4 == 0)
    X, y = X[keep], y[keep]
    weights = dict(zip(np.unique(y), compute_class_weight("balanced", classes=np.unique(y), y=y), strict=True))
    balanced, given = (small(class_weight=each).fit(X, y).decision_function(X) for each in ("balanced", weights))
    np.testing.assert_array_equal(balanced, given)
    assert not np.array_equal(balanced, small().fit(X, y).decision_function(X))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("even", "'balanced' or a dict"),
        ({"none": 0}, "positive here, and below 1e\\+30, got 0 for class 'none'"),
        ({"none": -1}, "finite and not negative"),
        ({"other": 1}, "names 'other', which is none of the classes"),
    ],
)
def test_bad_class_weights(given: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(class_weight=given).fit(*data())


def test_a_checkpoint_of_other_class_weights_is_refused(tmp_path: Path) -> None:
    small(stages=1, downsample=(), checkpoint=tmp_path / "c").fit(*data())
    with pytest.raises(ValueError, match="class_weights"):
        small(stages=1, downsample=(), checkpoint=tmp_path / "c", resume=True, class_weight={"none": 2}).fit(*data())


def test_the_result_is_one_ordinary_module() -> None:
    X, y = data()
    model = small().fit(X, y)
    assert isinstance(model.module_, torch.nn.Module)
    with torch.no_grad():
        outputs = model.module_(torch.tensor(X)).numpy()
    np.testing.assert_array_equal(outputs, model.decision_function(X))


def test_a_certificate_per_stage() -> None:
    X, y = data()
    model = small().fit(X, y)
    assert [certificate.stage for certificate in model.certificates_] == [1, 2]
    for certificate in model.certificates_:
        assert certificate.n == 20
        assert certificate.beta == pytest.approx(20 * 5e-4)
        assert 0 <= certificate.dual <= certificate.balanced
        assert "relative gap" in str(certificate)
    assert small(certificate_samples=0).fit(X, y).certificates_ == ()


def test_shapes_that_are_taken() -> None:
    X, y = data()
    grey = X[:, :1]
    flat = small(image_shape=(1, 8, 8)).fit(grey.reshape(len(X), -1), y)
    plain = small().fit(grey[:, 0], y)
    np.testing.assert_array_equal(flat.decision_function(grey), plain.decision_function(grey[:, 0]))
    np.testing.assert_array_equal(plain.predict(grey.reshape(len(X), -1)), plain.predict(grey))
    floats = small().fit(torch.tensor(X, dtype=torch.float64), y)
    assert floats.sample_shape_ == (2, 8, 8)
    assert floats.n_features_in_ == 128


def test_same_seed_same_network_and_data_left_alone() -> None:
    X, y = data()
    before, state = X.copy(), torch.random.get_rng_state()
    a, b, c = (small(random_state=seed).fit(X, y).decision_function(X) for seed in (0, 0, 1))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)
    np.testing.assert_array_equal(X, before)
    assert torch.equal(state, torch.random.get_rng_state())


def test_saved_and_loaded(tmp_path: Path) -> None:
    X, y = data()
    model = small(units=2, factors=2, checkpoint=tmp_path / "steps").fit(X, y)
    model.save(tmp_path / "model.safetensors")
    again = bidual.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.certificates_ == model.certificates_
    assert again.history_ == model.history_
    expected = model.get_params() | {"checkpoint": None}
    assert again.get_params() == expected


def test_damaged_model_file_is_refused(tmp_path: Path) -> None:
    X, y = data()
    small().fit(X, y).save(tmp_path / "model")
    raw = (tmp_path / "model").read_bytes()
    (tmp_path / "model").write_bytes(raw.replace(b'n_outputs\\": 3', b'n_outputs\\": 4'))
    with pytest.raises(UnreadableFileError, match="damaged model file"):
        bidual.load(tmp_path / "model")


def test_checkpoint_is_kept_and_gone_on_with(tmp_path: Path) -> None:
    X, y = data()
    whole = small(checkpoint=tmp_path).fit(X, y)
    with pytest.raises(FileExistsError, match="holds a checkpoint; resume it"):
        small(checkpoint=tmp_path).fit(X, y)
    resumed = small(checkpoint=tmp_path, resume=True).fit(X, y)
    np.testing.assert_array_equal(whole.decision_function(X), resumed.decision_function(X))
    with pytest.raises(ValueError, match="another configuration: gates 4 instead of 5"):
        small(checkpoint=tmp_path, resume=True, n_gates=5).fit(X, y)


def test_interrupted_fit_warns_and_works(monkeypatch: pytest.MonkeyPatch) -> None:
    run = LayerwiseTrainer.run

    def interrupted(self: LayerwiseTrainer, resume: object = None) -> LayerwiseResult:
        done = run(self, None)
        return LayerwiseResult(done.network.upto(1), done.history[:2], done.rates[:1], "interrupted")

    monkeypatch.setattr(LayerwiseTrainer, "run", interrupted)
    X, y = data()
    with pytest.warns(ConvergenceWarning, match=r"after epoch 2 of stage 1 \(interrupted\): the network has 1 stages"):
        model = small().fit(X, y)
    assert model.interrupted_
    assert len(model.predict(X)) == len(y)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stages": 0}, "stages must be a whole number of at least 1, got 0"),
        ({"n_gates": 2.5}, "n_gates must be a whole number of at least 1, got 2.5"),
        ({"kernel_size": 2}, "kernel_size must be odd"),
        ({"weight_decay": 0}, "weight_decay must be a positive number, got 0"),
        ({"momentum": 1.0}, "momentum must be a number from 0 to below 1, got 1.0"),
        ({"drop": 0.0}, "drop must be a number above 0 and at most 1"),
        ({"learning_rate": "fast"}, "learning_rate must be 'auto', a positive number"),
        ({"learning_rate": {0.1: 1}}, "learning_rate must be 'auto', a positive number"),
        ({"learning_rate": (0.1, 0.1, 0.1)}, "one for each of 2 stages"),
        ({"downsample": (3,)}, r"downsample must list stages from 1 to 2, like \(2,\), got \(3,\)"),
        ({"crop": -1}, "crop must be 'auto' or a whole number of at least 0 pixels, got -1"),
        ({"resume": True}, "resume=True needs the folder of a checkpoint"),
        ({"image_shape": (8, 8)}, r"image_shape must be \(channels, height, width\)"),
        ({"image_shape": (1, 8, 8)}, r"image_shape=\(1, 8, 8\) does not fit images of shape \(2, 8, 8\)"),
        ({"downsample": (1, 2), "pooling": 3}, "the last map is 2 x 2, smaller than pooling=3"),
        ({"device": "cuda"}, "torch finds 0 GPUs; use 'cpu'"),
        ({"device": "bogus"}, "device must be 'cpu' or a GPU like 'cuda' or 'cuda:0', got 'bogus'"),
        ({"flip": "no"}, "flip must be True or False, got 'no'"),
    ],
)
def test_bad_parameters_are_refused(changes: dict[str, object], message: str) -> None:
    if changes.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(ValueError, match=message):
        small(**changes).fit(*data())


def test_bad_images_are_refused() -> None:
    X, y = data()
    with pytest.raises(ValueError, match="cannot downsample a 7 x 8 map, which is odd"):
        small().fit(X[:, :, :7], y)
    with pytest.raises(ValueError, match="one shape"):
        small().fit([X[0], X[1, :, :4]], y[:2])
    with pytest.raises(ValueError, match="NaN"):
        small().fit(np.where(X[0, 0, 0, 0] == X, np.nan, X), y)
    with pytest.raises(ValueError, match="at least two classes"):
        small().fit(X, np.zeros(len(X)))
    with pytest.raises(ValueError, match=r"\(channels, height, width\) or \(height, width\), got \(128,\)"):
        small().fit(X.reshape(len(X), -1), y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        small().fit(X, y[:-1])
    model = small().fit(X, y)
    before = model.predict(X)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(X[:, :, :4], y[:-1])
    np.testing.assert_array_equal(model.predict(X), before)
    with pytest.raises(ValueError, match=r"trained on images of shape \(2, 8, 8\), got \(2, 4, 8\)"):
        model.predict(X[:, :, :4])
    with pytest.raises(NotFittedError):
        small().predict(X)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), RuntimeError("not enough memory")])
def test_network_survives_an_interrupted_certificate(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("bidual.estimators.layerwise.certify_stage", fail)
    X, y = data()
    with pytest.warns(ConvergenceWarning, match="only 0 stages were certified"):
        model = small().fit(X, y)
    assert model.certificates_ == ()
    assert len(model.predict(X)) == len(y)


def test_scikit_learn_clones_it() -> None:
    model = small(downsample=(1, 2))
    assert clone(model).get_params() == model.get_params()
