"""Parallel three-layer networks under the path norm: objectives by numpy, optima by the Lasso and by other widths."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import Lasso
from torch import Tensor, nn

from bidual import ConvexParallelRegressor, certify
from bidual.architectures.modules import ParallelNetwork


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((7, 2))
    return X, np.abs(X[:, 0]) - X[:, 1] + 0.1 * rng.standard_normal(7)


class Parallel(nn.Module):
    """Sub-networks of a user."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([part(x) for part in self.parts]).sum(0)


def sub_network(d: int, *widths: int, outputs: int = 1, bias: bool = False, middle: Any = None) -> nn.Sequential:
    first, second = widths
    layers = nn.Linear(d, first, bias=bias), nn.ReLU(), middle or nn.Linear(first, second, bias=False), nn.ReLU()
    return nn.Sequential(*layers, nn.Linear(second, outputs, bias=bias))


def parallel(d: int, *widths: int, count: int = 3, **settings: Any) -> Parallel:
    torch.manual_seed(1)
    return Parallel(*(sub_network(d, *widths, **settings) for _ in range(count))).double()


def path_norm(module: Parallel) -> float:
    """Path by path."""
    total = 0.0
    for part in module.parts:
        W, A, V = (part[k].weight.detach().numpy() for k in (0, 2, 4))
        if part[0].bias is not None:
            W = np.column_stack([W, part[0].bias.detach().numpy()])
        paths = [
            (W[j, i] * A[k, j] * V[c, k]) ** 2
            for i in range(W.shape[1])
            for j in range(len(W))
            for k in range(len(A))
            for c in range(len(V))
        ]
        total += float(np.sqrt(sum(paths)))
    return total


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("second", [1, 3])
def test_the_objective_is_that_of_paths_and_so_is_that_of_the_better_network(data, bias: bool, second: int) -> None:
    X, y = data
    module = parallel(2, 2, second, bias=bias)
    found = certify(module, X, y, 0.3)

    def objective(P: Tensor, price: float) -> float:
        return 0.5 * float(((P.detach().numpy()[:, 0] - y) ** 2).sum()) + 0.3 * price

    assert found.objective == pytest.approx(objective(module(torch.tensor(X)), path_norm(module)), rel=1e-9)
    better: Any = found.better
    assert [layer.shape[2] for layer in better.layers[:-1]] == [2, second]
    assert better.bias.any() <= bias
    W, A, V = (layer.detach().mT for layer in better.layers)
    parts = [sub_network(W.shape[2], 2, second).double() for _ in range(len(W))]
    for k, part in enumerate(parts):
        part.load_state_dict({"0.weight": W[k], "2.weight": A[k], "4.weight": V[k]})
    assert found.better_objective == pytest.approx(
        objective(better(torch.tensor(X)), path_norm(Parallel(*parts))), rel=1e-9
    )
    assert 0 < found.lower_bound <= found.better_objective < found.objective
    again = certify(better, X, y, 0.3)
    assert again.objective == pytest.approx(found.better_objective, rel=1e-9)


def test_more_units_above_are_a_smaller_beta(data) -> None:
    """m_2 units that are copies of one cost 1 / sqrt(m_2) of what they cost alone."""
    X, y = data
    narrow = certify(parallel(2, 2, 1), X, y, 0.3 / 2)
    wide = certify(parallel(2, 2, 4), X, y, 0.3)
    assert wide.lower_bound <= narrow.better_objective * (1 + 1e-9)
    assert narrow.lower_bound <= wide.better_objective * (1 + 1e-9)
    assert wide.better_objective == pytest.approx(narrow.better_objective, rel=1e-3)


def test_one_number_per_sample_leaves_a_lasso() -> None:
    """With m_1 = 1 a sub-network of one number is (x)_+ or (-x)_+ times its path norm."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((9, 1)), rng.standard_normal(9)
    A = np.maximum(np.column_stack([x, -x]), 0)
    model = Lasso(0.4 / 9, fit_intercept=False, tol=1e-12).fit(A, y)
    best = 0.5 * ((model.predict(A) - y) ** 2).sum() + 0.4 * np.abs(model.coef_).sum()
    found = certify(parallel(1, 1, 1), x, y, 0.4)
    assert found.lower_bound <= best * (1 + 1e-9)
    assert (found.lower_bound, found.better_objective) == pytest.approx((best, best), rel=1e-4)


def test_a_trained_network_gets_the_estimators_own_gap(data) -> None:
    X, y = data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ConvexParallelRegressor(widths=2, beta=0.3, hidden_bias=False).fit(X, y)
    for network in (model, model.module_):
        found = certify(network, X, y, 0.3)
        assert found.objective == pytest.approx(model.certificate_.primal, rel=1e-9)
        assert found.relative_gap <= model.certificate_.relative_gap + 1e-4


def test_a_trained_network_brings_its_own_proof() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((24, 4)), rng.standard_normal(24)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ConvexParallelRegressor(widths=2, beta=2.0).fit(X, y)
    assert model.certificate_.witness is not None
    found = certify(model, X, y, 2.0, max_time=0.1)
    assert found.lower_bound >= model.certificate_.dual * (1 - 1e-9)


def test_extreme_weights_leave_a_true_objective(data) -> None:
    X, y = data
    module = parallel(2, 2, 2)
    plain = certify(module, X, y, 0.3, max_time=0.2).objective
    with torch.no_grad():
        for part in module.parts:
            for place, power in ((0, -250), (2, -250), (4, 500)):
                part[place].weight.mul_(2.0**power)
    found = certify(module, X, y, 0.3, max_time=0.2)
    assert found.objective == pytest.approx(plain, rel=1e-9)


class Averaged(Parallel):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / len(self.parts)


def diverged(part: nn.Module) -> None:
    if isinstance(part, nn.Linear):
        with torch.no_grad():
            part.weight.fill_(torch.nan)


REFUSED: dict[str, tuple[nn.Module, dict[str, Any], str]] = {
    "average": (
        Averaged(*parallel(2, 3, 3).parts),
        {},
        "Averaged has the layers of a parallel ReLU network, but",
    ),
    "inner bias": (
        Parallel(sub_network(2, 2, 1, middle=nn.Linear(2, 1))),
        {},
        r"layer 'parts\.0\.2' is a Linear with a bias, which these networks do not have",
    ),
    "tanh": (
        Parallel(nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))),
        {},
        r"layer 'parts\.0\.1' is a Tanh where ReLU is expected",
    ),
    "other sizes": (
        Parallel(sub_network(2, 2, 1), sub_network(2, 3, 1)),
        {},
        r"sub-network 'parts\.1' has a Linear\(.*out_features=3.*and the first one",
    ),
    "deeper": (ParallelNetwork(2, [2, 2, 2], 1, 1), {}, "a parallel network of 4 layers cannot be certified here"),
    "weight decay": (parallel(2, 2, 1), {"weight_decay": 0.1}, "judged under the path norm, .*give beta"),
    "samples": (parallel(3, 2, 1), {"beta": 0.1}, r"X must have shape \(n, 3\)"),
    "diverged": (parallel(2, 2, 1).apply(diverged), {"beta": 0.1}, "first holds NaN or infinity"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_named(name: str, data) -> None:
    module, settings, words = REFUSED[name]
    with pytest.raises(ValueError, match=words) as caught:
        certify(module.double(), *data, **(settings or {"beta": 0.1}))
    assert "\n" not in str(caught.value)
