"""Torch's own weight decay, as beta: what torch minimises is what is certified."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bidual import certify

MODULES: dict[str, Callable[..., nn.Module]] = {
    "squared": nn.MSELoss,
    "absolute": nn.L1Loss,
    "huber": nn.HuberLoss,
    "softmax": nn.CrossEntropyLoss,
    "logistic": nn.BCEWithLogitsLoss,
    "poisson": nn.PoissonNLLLoss,
}
OPTIMIZERS: dict[str, Callable[[Any, str, float], torch.optim.Optimizer]] = {
    "sgd": lambda weights, reduction, decay: torch.optim.SGD(
        weights, lr=0.05 if reduction == "mean" else 0.005, momentum=0.95, weight_decay=decay
    ),
    "adam": lambda weights, reduction, decay: torch.optim.Adam(weights, lr=0.01, weight_decay=decay),
}
CASES = [("squared", 1), ("squared", 3), ("softmax", 3), ("huber", 2), ("logistic", 1), ("poisson", 2)]


def data(loss: str, outputs: int) -> tuple[Tensor, Tensor]:
    """Ten samples in a plane, and the targets that torch's loss takes."""
    generator = torch.Generator().manual_seed(3)
    X = torch.randn(10, 2, generator=generator, dtype=torch.float64)
    Y = torch.relu(X @ torch.tensor([[1.0, -0.5, 0.3], [0.4, 1.0, -0.7]]).double()[:, :outputs]) + 0.3
    if loss == "softmax":
        return X, Y.argmax(1)
    return X, (Y.median() < Y).double() if loss == "logistic" else Y


def any_network(outputs: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, outputs)).double()


def moved(better: nn.Module, seed: int) -> nn.Sequential:
    """A network whose weights are all off by a tenth."""
    generator = torch.Generator().manual_seed(seed)
    network = nn.Sequential(copy.deepcopy(better.hidden), nn.ReLU(), copy.deepcopy(better.output)).requires_grad_()
    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(1 + 0.1 * torch.randn(weight.shape, generator=generator, dtype=torch.float64))
    return network


def train(optimizer: torch.optim.Optimizer, objective: Callable[[], Tensor], steps: int = 400) -> None:
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        objective().backward()
        optimizer.step()
        rate.step()


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize(("loss", "outputs"), CASES)
def test_torch_reaches_the_optimum_that_is_certified(loss: str, outputs: int, reduction: str, optimizer: str) -> None:
    (X, Y), measure, decay = (
        data(loss, outputs),
        MODULES[loss](reduction=reduction),
        0.04 if reduction == "mean" else 0.4,
    )
    words: dict[str, Any] = {"loss": loss, "weight_decay": decay, "reduction": reduction, "optimizer": optimizer}

    def value(network: nn.Module) -> float:
        with torch.no_grad():
            return float(measure(network(X), Y) + 0.5 * decay * sum(w.square().sum() for w in network.parameters()))

    given = any_network(outputs)
    judged = certify(given, X, Y, **words, tol=1e-5)
    constant = float((torch.xlogy(Y, Y) - Y).sum()) if loss == "poisson" else 0.0
    least, network = judged.unit * judged.lower_bound, moved(judged.better, 0)
    assert judged.unit * (judged.objective - constant) == pytest.approx(value(given), rel=1e-9)
    assert value(network) + judged.unit * constant > 1.005 * least
    train(OPTIMIZERS[optimizer](network.parameters(), reduction, decay), lambda: measure(network(X), Y))
    assert least <= value(network) + judged.unit * constant <= least * (1 + 1e-4)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({}, "needs beta=, or the weight_decay="),
        ({"beta": 1.0, "weight_decay": 1.0}, "got both beta=1.0 and weight_decay=1.0"),
        ({"weight_decay": -1.0}, "weight_decay must be positive and finite, got -1.0"),
        ({"weight_decay": 0.0}, "weight_decay must be positive and finite, got 0.0"),
        ({"weight_decay": float("nan")}, "weight_decay must be positive and finite, got nan"),
        ({"weight_decay": "1e-4"}, "weight_decay must be positive and finite, got '1e-4'"),
        ({"weight_decay": 1.0, "reduction": "none"}, r"reduction must be one of \['mean', 'sum'\], got 'none'"),
        (
            {"weight_decay": 1.0, "optimizer": "lamb"},
            r"optimizer must be one of \['sgd', 'adam', 'adamw'\], got 'lamb'",
        ),
        ({"weight_decay": 1.0, "optimizer": "adamw"}, "minimises no objective .* name the beta"),
        ({"weight_decay": 1.0, "decayed_bias": "all"}, "decayed_bias must be True, False, 'hidden', 'output' or None"),
        ({"weight_decay": 1.0, "decayed_bias": 1}, "decayed_bias must be True, False, 'hidden', 'output' or None"),
        ({"beta": 1.0, "reduction": "mean"}, "beta is always beside a sum of losses"),
        ({"weight_decay": 1.0, "loss": "quantile"}, "torch has no quantile loss"),
        ({"weight_decay": 1.0, "loss": "squared_hinge"}, "torch has no squared_hinge loss"),
        ({"weight_decay": 1.0, "sample_weight": [1.0] * 10}, "the mean of weighted losses may be divided by"),
        ({"weight_decay": 1e308}, "the beta of weight_decay=1e[+]308 must be positive and finite, got inf"),
    ],
)
def test_words_that_make_no_sense_get_one_sentence(words: dict[str, Any], says: str) -> None:
    X, Y = data("logistic" if "hinge" in words.get("loss", "") else "squared", 1)
    with pytest.raises(ValueError, match=says):
        certify(any_network(1), X, Y[:, 0], **words)


def test_decoupled_decay_is_judged_at_the_beta_that_the_user_names() -> None:
    X, Y = data("squared", 1)
    named, plain = certify(any_network(1), X, Y, 0.3, optimizer="adamw"), certify(any_network(1), X, Y, 0.3)
    assert (named.beta, named.unit) == (0.3, 1.0)
    assert (named.objective, named.lower_bound) == (plain.objective, plain.lower_bound)


def test_class_weights_are_those_of_cross_entropy() -> None:
    """Whose mean divides by the sum of the samples' weights."""
    X, y = data("softmax", 3)
    weight = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)
    network = any_network(3)
    found = certify(network, X, y, loss="softmax", weight_decay=0.1, class_weight={0: 1.0, 1: 2.0, 2: 5.0})
    with torch.no_grad():
        value = nn.CrossEntropyLoss(weight)(network(X), y) + 0.05 * sum(w.square().sum() for w in network.parameters())
    assert found.unit * found.objective == pytest.approx(float(value), rel=1e-12)


@pytest.mark.parametrize("margin", ["hinge"])
def test_the_hinge_of_torch(margin: str) -> None:
    X, Y = data("logistic", 1)
    network, signs = any_network(1), 2 * Y - 1
    found = certify(network, X, Y[:, 0], loss=margin, weight_decay=0.1)
    with torch.no_grad():
        P = network(X)
        value = nn.MarginRankingLoss(margin=1.0)(P, torch.zeros_like(P), signs)
        value = value + 0.05 * sum(w.square().sum() for w in network.parameters())
    assert found.unit * found.objective == pytest.approx(float(value), rel=1e-12)


def test_targets_of_logits_are_those_of_torch_or_signs() -> None:
    X, Y = data("logistic", 3)
    words: dict[str, Any] = {"loss": "logistic", "weight_decay": 0.1}
    network = any_network(3)
    zeros, signs = certify(network, X, Y, **words), certify(network, X, 2 * Y - 1, **words)
    assert zeros.objective == signs.objective
    with torch.no_grad():
        value = nn.BCEWithLogitsLoss()(network(X), Y) + 0.05 * sum(w.square().sum() for w in network.parameters())
    assert zeros.unit * zeros.objective == pytest.approx(float(value), rel=1e-12)
