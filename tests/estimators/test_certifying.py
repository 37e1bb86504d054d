import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.neural_network import MLPClassifier, MLPRegressor
from torch import nn

from bidual import ConvexMLPClassifier, ConvexMLPRegressor, Scope, certify
from bidual.estimators.certifying import from_estimator


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2))
    return X, np.maximum(X @ rng.standard_normal((2, 3)), 0) @ rng.standard_normal(3) + 0.1 * rng.standard_normal(40)


def _network(hidden_bias: bool = False, output_bias: bool = False, outputs: int = 1) -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Linear(2, 8, bias=hidden_bias), nn.ReLU(), nn.Linear(8, outputs, bias=output_bias)
    return nn.Sequential(*layers).double()


@pytest.mark.parametrize("hidden_bias", [False, True])
@pytest.mark.parametrize("output_bias", [False, True])
def test_an_untrained_network_gets_its_own_objective_and_a_true_bound(data, hidden_bias, output_bias) -> None:
    X, y = data
    network = _network(hidden_bias, output_bias)
    found = certify(network, X, y, beta=0.5)
    parameters = [p for name, p in network.named_parameters() if name != "2.bias"]
    with torch.no_grad():
        fit = 0.5 * float((network(torch.tensor(X))[:, 0] - torch.tensor(y)).square().sum())
        decay = 0.25 * float(sum(p.square().sum() for p in parameters))
    assert found.objective == pytest.approx(fit + decay, rel=1e-12)
    assert found.certificate.scope is Scope.ALL_PATTERNS
    assert found.better is not None
    assert found.lower_bound <= found.better_objective < found.objective
    again = certify(found.better, X, y, beta=0.5)
    assert again.relative_gap <= 1e-4
    assert again.objective == pytest.approx(found.better_objective, rel=1e-9)


def test_an_optimal_network_gets_a_tiny_gap(data) -> None:
    X, y = data
    model = ConvexMLPRegressor(beta=0.5, tol=1e-6).fit(X, y)
    for thing in (model, model.module_):
        found = certify(thing, X, y, beta=0.5)
        assert found.relative_gap <= 1e-4
        assert found.objective == pytest.approx(model.certificate_.primal, rel=1e-9)


def test_another_beta_is_just_a_larger_gap(data) -> None:
    X, y = data
    model = ConvexMLPRegressor(beta=0.5, tol=1e-6).fit(X, y)
    found = certify(model, X, y, beta=5.0)
    assert 1e-3 < found.relative_gap < 1
    assert found.lower_bound <= found.better_objective < found.objective


def test_scikit_learn_networks(data) -> None:
    X, y = data
    regressor = MLPRegressor(hidden_layer_sizes=(6,), max_iter=50, random_state=0).fit(X, y)
    assert 0 < certify(regressor, X, y, beta=0.1).relative_gap < 1
    labels = np.where(y > np.median(y), "high", "low")
    classifier = MLPClassifier(hidden_layer_sizes=(6,), max_iter=50, random_state=0).fit(X, labels)
    found = certify(classifier, X, labels, beta=0.1, loss="log_loss")
    with torch.no_grad():
        margin = (
            np.where(labels == "low", 1, -1)
            * (
                np.maximum(X @ classifier.coefs_[0] + classifier.intercepts_[0], 0) @ classifier.coefs_[1]
                + classifier.intercepts_[1]
            )[:, 0]
        )
    squares = sum((w**2).sum() for w in (*classifier.coefs_, classifier.intercepts_[0]))
    assert found.objective == pytest.approx(np.log1p(np.exp(-margin)).sum() + 0.05 * squares, rel=1e-9)


def test_labels_become_one_hot_for_several_outputs(data) -> None:
    X, y = data
    labels = np.digitize(y, np.quantile(y, [0.33, 0.66]))
    by_label = certify(_network(outputs=3), X, labels, beta=0.5)
    by_number = certify(_network(outputs=3), X, np.eye(3)[labels], beta=0.5)
    assert by_label.objective == pytest.approx(by_number.objective, rel=1e-12)


@pytest.mark.parametrize(
    ("network", "change", "words"),
    [
        (nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)), {}, "Tanh"),
        (nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1)), {}, "Linear"),
        (_network(), {"X": np.zeros((40, 3))}, r"shape \(n, 2\)"),
        (_network(), {"X": np.full((40, 2), np.nan)}, "finite"),
        (_network(), {"y": np.zeros(39)}, "40 samples"),
        (_network(), {"y": np.zeros((40, 2))}, "outputs"),
        (_network(), {"beta": 0.0}, "beta must be positive"),
        (_network(), {"loss": "cubic"}, "loss must be"),
    ],
)
def test_bad_input_gets_one_clear_sentence(data, network, change, words) -> None:
    arguments = {"X": data[0], "y": data[1], "beta": 0.1} | change
    with pytest.raises(ValueError, match=words):
        certify(network.double(), **arguments)


def test_samples_of_rank_zero_leave_only_the_zero_network() -> None:
    found = certify(_network(), np.zeros((5, 2)), np.arange(5.0), beta=0.1)
    assert found.lower_bound == pytest.approx(0.5 * float((np.arange(5.0) ** 2).sum()))


def test_all_negative_features_without_bias_can_still_be_used_by_negative_weights() -> None:
    X = -np.abs(np.random.default_rng(0).standard_normal((20, 2)))
    model = ConvexMLPRegressor(beta=0.1, hidden_bias=False, fit_intercept=False, tol=1e-6).fit(X, X[:, 0])
    assert model.certificate_.relative_gap <= 1e-6
    assert model.score(X, X[:, 0]) > 0.9


@pytest.mark.parametrize(
    "wrong", [{"tol": 0.0}, {"tol": float("nan")}, {"n_starts": 0}, {"oracle": "foo"}, {"max_time": 0.0}], ids=str
)
def test_settings_out_of_range_are_refused_at_once(wrong: dict[str, Any]) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        certify(net, np.ones((4, 2)), np.ones(4), 0.1, **wrong)


def exact_objective(network: nn.Sequential, X: np.ndarray, y: np.ndarray, beta: float) -> Fraction:
    """Squared loss and weight decay in fractions."""
    hidden, output = (network[k] for k in (0, 2))
    U, W = ([[Fraction(x) for x in row] for row in layer.weight.tolist()] for layer in (hidden, output))
    a, b = ([Fraction(x) for x in layer.bias.tolist()] for layer in (hidden, output))
    total = Fraction(beta) / 2 * sum(x * x for row in (*U, *W, a) for x in row)
    for sample, target in zip(X.tolist(), y.tolist(), strict=True):
        features = [
            max(sum(Fraction(x) * u for x, u in zip(sample, row, strict=True)) + c, Fraction(0))
            for row, c in zip(U, a, strict=True)
        ]
        total += (sum(w * h for w, h in zip(W[0], features, strict=True)) + b[0] - Fraction(target)) ** 2 / 2
    return total


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scales", [(1.0, 1.0), (1e-30, 1e30), (1e-170, 1e150), (1e-170, 1e-170), (1e4, 1e-3)])
def test_the_objective_is_not_below_the_real_one(scales: tuple[float, float], dtype: torch.dtype) -> None:
    """Also where predictions cancel: neurons in pairs with output weights that nearly agree."""
    if dtype == torch.float32 and min(scales) < 1e-40:
        pytest.skip("no such numbers in single precision")
    for seed in range(4):
        torch.manual_seed(seed)
        network = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1)).to(dtype)
        with torch.no_grad():
            network[0].weight[4:], network[0].bias[4:] = network[0].weight[:4].clone(), network[0].bias[:4].clone()
            network[2].weight[:, 4:] = -network[2].weight[:, :4] * (1 + 1e-6)
            network[0].weight.mul_(scales[0])
            network[0].bias.mul_(scales[0])
            network[2].weight.mul_(scales[1])
        rng = np.random.default_rng(seed)
        X, y = rng.standard_normal((6, 2)), rng.standard_normal(6)
        found = certify(network, X, y, beta=1e-3, max_time=1.0)
        real = exact_objective(network, X, y, 1e-3)
        assert Fraction(found.objective) >= real
        assert found.objective <= float(real) * (1 + 1e-12)
        assert found.lower_bound <= found.better_objective <= found.objective
        if found.better is not None:
            better = nn.Sequential(found.better.hidden, nn.ReLU(), found.better.output)
            assert exact_objective(better, X, y, 1e-3) <= Fraction(found.better_objective)


def test_an_objective_beyond_all_numbers_is_infinite_and_the_gap_one() -> None:
    network = _network()
    with torch.no_grad():
        network[0].weight.mul_(1e200)
    found = certify(network, np.eye(2), np.ones(2), beta=0.1)
    assert (found.objective, found.relative_gap) == (np.inf, 1.0)
    assert found.better is not None
    assert found.lower_bound <= found.better_objective < 2


@pytest.fixture(scope="module")
def proved() -> tuple[ConvexMLPRegressor, np.ndarray, np.ndarray]:
    """A fit of rank 8, where nothing is exact, with more time than ``certify`` has here."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 8)), rng.standard_normal(60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ConvexMLPRegressor(beta=6.0, max_time=4.0, random_state=0).fit(X, y), X, y


def test_a_network_of_the_package_brings_its_own_proof(proved, tmp_path: Path) -> None:
    model, X, y = proved
    assert model.certificate_.witness is not None
    model.save(tmp_path / "model.safetensors")
    for network in (model, tmp_path / "model.safetensors"):
        found = certify(network, X, y, 6.0, max_time=0.3)
        assert found.lower_bound >= model.certificate_.dual * (1 - 1e-9)
        assert f"{found.certificate.relative_gap:.1e}" in found.status
    assert certify(model, X[:50], y[:50], 6.0, max_time=0.3).lower_bound > 0  # samples that the proof does not fit


def test_a_proof_can_be_given_and_nothing_else(proved) -> None:
    model, X, y = proved
    weights = from_estimator(model)
    for proof in (model.certificate_, certify(model, X, y, 6.0, max_time=0.3)):
        found = certify(weights, X, y, 6.0, max_time=0.3, proof=proof)
        assert found.lower_bound >= model.certificate_.dual * (1 - 1e-9)
    with pytest.raises(TypeError, match=r"proof must be a Certificate, such as model\.certificate_, got str"):
        certify(weights, X, y, 6.0, proof="model.safetensors")


def test_where_the_proof_suffices_no_other_is_looked_for(proved) -> None:
    model, X, y = proved
    enough = 2 * model.certificate_.relative_gap
    found = certify(model, X, y, 6.0, tol=enough)
    assert found.certificate.witness is model.certificate_.witness
    assert found.relative_gap <= enough


def test_an_estimator_is_judged_by_the_loss_it_was_trained_with() -> None:
    X = np.random.default_rng(0).standard_normal((20, 2))
    model = ConvexMLPClassifier(beta=1.0).fit(X, X[:, 0] > 0)  # by log loss
    own, squared = certify(model, X, X[:, 0] > 0, 1.0), certify(model, X, X[:, 0] > 0, 1.0, loss="squared")
    assert own.objective == pytest.approx(model.certificate_.primal, rel=1e-6)
    assert squared.objective != pytest.approx(own.objective, rel=1e-2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda X, y: (X + 1j, y), "X must be real, got complex numbers"),
        (lambda X, y: (X, y + 1j), "y must be real, got complex numbers"),
        (lambda X, y: (X[:0], y[:0]), r"y must have one row per sample, got shape \(0,\)"),
    ],
)
def test_samples_that_are_no_numbers_or_none(change: Callable[..., tuple[np.ndarray, np.ndarray]], words: str) -> None:
    mine = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    with pytest.raises(ValueError, match=words):
        certify(mine, *change(np.ones((4, 2)), np.ones(4)), beta=0.5)
