"""Heads of larger modules: judged like a two-layer network on the features that plain torch computes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import weight_norm

from bidual import certify


class Convolutional(nn.Module):
    """A small network on images with a head of two layers."""

    def __init__(self, end: Callable[[Tensor], Tensor] = lambda x: x, middle: nn.Module | None = None) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)
        self.fc1, self.drop, self.fc2 = nn.Linear(8, 6), middle or nn.Dropout(0.5), nn.Linear(6, 1)
        self.end = end

    def features(self, x: Tensor) -> Tensor:
        return nn.functional.avg_pool2d(torch.relu(self.norm(self.conv(x))), 2).flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        return self.end(self.fc2(self.drop(torch.relu(self.fc1(self.features(x))))))


def _trained(**settings: Any) -> Convolutional:
    """With running statistics and weights from a few steps of Adam, in evaluation mode."""
    torch.manual_seed(0)
    model, (X, y) = Convolutional(**settings), _data()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        optimizer.zero_grad()
        (model(X)[:, 0] - y).square().mean().backward()
        optimizer.step()
    return model.eval()


def _data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(30, 1, 6, 6, generator=generator)
    return X, X[:, 0, 2, 2] - X[:, 0, 3, 3].abs()


def test_the_head_is_judged_on_the_features_that_torch_computes() -> None:
    model, (X, y) = _trained(), _data()
    found = certify(model, X, y, 0.5, head=("fc1", "fc2"), max_time=0.1)
    with torch.no_grad():
        features = model.features(X)
        fit = 0.5 * float((model(X)[:, 0] - y).square().sum())
        decayed = model.fc1.weight, model.fc1.bias, model.fc2.weight
        decay = 0.25 * sum(float(part.square().sum()) for part in decayed)
    assert found.objective == pytest.approx(fit + decay, rel=1e-5)
    plain = certify(nn.Sequential(model.fc1, nn.ReLU(), model.fc2), features, y, 0.5, max_time=0.1)
    assert found.objective == pytest.approx(plain.objective, rel=1e-6)
    assert found.lower_bound <= plain.better_objective * (1 + 1e-6)
    assert plain.lower_bound <= found.better_objective * (1 + 1e-6)
    assert found.better is not None
    with torch.no_grad():
        better = 0.5 * float((found.better(features.double())[:, 0] - y).square().sum())
        parts = found.better.hidden.weight, found.better.hidden.bias, found.better.output.weight
        better += 0.25 * sum(float(part.square().sum()) for part in parts)
    assert found.better_objective == pytest.approx(better, rel=1e-6)


def test_modes_and_hooks_are_left_as_they_were() -> None:
    model, (X, y) = _trained(), _data()
    model.drop.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    certify(model, X.numpy(), y.numpy(), 5.0, head=("fc1", "fc2"), max_time=0.1)
    assert [part.training for part in (model, model.drop, model.norm)] == [False, True, False]
    assert not model.fc1._forward_pre_hooks
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_samples_without_weight_do_not_count() -> None:
    model, (X, y) = _trained(), _data()
    weight = np.r_[np.zeros(10), np.ones(20)]
    all_of_them = certify(model, X, y, 2.0, head=("fc1", "fc2"), sample_weight=weight, max_time=0.1)
    some = certify(model, X[10:], y[10:], 2.0, head=("fc1", "fc2"), max_time=0.1)
    assert all_of_them.objective == pytest.approx(some.objective, rel=1e-6)


class Embedding(nn.Module):
    """Whole numbers in, tokens within."""

    def __init__(self, mean: bool = True) -> None:
        super().__init__()
        self.table, self.mean = nn.Embedding(5, 3), mean
        self.body = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.table(x)
        return self.body(tokens.mean(1) if self.mean else tokens)[:, None if self.mean else 0].flatten(1)


def test_names_may_be_nested_and_samples_whole_numbers() -> None:
    torch.manual_seed(0)
    model, X = Embedding(), np.random.default_rng(0).integers(0, 5, (20, 4))
    found = certify(model, X, X[:, 0] > 2, 0.1, "log_loss", head=("body.0", "body.2"), max_time=0.2)
    with torch.no_grad():
        fit = float(
            nn.functional.cross_entropy(model(torch.tensor(X)), torch.tensor(X[:, 0] > 2).long(), reduction="sum")
        )
        decayed = [model.body[0].weight, model.body[0].bias, model.body[2].weight]
        decay = 0.05 * sum(float(part.square().sum()) for part in decayed)
    assert found.objective == pytest.approx(fit + decay, rel=1e-5)


class Repeated(Convolutional):
    def features(self, x: Tensor) -> Tensor:
        return self.fc1(super().features(x)).repeat(1, 2)[:, :8] + super().features(x)


class Random(Convolutional):
    def features(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(super().features(x), 0.5, training=True)


class Tied(nn.Module):
    """What is loaded into fc1 would change what fc1 sees."""

    def __init__(self) -> None:
        super().__init__()
        self.fc0, self.fc1, self.fc2 = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 1)
        self.fc1.weight = self.fc0.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.fc1(self.fc0(x.flatten(1))).relu())


class Normed(Tied):
    """What is loaded into fc1 would be gone at the next run."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = weight_norm(nn.Linear(64, 64))


REFUSED: dict[str, tuple[Callable[[], nn.Module], Any, str]] = {
    "misspelt": (Convolutional, ("fcl", "fc2"), "has no layer 'fcl'; did you mean 'fc[12]'"),
    "unlike any": (Convolutional, ("zzzzzz", "fc2"), "has no layer 'zzzzzz'; it has conv, norm, fc1"),
    "another kind": (Convolutional, ("conv", "fc2"), "'conv' is a Conv2d; name two Linear layers"),
    "one name": (Convolutional, "fc1", "head must be the names of two linear layers"),
    "wrong order": (Convolutional, ("fc2", "fc1"), "do not follow each other: 'fc2' has 1 outputs, 'fc1' takes 8"),
    "another end": (lambda: Convolutional(torch.sigmoid), ("fc1", "fc2"), "outputs of Convolutional are not those of"),
    "tanh between": (lambda: Convolutional(middle=nn.Tanh()), ("fc1", "fc2"), "with nothing but a ReLU and Dropout"),
    "twice": (Repeated, ("fc1", "fc2"), "must run 'fc1' once for a batch of samples, and runs it 2 times"),
    "by chance": (Random, ("fc1", "fc2"), "'fc1' sees changes from run to run in evaluation mode too"),
    "weights of two": (Tied, ("fc1", "fc2"), "uses one parameter as 'fc0.weight' and as 'fc1.weight'"),
    "weights made of others": (Normed, ("fc1", "fc2"), "Linear has a parameter 'weight_g'"),
    "two answers": (lambda: Convolutional(lambda x: (x, x)), ("fc1", "fc2"), "must return one tensor, got a tuple"),
}


@pytest.mark.filterwarnings("ignore:.*weight_norm")
@pytest.mark.parametrize("name", REFUSED)
def test_bad_heads_get_one_clear_sentence(name: str) -> None:
    make, head, words = REFUSED[name]
    torch.manual_seed(0)
    X, y = _data()
    with pytest.raises(ValueError, match=words) as caught:
        certify(make().eval(), X, y, 0.1, head=head)
    assert "\n" not in str(caught.value)


def test_a_layer_that_moves_between_modes_is_named() -> None:
    X, y = _data()
    with pytest.raises(ValueError, match=r"BatchNorm2d 'norm' is in training mode.*call model\.eval\(\)"):
        certify(Convolutional(), X, y, 0.1, head=("fc1", "fc2"))


def test_samples_that_do_not_fit() -> None:
    model, (X, y) = _trained(), _data()
    with pytest.raises(ValueError, match=r"cannot be run on X of shape \(n, \*\(6,\)\)"):
        certify(model, X[:, 0, 0], y, 0.1, head=("fc1", "fc2"))
    with pytest.raises(ValueError, match="X must be finite"):
        certify(model, X * np.nan, y, 0.1, head=("fc1", "fc2"))
    with pytest.raises(ValueError, match="one row per sample; pool or flatten"):
        certify(Embedding(mean=False), np.zeros((4, 3), int), np.arange(4) % 2, 0.1, head=("body.0", "body.2"))
    with pytest.raises(TypeError, match="head= names layers of a torch module, got a str"):
        certify("model.pt2", X, y, 0.1, head=("fc1", "fc2"))


def test_normalisation_inside_two_layers_is_folded_and_nothing_is_loaded_beside_it() -> None:
    torch.manual_seed(0)
    X, y = torch.randn(20, 2), torch.randn(20)
    norm = nn.BatchNorm1d(4)
    module = nn.Sequential(nn.Linear(2, 4, bias=False), norm, nn.ReLU(), nn.Linear(4, 1))
    for _ in range(20):
        module(X)
    found = certify(module.eval(), X, y, 0.3, max_time=0.5)
    with torch.no_grad():
        scale = norm.weight / (norm.running_var + norm.eps).sqrt()
        decayed = module[0].weight * scale[:, None], norm.bias - norm.running_mean * scale, module[3].weight
        objective = 0.5 * (module(X)[:, 0] - y).square().sum() + 0.15 * sum(part.square().sum() for part in decayed)
    assert found.objective == pytest.approx(float(objective), rel=1e-5)
    with pytest.raises(ValueError, match=r"BatchNorm1d '1' is folded.*; give beta"):
        certify(module, X, y, weight_decay=0.3)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    with pytest.raises(ValueError, match=r"BatchNorm1d '1' was folded into the layer beside it.*use result\.better"):
        found.load_into(module)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_layers_with_two_names_are_no_shared_parameters() -> None:
    model, (X, y) = _trained(), _data()
    objective = certify(model, X, y, 0.5, head=("fc1", "fc2"), max_time=0.1).objective
    model.head = nn.Sequential(model.fc1, nn.ReLU(), model.fc2)
    assert certify(model, X, y, 0.5, head=("fc1", "fc2"), max_time=0.1).objective == objective
