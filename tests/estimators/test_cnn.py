"""Convolutional networks as estimators: what they take, what they return, what they refuse."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bidual import ConvexCNNClassifier, ConvexCNNRegressor, Scope, load, regularization_path
from bidual.losses import LOSSES

rng = np.random.default_rng(0)
IMAGES = rng.standard_normal((24, 2, 5, 4))
SIGNALS = rng.standard_normal((24, 2, 6))
LABELS = np.arange(24) % 3
TARGETS = np.maximum(IMAGES[:, 0, :2, :2], 0).mean((1, 2))
GATED = {"n_gates": 8, "kernel_size": 2, "tol": 1e-4}
ACTIVATIONS = {"linear": {}, "gated_relu": {"n_gates": 8}, "relu": {"hidden_bias": False, "tol": 1e-2}}


def objective(model, X, Y, loss):
    """The network's own objective, from its module alone."""
    with torch.no_grad():
        outputs = model.module_(torch.as_tensor(X))
        decay = sum(float(p.square().sum()) for n, p in model.module_.named_parameters() if n in WEIGHTS)
    return float(loss.value(outputs, torch.as_tensor(Y)).sum()) + model.beta_ * 0.5 * decay


WEIGHTS = {"hidden.weight", "hidden.bias", "output.weight"}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_module_has_the_certified_objective(activation):
    """Signals with 2-tap filters on one channel: rank 2, so that all activations are certified."""
    X = SIGNALS[:, :1]
    y = np.abs(X[:, 0]).mean(1)
    model = ConvexCNNRegressor(activation=activation, kernel_size=2, beta=0.3, **ACTIVATIONS[activation]).fit(X, y)
    assert model.certificate_.relative_gap <= model.tol
    assert objective(model, X, y[:, None], LOSSES["squared"]()) == pytest.approx(model.certificate_.primal, rel=1e-8)
    assert model.certificate_.scope is (Scope.ALL_PATTERNS if activation == "relu" else Scope.BLOCKS)


def test_flat_samples_arrays_tensors_and_lists_are_one_and_the_same():
    model = ConvexCNNClassifier(image_shape=(2, 5, 4), **GATED)
    flat = model.fit(IMAGES.reshape(24, -1), LABELS).decision_function(IMAGES.reshape(24, -1))
    for X in (IMAGES, torch.tensor(IMAGES), IMAGES.tolist(), [torch.tensor(image) for image in IMAGES]):
        other = ConvexCNNClassifier(**GATED).fit(X, LABELS)
        assert other.sample_shape_ == (2, 5, 4)
        np.testing.assert_array_equal(other.decision_function(X), flat)
        np.testing.assert_array_equal(other.decision_function(IMAGES.reshape(24, -1)), flat)


def test_the_callers_images_are_not_changed():
    before = IMAGES.copy()
    ConvexCNNClassifier(**GATED).fit(IMAGES, LABELS)
    np.testing.assert_array_equal(IMAGES, before)


@pytest.mark.parametrize("pooling", ["auto", "global", 1, (4, 1), rng.standard_normal((3, 12))])
def test_every_pooling(pooling):
    model = ConvexCNNClassifier(pooling=pooling, **GATED).fit(IMAGES, LABELS)
    assert model.certificate_.relative_gap <= model.tol
    readouts = {"auto": 12, "global": 1, 1: 1, (4, 1): 4}.get(
        pooling if isinstance(pooling, (str, int, tuple)) else "", 3
    )
    assert model.module_.sizes["readouts"] == readouts


def test_stride_padding_and_dilation_reach_the_module():
    model = ConvexCNNRegressor(stride=(2, 1), padding=1, dilation=(1, 2), pooling="global", **GATED).fit(
        IMAGES, TARGETS
    )
    layer = model.module_.hidden
    assert (layer.stride, layer.padding, layer.dilation) == ((2, 1), (1, 1), (1, 2))


@pytest.mark.parametrize(
    "loss", [name for name in LOSSES if name not in ("logistic", "softmax", "poisson", "quantile")] + ["log_loss"]
)
def test_every_loss(loss):
    model = ConvexCNNClassifier(loss=loss, n_gates=6, kernel_size=2, pooling="global", tol=1e-2).fit(IMAGES, LABELS)
    assert model.certificate_.relative_gap <= model.tol


@pytest.mark.parametrize("solver", ["burer_monteiro", "fista", "primal_dual", "interior_point", "kernel_admm"])
def test_every_solver_agrees(solver):
    settings = {"pooling": "global", "n_gates": 6, "kernel_size": 2, "beta": 0.5}
    best = ConvexCNNClassifier(tol=1e-6, **settings).fit(IMAGES, LABELS).certificate_
    other = ConvexCNNClassifier(solver=solver, tol=1e-3, **settings).fit(IMAGES, LABELS).certificate_
    assert other.relative_gap <= 1e-3
    assert best.dual <= other.primal <= best.primal * (1 + 2e-3)


def test_weights_are_repetitions():
    weight = np.arange(24) % 3
    settings = {"beta": 0.5, "kernel_size": 2, "n_gates": 6, "pooling": "global", "tol": 1e-7}
    weighted = ConvexCNNRegressor(**settings).fit(IMAGES, TARGETS, sample_weight=weight)
    repeated = ConvexCNNRegressor(**settings).fit(IMAGES.repeat(weight, 0), TARGETS.repeat(weight))
    assert weighted.certificate_.primal == pytest.approx(repeated.certificate_.primal, rel=3e-7)
    np.testing.assert_allclose(weighted.predict(IMAGES), repeated.predict(IMAGES), atol=2e-3)


def test_own_gates_and_warm_starts():
    gates = rng.standard_normal((8, 5))
    model = ConvexCNNRegressor(gates=gates, kernel_size=2, tol=1e-4, warm_start=True).fit(IMAGES, TARGETS)
    np.testing.assert_array_equal(model.architecture_.gates[:8].numpy(), gates)
    first = model.certificate_.primal
    model.fit(IMAGES, TARGETS)
    assert model.n_iter_ <= 2
    assert model.certificate_.primal <= first * (1 + 1e-12)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_models_are_saved_with_their_geometry(activation, tmp_path):
    X = SIGNALS[:, :1]
    model = ConvexCNNClassifier(
        activation=activation, kernel_size=2, padding=1, pooling=rng.standard_normal((2, 7)), tol=0.5
    )
    model.set_params(hidden_bias=False, image_shape=(1, 6)).fit(X, LABELS)
    model.save(str(tmp_path / "model.safetensors"))
    again = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    assert again.architecture_.convolution.kernel_size == (2,)
    assert again.get_params()["image_shape"] == (1, 6)


def test_onnx_takes_images(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    model = ConvexCNNClassifier(**GATED).fit(IMAGES, LABELS)
    model.to_onnx(str(tmp_path / "model.onnx"))
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    scores, label, probabilities = session.run(None, {"X": IMAGES})
    np.testing.assert_allclose(probabilities, model.predict_proba(IMAGES), atol=1e-9)
    np.testing.assert_allclose(scores, model.decision_function(IMAGES), atol=1e-9)
    np.testing.assert_array_equal(model.classes_[label], model.predict(IMAGES))


def test_paths_and_grid_search():
    model = ConvexCNNRegressor(image_shape=(2, 5, 4), kernel_size=2, n_gates=6)
    path = regularization_path(model, IMAGES, TARGETS, n_betas=4, ratio=1e-2)
    assert path.losses == sorted(path.losses, reverse=True)
    assert path.n_neurons[0] == 0
    pipeline = make_pipeline(StandardScaler(), model)
    search = GridSearchCV(pipeline, {"convexcnnregressor__kernel_size": [1, 2]}, cv=2)
    search.fit(IMAGES.reshape(24, -1), TARGETS)
    best = search.best_estimator_[-1].module_.hidden.kernel_size
    assert best == (search.best_params_["convexcnnregressor__kernel_size"],) * 2


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"kernel_size": 6}, "is smaller than a filter that spans 6"),
        ({"kernel_size": 3, "dilation": 3}, "is smaller than a filter that spans 7"),
        ({"pooling": 3}, "a pooling grid (3, 3) does not divide the (3, 2) map of patches"),
        ({"pooling": (1, 1, 1)}, "pooling must be one number, or one for each of the 2 dimensions"),
        ({"pooling": np.ones((2, 5))}, "a pooling matrix needs one column for each of the 6 patches"),
        ({"pooling": np.full((1, 6), np.nan)}, "a pooling matrix must be finite"),
        ({"pooling": "max"}, "pooling must be 'auto', 'global', a grid or a matrix, got 'max'"),
        ({"kernel_size": 0}, "kernel_size must be one whole number of at least 1"),
        ({"kernel_size": (2, 2, 2)}, "kernel_size must be one number, or one for each of the 2 dimensions"),
        ({"stride": 1.5}, "stride must be one whole number of at least 1"),
        ({"padding": -1}, "padding must be one whole number of at least 0"),
        ({"image_shape": (2, 5, 5)}, "image_shape=(2, 5, 5) does not fit images of shape (2, 5, 4)"),
        ({"image_shape": (2, -1, -1)}, "at most one of them -1"),
        ({"image_shape": 40}, "image_shape must be (channels, length) or (channels, height, width)"),
        ({"image_shape": (3, -1)}, "image_shape=(3, -1) does not fit"),
        ({"gates": np.ones((8, 4))}, "gates must have shape (numbers in a patch, P) with 18 rows"),
        ({"activation": "relu", "solver": "frank_wolfe"}, "solver must be 'auto' or one of ['column_generation']"),
    ],
)
def test_bad_parameters(parameters, words):
    model = ConvexCNNClassifier(**parameters)
    with pytest.raises(ValueError, match=r".") as caught:
        model.fit(IMAGES, LABELS)
    assert words in str(caught.value)
    assert not hasattr(model, "module_")


def test_bad_images():
    with pytest.raises(ValueError, match="image_shape does not say what images these numbers make"):
        ConvexCNNClassifier().fit(IMAGES.reshape(24, -1), LABELS)
    with pytest.raises(ValueError, match="all images must have one shape"):
        ConvexCNNClassifier().fit([*IMAGES[:3], IMAGES[3][:, :4]], LABELS[:4])
    with pytest.raises(ValueError, match="images must have shape"):
        ConvexCNNClassifier().fit(IMAGES[:, :, None], LABELS)
    model = ConvexCNNClassifier(**GATED).fit(IMAGES, LABELS)
    with pytest.raises(ValueError, match=r"trained on images of shape \(2, 5, 4\), got \(2, 4, 5\)"):
        model.predict(IMAGES.swapaxes(2, 3))
    with pytest.raises(ValueError, match="NaN"):
        model.predict(np.where(IMAGES > 2, np.nan, IMAGES))


def test_digits():
    """The accuracy and the certificate of the documentation, with fewer patterns."""
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X / 16, y, stratify=y, random_state=0)
    model = ConvexCNNClassifier(image_shape=(1, 8, 8), n_gates=30, tol=1e-2).fit(X_train, y_train)
    assert model.score(X_test, y_test) >= 0.97
    assert model.certificate_.relative_gap <= 1e-2


def module_objective(model, X, y):
    return objective(model, X, y[:, None], LOSSES["squared"]())


@pytest.mark.parametrize("bias", [False, True])
def test_gates_that_are_zero_on_flat_patches_are_on_for_everybody(bias):
    """Edge filters on flat images: who computes x g decides by rounding, unless ties are told apart from zero."""
    edges = rng.standard_normal((9, 12))
    edges -= edges.mean(0)
    flat = np.repeat(rng.standard_normal((30, 1)), 36, 1).reshape(30, 1, 6, 6) * 0.1
    flat[:, :, :, 3:] *= rng.integers(1, 3, (30, 1, 1, 1))
    y = rng.standard_normal(30)
    model = ConvexCNNRegressor(gates=edges, hidden_bias=bias, tol=1e-4).fit(flat, y)
    assert module_objective(model, flat, y) == pytest.approx(model.certificate_.primal, rel=1e-6)


def test_warm_starts_follow_changes_of_geometry():
    model = ConvexCNNRegressor(warm_start=True, **GATED).fit(IMAGES, TARGETS)
    model.set_params(stride=2, padding=1, pooling="global").fit(IMAGES, TARGETS)
    assert model.module_.hidden.stride == (2, 2)
    assert model.architecture_.convolution.pooling == ()
    model.set_params(pooling=(1, 1)).fit(IMAGES[:, :, :4], TARGETS)
    assert model.sample_shape_ == (2, 4, 4)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_images_of_zeros(activation):
    model = ConvexCNNRegressor(activation=activation, hidden_bias=False, kernel_size=2).fit(
        np.zeros((5, 1, 3, 3)), LABELS[:5]
    )
    np.testing.assert_allclose(model.predict(np.zeros((2, 1, 3, 3))), LABELS[:5].mean(), atol=1e-9)


def test_axes_in_another_order_are_not_reshaped():
    with pytest.raises(ValueError, match="in another order; move the axes first"):
        ConvexCNNClassifier(image_shape=(2, 5, 4)).fit(IMAGES.transpose(0, 2, 3, 1), LABELS)


def test_ragged_object_arrays_and_empty_predictions():
    ragged = np.empty(2, dtype=object)
    ragged[0], ragged[1] = IMAGES[0], IMAGES[1][:, :3]
    with pytest.raises(ValueError, match="all images must have one shape"):
        ConvexCNNClassifier().fit(ragged, [0, 1])
    model = ConvexCNNClassifier(kernel_size=np.array([2, 2]), n_gates=4).fit(IMAGES, LABELS)
    with pytest.raises(ValueError, match="minimum of 1 is required"):
        model.predict(IMAGES[:0])
