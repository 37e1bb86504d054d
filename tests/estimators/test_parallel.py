"""Parallel networks as estimators: what they return, keep and refuse."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from bidual import ConvexParallelClassifier, ConvexParallelRegressor, Scope, load, regularization_path
from bidual.architectures.modules import GatedParallelNetwork, ParallelNetwork
from bidual.papers.methods.path_norm import path_norm_of

rng = np.random.default_rng(0)
X = rng.standard_normal((9, 1))
Y = np.maximum(1 - np.abs(X[:, 0]), 0)
PLANE = rng.standard_normal((30, 2))
LABELS = (np.abs(PLANE).sum(1) > 1.4).astype(int)
GATED = {"activation": "gated_relu", "n_subnetworks": 8, "widths": 3}


@pytest.mark.parametrize(("settings", "scope"), [({"widths": 2}, Scope.ALL_PATTERNS), (GATED, Scope.BLOCKS)])
def test_the_module_has_the_certified_objective(settings, scope):
    model = ConvexParallelRegressor(beta=0.05, tol=1e-4, **settings).fit(X, Y)
    with torch.no_grad():
        loss = 0.5 * float((model.module_(torch.tensor(X))[:, 0] - torch.tensor(Y)).square().sum())
    if scope is Scope.ALL_PATTERNS:
        assert isinstance(model.module_, ParallelNetwork)
        price = float(path_norm_of(model.module_).detach())
    else:
        assert isinstance(model.module_, GatedParallelNetwork)
        price = model.architecture_.regulariser(model.module_)
    assert loss + 0.05 * price == pytest.approx(model.certificate_.primal, rel=1e-7)
    assert model.certificate_.relative_gap <= 1e-4
    assert model.certificate_.scope is scope
    assert model.n_neurons_ >= 1


def test_more_layers_and_classes():
    labels = LABELS + (PLANE[:, 0] > 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = ConvexParallelClassifier(widths=(2, 2), oracle="search", n_starts=32).fit(PLANE, labels)
    assert model.module_.sizes["widths"] == [4, 2, 1]
    assert model.decision_function(PLANE).shape == (30, 3)
    assert model.score(PLANE, labels) > 0.6


@pytest.mark.parametrize("settings", [{"widths": 2}, {"widths": (2, 2)}, GATED])
def test_saved_models_are_the_same(settings, tmp_path):
    model = ConvexParallelRegressor(beta=0.3, tol=0.3, **settings).fit(X, Y)
    model.save(tmp_path / "model.safetensors")
    same = load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(same.predict(X), model.predict(X), rtol=1e-12)
    assert same.certificate_.primal == model.certificate_.primal


@pytest.mark.parametrize("settings", [{"widths": 2}, GATED])
def test_onnx_takes_any_number_of_rows(settings, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    model = ConvexParallelRegressor(beta=0.3, tol=0.3, **settings).fit(X, Y)
    model.to_onnx(tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    name = session.get_inputs()[0].name
    for rows in (1, 9):
        outputs = session.run(None, {name: X[:rows].astype(np.float64)})[0]
        np.testing.assert_allclose(outputs.ravel(), model.predict(X[:rows]), rtol=1e-5, atol=1e-6)


def test_a_large_beta_gives_the_zero_network():
    model = ConvexParallelRegressor(beta=1e4, widths=2).fit(X, Y)
    np.testing.assert_allclose(model.predict(X), Y.mean(), rtol=1e-6)
    assert model.n_neurons_ == 0


def test_weights_are_repetitions():
    weight = np.array([1, 2, 1, 1, 3, 1, 1, 1, 2])
    settings = {"beta": 0.2, "tol": 1e-6, **GATED}
    weighted = ConvexParallelRegressor(**settings).fit(X, Y, sample_weight=weight)
    repeated = ConvexParallelRegressor(**settings).fit(X.repeat(weight, 0), Y.repeat(weight))
    assert weighted.certificate_.primal == pytest.approx(repeated.certificate_.primal, rel=1e-5)


def test_paths_grids_and_warm_starts():
    path = regularization_path(ConvexParallelRegressor(tol=1e-3, **GATED), X, Y, n_betas=3)
    assert len(path.betas) == 3
    search = GridSearchCV(ConvexParallelClassifier(**GATED), {"beta": [0.1, 1.0]}, cv=2).fit(PLANE, LABELS)
    assert search.best_params_["beta"] in (0.1, 1.0)
    warm = ConvexParallelRegressor(warm_start=True, tol=1e-4, **GATED).fit(X, Y)
    gates = warm.architecture_.gates
    assert warm.fit(X, Y).architecture_.gates is gates
    assert warm.set_params(random_state=1).fit(X, Y).architecture_.gates is not gates


def test_seeds_decide_the_gates_and_nothing_else():
    one, same, other = (ConvexParallelRegressor(random_state=seed, **GATED).fit(X, Y).predict(X) for seed in (0, 0, 5))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"widths": 0}, "widths must be a positive whole number or several"),
        ({"widths": (3, 1.5)}, "widths must be a positive whole number or several"),
        ({"activation": "tanh"}, "activation must be one of"),
        ({"activation": "gated_relu", "widths": (2, 2)}, "is for three layers, one width"),
        ({"activation": "gated_relu", "n_subnetworks": "many"}, "n_subnetworks must be 'auto' or a positive whole"),
        (
            {"activation": "gated_relu", "oracle": "exact"},
            "oracle is for activation='relu', got activation='gated_relu'",
        ),
        ({"n_subnetworks": 4}, "n_subnetworks is for activation='gated_relu', got activation='relu'"),
        ({"n_starts": 0}, "n_starts must be 'auto' or a positive whole number, got 0"),
        ({"oracle": "all"}, "oracle must be one of"),
        ({"beta": 0}, "beta must be 'auto' or a positive finite number, got 0"),
        ({"solver": "fista"}, "solver must be 'auto' or one of"),
        ({"tol": 2}, "tol must be between 0 and 1"),
        ({"oracle": "exact", "widths": 6}, r"enumerates 2\^30 second-layer patterns times .* choices of 6 first-layer"),
    ],
)
def test_refusals_come_before_any_work(parameters, words):
    model = ConvexParallelClassifier(**parameters)
    with pytest.raises(ValueError, match=words):
        model.fit(PLANE, LABELS)
    assert not hasattr(model, "module_")
