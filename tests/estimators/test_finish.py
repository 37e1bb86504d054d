"""A trained network is taken to its optimum: judged by plain torch code that knows nothing of the package."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import bidual.torch
from bidual.torch import finish

LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {  # sums over samples, as torch has them
    "squared": lambda P, y: 0.5 * F.mse_loss(P[:, 0], y, reduction="sum"),
    "huber": lambda P, y: F.huber_loss(P[:, 0], y, reduction="sum", delta=1.0),
    "absolute": lambda P, y: F.l1_loss(P[:, 0], y, reduction="sum"),
    "logistic": lambda P, y: F.binary_cross_entropy_with_logits(P[:, 0], y, reduction="sum"),
    "log_loss": lambda P, y: F.cross_entropy(P, y, reduction="sum"),
}


class WithHead(nn.Module):
    """A frozen convolution and a head."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.conv, self.fc1, self.fc2 = nn.Conv1d(1, 2, 2), nn.Linear(4, width), nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(torch.relu(self.fc1(torch.relu(self.conv(x[:, None])).flatten(1))))


DECAYED = {None: (True, False), True: (True, True), False: (False, False), "output": (False, True)}  # hidden, output


def plain_objective(
    model: nn.Module, layers: list[nn.Linear], X: Tensor, y: Tensor, loss: str, beta: float, biases: bool | str | None
) -> float:
    """In float64: the weights as they are stored, the sum of losses and half of beta times squares."""
    with torch.no_grad():
        if isinstance(model, WithHead):
            X = torch.relu(model.conv(X[:, None])).flatten(1)
        parts = [(layer.weight.double(), None if layer.bias is None else layer.bias.double()) for layer in layers]
        P = F.linear(F.linear(X.double(), *parts[0]).relu(), *parts[1])
        counted = [part[1] for part, flag in zip(parts, DECAYED[biases], strict=True) if flag and part[1] is not None]
        decayed = [parts[0][0], parts[1][0], *counted]
        target = y if loss == "log_loss" else y.double()
        return float(LOSSES[loss](P, target) + 0.5 * beta * sum(part.square().sum() for part in decayed))


def a_case(seed: int) -> tuple[nn.Module, list[str], Tensor, Tensor, str, float]:
    """Architecture, precision, biases, loss, data and weight decay at random; partly trained by Adam."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    loss = list(LOSSES)[seed % len(LOSSES)]
    outputs = 3 if loss == "log_loss" else 1
    width, n = int(rng.integers(1, 9)), int(rng.integers(6, 16))
    dtype = torch.float32 if rng.random() < 0.5 else torch.float64
    X = torch.randn(n, 3, dtype=dtype)
    score = X[:, 0].abs() - X[:, 1] + 0.3 * torch.randn(n, dtype=dtype)
    labels = (score > score.median()).long() + (score > score.quantile(0.8)).long() * (outputs == 3)
    y = labels if loss == "log_loss" else labels.to(dtype) if loss == "logistic" else score
    bias = [bool(flag) for flag in rng.random(2) < 0.6]
    if seed % 4 == 0:
        model, names = WithHead(width, outputs), ["fc1", "fc2"]
    else:
        model = nn.Sequential(nn.Linear(3, width, bias[0]), nn.ReLU(), nn.Linear(width, outputs, bias[1]))
        names = ["0", "2"]
    model, beta = model.to(dtype), float(10 ** rng.uniform(-2.5, 0.5))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(int(rng.integers(0, 60))):
        optimiser.zero_grad()
        layers = [model.get_submodule(name) for name in names]
        decay = sum(layer.weight.square().sum() for layer in layers)
        (LOSSES[loss](model(X), y) + 0.5 * beta * decay).backward()
        optimiser.step()
    return model, names, X, y, loss, beta


@pytest.mark.parametrize("seed", range(50))
def test_no_network_is_made_worse(seed: int) -> None:
    model, names, X, y, loss, beta = a_case(seed)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    head = tuple(names) if isinstance(model, WithHead) else None
    biases = list(DECAYED)[seed // len(LOSSES) % len(DECAYED)]
    done = finish(model, (X, y), beta=beta, head=head, loss=loss, max_time=0.3, decayed_bias=biases)
    old, new = (
        plain_objective(one, [one.get_submodule(name) for name in names], X, y, loss, beta, biases)
        for one in (model, done.model)
    )
    assert new < old if done.improved else new == old
    assert done.objective == pytest.approx(new, rel=1e-6)
    assert done.certificate.objective == pytest.approx(old, rel=1e-6)
    assert done.certificate.lower_bound <= new * (1 + 1e-12)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert list(done.model.state_dict()) == list(before)
    assert {value.dtype for value in done.model.state_dict().values()} == {X.dtype}
    if isinstance(model, WithHead):
        assert torch.equal(done.model.conv.weight, model.conv.weight)


def planar(dtype: torch.dtype = torch.float32) -> tuple[nn.Sequential, Tensor, Tensor]:
    torch.manual_seed(0)
    X = torch.randn(16, 2, dtype=dtype)
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)).to(dtype)
    return model, X, X[:, 0].abs() - X[:, 1]


def test_a_network_in_the_plane_becomes_optimal() -> None:
    model, X, y = planar()
    model[2].weight.requires_grad_(False)
    done = finish(model.train(), (X, y), beta=0.3)
    assert done.improved
    assert done.model is not model
    assert done.relative_gap <= 1e-3
    assert done.relative_gap == pytest.approx(1 - done.certificate.lower_bound / done.objective, rel=1e-9)
    assert done.verdict.startswith("Your network can be improved by")
    width = done.model[0].out_features
    assert width == done.model[2].in_features == len(done.model[0].bias) > 2
    assert done.model.training
    assert [p.requires_grad for p in done.model.parameters()] == [True, True, False, True]
    optimiser = torch.optim.LBFGS(done.model[:1].parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        squares = sum(value.square().sum() for name, value in done.model.named_parameters() if name != "2.bias")
        value = 0.5 * (done.model(X)[:, 0] - y).square().sum() + 0.15 * squares
        value.backward()
        return value

    optimiser.step(closure)
    assert closure().item() >= done.certificate.lower_bound


@pytest.mark.parametrize(("loss", "biases"), [("squared", True), ("absolute", None), ("logistic", False)])
def test_the_width_is_kept_if_asked(loss: str, biases: bool | None) -> None:
    """Never worse than the given network, and never wider; better than Adam that goes on from it."""
    model, X, y = planar(torch.float64)
    target = (y > 0).double() if loss == "logistic" else y
    settings = {"beta": 0.2, "loss": loss, "max_time": 0.5, "decayed_bias": biases}
    done = finish(model, (X, target), widen=False, **settings)
    wide = finish(model, (X, target), **settings)
    assert done.width == len(done.model[0].weight) == 2 < wide.width
    old, new, best = (
        plain_objective(one, [one[0], one[2]], X, target, loss, 0.2, biases) for one in (model, done.model, wide.model)
    )
    assert done.improved
    assert best * (1 - 1e-9) <= new < old
    assert done.objective == pytest.approx(new, rel=1e-9)
    assert f"{new:.6g} instead of {old:.6g} was found (2 neurons in your model, by training on" in done.verdict
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(300):
        optimiser.zero_grad()
        flags = dict(zip(("0.bias", "2.bias"), DECAYED[biases], strict=True))
        decay = sum(value.square().sum() for name, value in model.named_parameters() if flags.get(name, True))
        (LOSSES[loss](model(X), target) + 0.1 * decay).backward()
        optimiser.step()
    assert new <= 1.001 * plain_objective(model, [model[0], model[2]], X, target, loss, 0.2, biases)


def test_the_number_of_filters_is_kept_if_asked() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4, 1)).double()
    X = torch.randn(15, 1, 4, dtype=torch.float64)
    y = X[:, 0, 0].abs() - X[:, 0, 3] * X[:, 0, 2]
    done = finish(model, (X, y), beta=0.1, widen=False, max_time=0.5)
    assert done.improved
    assert done.width == done.model[0].out_channels == 2
    with torch.no_grad():
        squares = sum(value.square().sum() for name, value in done.model.named_parameters() if name != "3.bias")
        objective = float(0.5 * (done.model(X)[:, 0] - y).square().sum() + 0.05 * squares)
    assert done.objective == pytest.approx(objective, rel=1e-9)
    assert done.certificate.lower_bound <= objective < done.certificate.objective
    assert "(2 filters in your model, by training on from yours" in done.verdict


def test_finished_again_it_stays() -> None:
    model, X, y = planar(torch.float64)
    first = finish(model, (X, y), beta=0.3)
    again = finish(first.model, (X, y), beta=0.3)
    assert again.relative_gap <= 1e-4
    assert again.objective <= first.objective * (1 + 1e-12)


def test_a_loader_is_its_samples() -> None:
    model, X, y = planar()
    loader = DataLoader(TensorDataset(X, y[:, None]), batch_size=7, shuffle=True)
    batches = [(X[:10], y[:10]), (X[10:], y[10:])]
    first, *others = (finish(model, data, beta=0.3).objective for data in ((X, y), loader, batches))
    assert others == pytest.approx([first, first], rel=1e-3)
    column = finish(model, (X.numpy(), y[:, None].numpy()), beta=0.3).objective
    assert column == pytest.approx(first, rel=1e-3)


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (DataLoader(TensorDataset(torch.ones(9, 2), torch.ones(9)), 4, drop_last=True), ValueError, "drop_last=False"),
        (DataLoader(TensorDataset(torch.ones(9, 2)), 4), ValueError, "a batch must be a pair of tensors"),
        ([{"x": torch.ones(3)}], ValueError, "a batch must be a pair of tensors .* got dict"),
        ([(torch.ones(3, 2), torch.ones(2))], ValueError, "a batch has 3 inputs and targets of shape"),
        ([], ValueError, "the loader has no samples"),
        ((torch.ones(3, 2),), ValueError, "a tuple of 1"),
        (3, TypeError, "must be a loader of pairs or a tuple .* got a int"),
    ],
)
def test_bad_data(data: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        finish(planar()[0], data, beta=0.3)


def test_bad_models() -> None:
    model, X, y = planar()
    deep = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    with pytest.raises(ValueError, match="not a two-layer ReLU network"):
        finish(deep, ("no samples", "no targets"), beta=0.3)
    with pytest.raises(TypeError, match="takes a torch module, got a dict"):
        finish({}, (X, y), beta=0.3)
    with pytest.raises(ValueError, match="no layer 'fc'"):
        finish(model, (X, y), beta=0.3, head=("fc", "2"))
    with torch.no_grad():
        model[0].weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match="NaN or infinity"):
        finish(model, (X, y), beta=0.3)


def test_the_name() -> None:
    """`bidual.torch` is a room beside torch itself."""
    assert bidual.torch.finish is finish
    assert torch.__name__ == "torch"


@pytest.mark.parametrize("axes", [(1, 1, 2), (2, 1)])
def test_images_before_a_flatten_are_rows(axes: tuple[int, ...]) -> None:
    plain, X, y = planar()
    done = finish(nn.Sequential(nn.Flatten(), *plain), (X.unflatten(1, axes), y), beta=0.3)
    assert done.certificate.objective == finish(plain, (X, y), beta=0.3).certificate.objective
    with pytest.raises(ValueError, match="cannot be run on samples of shape"):
        finish(plain, (X.unflatten(1, (2, 1)), y), beta=0.3)
