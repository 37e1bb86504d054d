"""Self-attention as estimators: what they take, what they return, what they refuse."""

import numpy as np
import pytest
import torch

from bidual import ConvexAttentionClassifier, ConvexAttentionRegressor, Scope, load
from bidual.losses import LOSSES

rng = np.random.default_rng(0)
SEQUENCES = rng.standard_normal((12, 4, 2))
LABELS = np.arange(12) % 3
TOKENS = SEQUENCES[:, ::-1] * np.abs(SEQUENCES)
SCALAR = SEQUENCES[:, :, 0].max(1)
SMALL = {"n_gates": 5, "tol": 1e-4}
ACTIVATIONS = {"linear": {}, "gated_relu": {"n_gates": 5}, "relu": {"tol": 1e-2}}


def objective(model, X, Y):
    with torch.no_grad():
        outputs = model.module_(torch.as_tensor(X)).reshape(len(Y), -1)
        decay = float(model.module_.mixing.square().sum() + model.module_.value.square().sum())
    return float(LOSSES["squared"]().value(outputs, torch.as_tensor(Y)).sum()) + model.beta_ * 0.5 * decay


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("output", ["tokens", "sequence"])
def test_the_module_has_the_certified_objective(activation, output):
    X, y = SEQUENCES[:6, :3], TOKENS[:6, :3] if output == "tokens" else SCALAR[:6, None]
    model = ConvexAttentionRegressor(activation=activation, **ACTIVATIONS[activation]).fit(X, y)
    assert model.certificate_.relative_gap <= model.tol
    Y = y.reshape(-1, 2) if output == "tokens" else y
    assert objective(model, X, Y) == pytest.approx(model.certificate_.primal, rel=1e-8)
    assert model.certificate_.scope is (Scope.ALL_PATTERNS if activation == "relu" else Scope.BLOCKS)
    assert model.predict(X).shape == y.shape


def test_flat_sequences_and_targets_are_the_same():
    flat = ConvexAttentionRegressor(token_shape=(4, 2), output="tokens", **SMALL)
    flat.fit(SEQUENCES.reshape(12, -1), TOKENS.reshape(12, -1))
    shaped = ConvexAttentionRegressor(**SMALL).fit(torch.tensor(SEQUENCES), torch.tensor(TOKENS.copy()))
    np.testing.assert_array_equal(flat.predict(SEQUENCES).reshape(12, 4, 2), shaped.predict(SEQUENCES))
    assert flat.predict(SEQUENCES).shape == (12, 8)
    assert shaped.score(SEQUENCES, TOKENS) == pytest.approx(flat.score(SEQUENCES, TOKENS.reshape(12, -1)))


def test_weights_are_repetitions_of_sequences():
    weight = np.arange(12) % 3
    settings = {"beta": 0.3, "n_gates": 4, "tol": 1e-7}
    weighted = ConvexAttentionRegressor(**settings).fit(SEQUENCES, TOKENS, sample_weight=weight)
    repeated = ConvexAttentionRegressor(**settings).fit(SEQUENCES.repeat(weight, 0), TOKENS.repeat(weight, 0))
    assert weighted.certificate_.primal == pytest.approx(repeated.certificate_.primal, rel=3e-7)


@pytest.mark.parametrize(
    "loss", [name for name in LOSSES if name not in ("logistic", "softmax", "poisson", "quantile")] + ["log_loss"]
)
def test_every_loss(loss):
    model = ConvexAttentionClassifier(loss=loss, n_gates=4, tol=1e-2).fit(SEQUENCES, LABELS)
    assert model.certificate_.relative_gap <= model.tol


@pytest.mark.parametrize("solver", ["burer_monteiro", "fista", "primal_dual", "interior_point", "kernel_admm"])
def test_every_solver_agrees(solver):
    settings = {"activation": "linear", "beta": 0.5}
    best = ConvexAttentionRegressor(tol=1e-6, **settings).fit(SEQUENCES, TOKENS).certificate_
    other = ConvexAttentionRegressor(solver=solver, tol=1e-3, **settings).fit(SEQUENCES, TOKENS).certificate_
    assert other.relative_gap <= 1e-3
    assert best.dual <= other.primal <= best.primal * (1 + 2e-3)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_models_are_saved(activation, tmp_path):
    model = ConvexAttentionRegressor(activation=activation, tol=0.5).fit(SEQUENCES, TOKENS)
    model.save(str(tmp_path / "model.safetensors"))
    again = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict(SEQUENCES), model.predict(SEQUENCES))
    assert again.certificate_.primal == model.certificate_.primal


def test_onnx_takes_sequences(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    model = ConvexAttentionRegressor(**SMALL).fit(SEQUENCES, TOKENS)
    model.to_onnx(str(tmp_path / "model.onnx"))
    predictions = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(None, {"X": SEQUENCES})[0]
    np.testing.assert_allclose(predictions, model.predict(SEQUENCES), atol=1e-9)


def test_attention_maps_are_of_the_heads():
    model = ConvexAttentionRegressor(**SMALL).fit(SEQUENCES, TOKENS)
    maps = model.module_.maps(torch.tensor(SEQUENCES)).detach()
    assert maps.shape == (12, len(model.module_.mixing), 4, 4)
    outputs = torch.einsum("nhpq,nqd,hdc->npc", maps, torch.tensor(SEQUENCES), model.module_.value) + model.module_.bias
    np.testing.assert_allclose(outputs.detach(), model.predict(SEQUENCES), atol=1e-10)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"token_shape": (3, 2)}, "token_shape=(3, 2) does not fit sequences of shape (4, 2)"),
        ({"token_shape": (4,)}, "token_shape must be (tokens, features)"),
        ({"output": "words"}, "output must be one of ['auto', 'sequence', 'tokens']"),
        ({"gates": np.ones((3, 2))}, "gates must have shape (features^2, P) with 4 rows"),
        ({"activation": "softmax"}, "activation must be one of"),
    ],
)
def test_bad_parameters(parameters, words):
    model = ConvexAttentionRegressor(**parameters)
    with pytest.raises(ValueError, match=r".") as caught:
        model.fit(SEQUENCES, TOKENS)
    assert words in str(caught.value)
    assert not hasattr(model, "module_")


def test_bad_sequences():
    with pytest.raises(ValueError, match="token_shape does not say what sequences these numbers make"):
        ConvexAttentionClassifier().fit(SEQUENCES.reshape(12, -1), LABELS)
    with pytest.raises(ValueError, match="all sequences must have one shape"):
        ConvexAttentionClassifier().fit([*SEQUENCES[:5], SEQUENCES[5][:3]], LABELS[:6])
    with pytest.raises(ValueError, match="one target for each of the 4 tokens"):
        ConvexAttentionRegressor().fit(SEQUENCES, TOKENS[:, :3])
    with pytest.raises(ValueError, match=r"y must have shape"):
        ConvexAttentionRegressor().fit(SEQUENCES, TOKENS[:, :, :, None])
    with pytest.raises(ValueError, match="inconsistent"):
        ConvexAttentionRegressor().fit(SEQUENCES, TOKENS[:5])


def test_gates_that_are_zero_on_pairs_of_equal_tokens():
    """Antisymmetric gates: x H x = 0 for every token with itself."""
    turn = np.array([[0.0, 1.0], [-1.0, 0.0]])
    model = ConvexAttentionRegressor(gates=np.stack([turn.ravel(), -turn.ravel()], 1), tol=1e-4).fit(SEQUENCES, TOKENS)
    assert objective(model, SEQUENCES, TOKENS.reshape(-1, 2)) == pytest.approx(model.certificate_.primal, rel=1e-6)


def test_warm_starts_follow_changes_of_output():
    model = ConvexAttentionRegressor(warm_start=True, **SMALL).fit(SEQUENCES, TOKENS)
    model.fit(SEQUENCES, SCALAR)
    assert model.predict(SEQUENCES).shape == (12,)
    assert model.architecture_.average


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_sequences_of_zeros(activation):
    model = ConvexAttentionRegressor(activation=activation).fit(np.zeros((4, 3, 2)), SCALAR[:4])
    np.testing.assert_allclose(model.predict(np.zeros((1, 3, 2))), SCALAR[:4].mean(), atol=1e-9)


@pytest.mark.parametrize("flat", [False, True])
def test_onnx_predictions_have_the_shape_of_targets(flat, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    y = TOKENS.reshape(12, -1) if flat else SCALAR
    model = ConvexAttentionRegressor(output="tokens" if flat else "sequence", **SMALL).fit(SEQUENCES, y)
    model.to_onnx(str(tmp_path / "model.onnx"))
    predictions = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(None, {"X": SEQUENCES})[0]
    assert predictions.shape == y.shape
    np.testing.assert_allclose(predictions, model.predict(SEQUENCES), atol=1e-9)
