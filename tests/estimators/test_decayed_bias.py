"""Which biases are decayed, against convex programs over all neurons of one feature, by cvxpy."""

import cvxpy as cp
import numpy as np
import pytest
import torch
from sklearn.neural_network import MLPRegressor
from torch import nn

from bidual import certify
from bidual.io.foreign import sklearn_beta

WORDS = [(True, True), (False, False), ("hidden", True), ("hidden", False), ("output", True), ("output", False)]
DECAYED = {True: (True, True), False: (False, False), "hidden": (True, False), "output": (False, True)}


def samples(n: int = 9) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    x = np.sort(rng.standard_normal(n))
    return x, np.abs(x) + 0.3 * rng.standard_normal(n) + 1.0


def features(x: np.ndarray, decayed: bool) -> np.ndarray:
    """Of neurons that cost as much as their output weight.

    Where the bias is free, |w| = 1 and the slope of the dual is linear in b between samples, so that b = -w x_i is all
    that is needed. Elsewhere (w, b) of length one: two thousand angles, and those of kinks at samples.
    """
    if not decayed:
        return np.maximum(np.concatenate([x[:, None] - x, x - x[:, None]], 1), 0)
    kinks = np.arctan2(-x, 1)
    angles = np.concatenate([np.linspace(0, 2 * np.pi, 2_000, endpoint=False), kinks, kinks + np.pi])
    return np.maximum(np.outer(x, np.cos(angles)) + np.sin(angles), 0)


def by_cvxpy(x: np.ndarray, y: np.ndarray, beta: float, loss: str, decayed: tuple[bool, bool], bias: bool) -> float:
    A = features(x, decayed[0])
    a, b = cp.Variable(A.shape[1]), cp.Variable()
    f = A @ a + b
    values = {
        "squared": lambda: 0.5 * cp.sum_squares(f - y),
        "logistic": lambda: cp.sum(cp.logistic(-cp.multiply(y, f))),
        "absolute": lambda: cp.norm1(f - y),
        "hinge": lambda: cp.sum(cp.pos(1 - cp.multiply(y, f))),
    }
    free = not decayed[0] or (bias and not decayed[1])  # a neuron with w = 0 and a free bias is a free constant
    objective = values[loss]() + beta * cp.norm1(a) + (0 if free else 0.5 * beta * cp.square(b))
    cp.Problem(cp.Minimize(objective), [] if free or bias else [b == 0]).solve(solver=cp.CLARABEL)
    return float(objective.value)


def network(bias: bool, features: int = 1) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(features, 5), nn.ReLU(), nn.Linear(5, 1, bias=bias)).double()


@pytest.mark.parametrize("loss", ["squared", "logistic", "absolute", "hinge"])
@pytest.mark.parametrize(("word", "bias"), WORDS)
def test_the_optimum_is_that_of_cvxpy(word: bool | str, bias: bool, loss: str) -> None:
    x, y = samples()
    if loss in ("logistic", "hinge"):
        y = np.where(y > np.median(y), 1.0, -1.0)
    optimum = by_cvxpy(x, y, 0.2, loss, DECAYED[word], bias)
    found = certify(network(bias), x[:, None], y, 0.2, loss=loss, decayed_bias=word, tol=1e-5)
    assert found.lower_bound <= optimum * (1 + 1e-6)
    assert found.lower_bound >= optimum * (1 - 1e-4)
    assert found.better_objective == pytest.approx(optimum, rel=1e-3)


@pytest.mark.parametrize(("word", "bias"), WORDS)
def test_objectives_are_those_of_plain_torch(word: bool | str, bias: bool) -> None:
    x, y = samples()
    net = network(bias)
    found = certify(net, x[:, None], y, weight_decay=0.04, decayed_bias=word)
    assert found.better is not None
    for module, claimed in ((net, found.objective), (found.better, found.better_objective)):
        hidden, output = (module[0], module[2]) if isinstance(module, nn.Sequential) else (module.hidden, module.output)
        decayed = [hidden.weight, output.weight]
        decayed += [hidden.bias] if DECAYED[word][0] else []
        decayed += [output.bias] if DECAYED[word][1] and output.bias is not None else []
        with torch.no_grad():
            value = nn.MSELoss()(module(torch.tensor(x[:, None])), torch.tensor(y[:, None]))
            value = value + 0.02 * sum(weight.square().sum() for weight in decayed)
        assert found.unit * claimed == pytest.approx(float(value), rel=1e-10)


@pytest.mark.parametrize("wide", [0.5, 3.0, 30.0])
def test_any_column_bounds_free_biases_from_below(wide: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """By no less than its share of the weight decay, which is less than half of the objective."""
    x, y = samples()
    monkeypatch.setattr("bidual.estimators.certifying.free_bias._WIDE", wide)
    optimum = by_cvxpy(x, y, 0.2, "squared", (False, False), True)
    found = certify(network(True), x[:, None], y, 0.2, decayed_bias=False, tol=1e-6)
    assert found.lower_bound <= optimum * (1 + 1e-7)
    assert found.lower_bound >= optimum / np.sqrt(1 + wide**-2) * (1 - 1e-5)
    assert found.better_objective >= optimum * (1 - 1e-7)


def test_networks_of_scikit_learn_are_judged_at_their_own_loss() -> None:
    x, y = samples(30)
    mlp = MLPRegressor(
        hidden_layer_sizes=(8,), solver="lbfgs", alpha=1.0, max_iter=2000, random_state=0, tol=1e-10
    ).fit(x[:, None], y)
    found = certify(mlp, x[:, None], y, sklearn_beta(mlp, 30), decayed_bias=False)
    assert found.objective == pytest.approx(30 * mlp.loss_, rel=1e-9)
    assert found.lower_bound >= by_cvxpy(x, y, 1.0, "squared", (False, False), True) * (1 - 1e-4)


def test_more_freedom_costs_no_more() -> None:
    x, y = samples()
    bounds = {word: certify(network(True), x[:, None], y, 0.2, decayed_bias=word, tol=1e-6) for word in DECAYED}
    assert bounds[False].lower_bound <= bounds["hidden"].better_objective <= bounds[True].better_objective * (1 + 1e-6)
    assert bounds["output"].lower_bound == pytest.approx(bounds[False].lower_bound, rel=1e-4)
    assert bounds["hidden"].lower_bound < bounds[True].lower_bound * (1 - 1e-3)


@pytest.mark.parametrize("word", [False, "output", True])
def test_samples_that_are_all_zero_need_only_a_constant(word: bool | str) -> None:
    y = np.arange(5.0)
    found = certify(network(True, 2), np.zeros((5, 2)), y, 0.1, decayed_bias=word)
    spread = 0.5 * float(((y - y.mean()) ** 2).sum())
    assert found.lower_bound <= found.better_objective
    if word is True:
        assert found.lower_bound > spread
    else:
        assert found.lower_bound == pytest.approx(spread)
        assert found.better_objective == pytest.approx(spread)
