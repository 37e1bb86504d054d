"""Convolutional and attention networks: objectives by plain torch, optima of small cases by the Lasso."""

import warnings
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import torch
from sklearn.linear_model import Lasso
from torch import Tensor, nn
from torch.nn import functional as F

from bidual import ConvexAttentionRegressor, ConvexCNNRegressor, Scope, certify
from bidual.architectures.modules import ReluAttentionNetwork
from bidual.estimators.certifying.loading import load_network
from bidual.torch import finish


def images(*shape: int, n: int = 12) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n, *shape, generator=generator)
    return X, X.flatten(1)[:, 0].relu() + X.flatten(1)[:, -1]


def after_adam(module: nn.Sequential, X: Tensor, y: Tensor, beta: float, steps: int = 60) -> nn.Sequential:
    optimizer = torch.optim.Adam(module.parameters(), lr=2e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        plain_objective(module, X, y, beta).backward()
        optimizer.step()
    return module


def plain_objective(module: nn.Sequential, X: Tensor, y: Tensor, beta: float) -> Tensor:
    """Squared loss and weight decay of all parameters but the last layer's bias, by torch alone."""
    fit = 0.5 * (module(X)[:, 0] - y).square().sum()
    free = module[-1].bias
    return fit + 0.5 * beta * sum(part.square().sum() for part in module.parameters() if part is not free)


GEOMETRIES: dict[str, tuple[Any, tuple[nn.Module, ...], tuple[int, ...]]] = {
    "plain": (nn.Conv2d(1, 3, 2), (), (1, 3, 4)),
    "windows": (nn.Conv2d(2, 3, 2, padding=1, bias=False), (nn.AvgPool2d(2),), (2, 3, 3)),
    "global": (nn.Conv2d(1, 3, (1, 2), stride=2), (nn.AdaptiveAvgPool2d(1),), (1, 5, 5)),
    "overlapping": (nn.Conv2d(1, 3, 2, dilation=2), (nn.AvgPool2d(2, 1, padding=1),), (1, 5, 5)),
    "uneven": (nn.Conv2d(1, 3, 3, padding="same"), (nn.AdaptiveAvgPool2d((2, 3)), nn.AvgPool2d((1, 3))), (1, 5, 4)),
    "signals": (nn.Conv1d(2, 3, 2), (nn.AvgPool1d(2),), (2, 5)),
    "all signals": (nn.Conv1d(1, 3, 2, padding="valid"), (nn.AdaptiveAvgPool1d(1), nn.Dropout(0.5)), (1, 6)),
}


def cnn(name: str, bias: bool = True) -> tuple[nn.Sequential, Tensor, Tensor]:
    torch.manual_seed(0)
    conv, pools, shape = GEOMETRIES[name]
    X, y = images(*shape)
    first = nn.Sequential(conv, nn.ReLU(), *pools, nn.Flatten()).eval()
    return nn.Sequential(*first, nn.Linear(first(X).shape[1], 1, bias=bias)).eval(), X, y


@pytest.mark.parametrize("name", GEOMETRIES)
def test_a_cnn_after_adam_and_the_better_one_have_torchs_objectives_above_the_bound(name: str) -> None:
    module, X, y = cnn(name)
    after_adam(module, X, y, 0.5)
    found = certify(module, X, y, 0.5, max_time=0.2)
    assert found.certificate.scope is Scope.ALL_PATTERNS
    assert found.objective == pytest.approx(float(plain_objective(module, X, y, 0.5).detach()), rel=1e-5)
    assert 0 <= found.lower_bound <= found.better_objective < found.objective
    assert found.better is not None
    with torch.no_grad():
        better: Any = found.better
        decayed = better.hidden.weight, better.hidden.bias, better.output.weight
        objective = 0.5 * (better(X.double())[:, 0] - y).square().sum() + 0.25 * sum(p.square().sum() for p in decayed)
    assert found.better_objective == pytest.approx(float(objective), rel=1e-5)
    assert bool(better.hidden.bias.any()) <= (module[0].bias is not None)
    again = certify(better, X, y, 0.5, max_time=0.2)
    assert again.objective == pytest.approx(found.better_objective, rel=1e-9)


@pytest.mark.parametrize("bias", [False, True])
def test_a_filter_as_large_as_the_image_is_a_two_layer_network(bias: bool) -> None:
    """Of one flat image each: the same objective, and optima that each bound proves for the other."""
    torch.manual_seed(0)
    X, y = images(1, 1, 2)
    module = nn.Sequential(nn.Conv2d(1, 4, (1, 2), bias=bias), nn.ReLU(), nn.Flatten(), nn.Linear(4, 1, bias=bias))
    flat = nn.Sequential(nn.Linear(2, 4, bias=bias), nn.ReLU(), nn.Linear(4, 1, bias=bias))
    flat.load_state_dict(
        dict(
            zip(
                flat.state_dict(),
                (p.reshape_as(q) for p, q in zip(module.parameters(), flat.parameters(), strict=True)),
                strict=True,
            )
        )
    )
    one, other = certify(module, X, y, 0.3), certify(flat, X.flatten(1), y, 0.3)
    assert one.objective == pytest.approx(other.objective, rel=1e-9)
    assert one.better_objective == pytest.approx(other.better_objective, rel=2e-4)
    assert one.certificate.relative_gap <= 1e-4


def lasso(A: np.ndarray, y: np.ndarray, beta: float) -> float:
    """min 1/2 |A z - y|^2 + beta |z|_1 by coordinate descent."""
    model = Lasso(beta / len(y), fit_intercept=False, tol=1e-12, max_iter=100_000).fit(A, y)
    return 0.5 * float(((model.predict(A) - y) ** 2).sum()) + beta * float(np.abs(model.coef_).sum())


def test_single_pixels_leave_a_lasso() -> None:
    """(x u)_+ is |u| times (x)_+ or (-x)_+, so that only their averages over windows count."""
    X, y = images(1, 2, 4)
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(1, 3, 1, bias=False), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(6, 1, bias=False)
    )
    group = certify(
        nn.Sequential(module[0], nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 1, bias=False)),
        X,
        y,
        0.2,
    )
    A = np.stack([F.relu(sign * X.double()).mean((1, 2, 3)).numpy() for sign in (1, -1)], 1)
    best = lasso(A, y.double().numpy(), 0.2)
    assert group.lower_bound <= best * (1 + 1e-9)
    assert group.lower_bound == pytest.approx(best, rel=1e-4)
    assert group.better_objective == pytest.approx(best, rel=1e-4)


def test_tokens_of_one_number_leave_a_lasso() -> None:
    """(x_p U x_q)_+ x_q is |U| times one of two features, averaged over p and summed over q."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((12, 3, 1)), rng.standard_normal(12)
    module = ReluAttentionNetwork(1, 2, 1, average=1)
    with torch.no_grad():
        for part in (module.mixing, module.value):
            part.copy_(torch.tensor(rng.standard_normal(part.shape)))
    found = certify(module, X, y, 0.3)
    x = X[:, :, 0]
    A = np.stack([np.einsum("ipq,iq->i", np.maximum(s * x[:, :, None] * x[:, None], 0), x) / 3 for s in (1, -1)], 1)
    best = lasso(A, y, 0.3)
    assert found.lower_bound <= best * (1 + 1e-9)
    assert found.lower_bound == pytest.approx(best, rel=1e-4)
    assert found.better_objective == pytest.approx(best, rel=1e-4)
    scores = np.einsum("ipa,jab,iqb->jipq", X, module.mixing.detach().numpy(), X)
    P = np.einsum("jipq,iqa,jac->ic", np.maximum(scores, 0), X, module.value.detach().numpy())[:, 0] / 3
    decay = sum(float(part.square().sum()) for part in (module.mixing.detach(), module.value.detach()))
    assert found.objective == pytest.approx(0.5 * ((P - y) ** 2).sum() + 0.15 * decay, rel=1e-9)


def test_trained_attention_has_the_estimators_own_objective() -> None:
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((20, 3, 2)), rng.standard_normal(20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ConvexAttentionRegressor(activation="relu", token_shape=(3, 2), beta=1.0, max_time=1.0).fit(X, y)
    for network, samples in ((model, X.reshape(20, 6)), (model.module_, X)):
        found = certify(network, samples, y, 1.0, max_time=0.3)
        assert found.objective == pytest.approx(model.certificate_.primal, rel=1e-6)
        assert found.lower_bound <= model.certificate_.primal
        assert model.certificate_.dual <= found.better_objective * (1 + 1e-9)


def test_a_trained_cnn_gets_about_its_own_gap() -> None:
    X, y = images(1, 3, 3)
    model = ConvexCNNRegressor(
        activation="relu", image_shape=(1, 3, 3), kernel_size=2, pooling="global", hidden_bias=False, beta=0.2, tol=1e-3
    )
    model.fit(X.flatten(1).numpy(), y.numpy())
    for network, samples in ((model, X.flatten(1).numpy()), (model, X), (model.module_, X)):
        found = certify(network, samples, y, 0.2, tol=1e-3)
        assert found.objective == pytest.approx(model.certificate_.primal, rel=1e-6)
        assert found.relative_gap <= 2e-3


def test_batch_norm_is_folded_into_the_convolution() -> None:
    torch.manual_seed(0)
    X, y = images(2, 3, 3)
    norm = nn.BatchNorm2d(3)
    module = nn.Sequential(nn.Conv2d(2, 3, 2, bias=False), norm, nn.ReLU(), nn.Flatten(), nn.Linear(12, 1))
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2.0)
        norm.bias.normal_()
    for _ in range(20):
        module(X)
    found = certify(module.eval(), X, y, 0.4, max_time=0.2)
    with torch.no_grad():
        scale = norm.weight / (norm.running_var + norm.eps).sqrt()
        folded = module[0].weight * scale[:, None, None, None], norm.bias - norm.running_mean * scale, module[4].weight
        objective = 0.5 * (module(X)[:, 0] - y).square().sum() + 0.2 * sum(part.square().sum() for part in folded)
    assert found.objective == pytest.approx(float(objective), rel=1e-5)
    with pytest.raises(ValueError, match="BatchNorm2d '1' is in training mode"):
        certify(module.train(), X, y, 0.4)


@pytest.mark.parametrize("loss", ["squared", "log_loss"])
def test_the_weight_decay_of_torch_counts_all_biases(loss: str) -> None:
    """The objective is torch's own, and the optimum that of a two-layer network, whose images are their only patch."""
    torch.manual_seed(0)
    X, y = images(1, 1, 2)
    module = nn.Sequential(nn.Conv2d(1, 4, (1, 2)), nn.ReLU(), nn.Flatten(), nn.Linear(4, 1))
    flat = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    with torch.no_grad():
        for mine, other in zip(flat.parameters(), module.parameters(), strict=True):
            mine.copy_(other.reshape_as(mine))
    y = y if loss == "squared" else (y > 0).float()
    one, other = (certify(net, x, y, loss=loss, weight_decay=0.05) for net, x in ((module, X), (flat, X.flatten(1))))
    with torch.no_grad():
        mean = F.mse_loss if loss == "squared" else F.binary_cross_entropy_with_logits
        objective = mean(module(X)[:, 0], y) + 0.025 * sum(part.square().sum() for part in module.parameters())
    assert one.objective * one.unit == pytest.approx(float(objective), rel=1e-5)
    assert one.objective == pytest.approx(other.objective, rel=1e-6)
    assert one.better_objective == pytest.approx(other.better_objective, rel=2e-4)
    assert one.certificate.relative_gap <= 1e-4
    assert one.objective_of(one.better) == pytest.approx(one.better_objective, rel=1e-9)
    with pytest.raises(ValueError, match="a hidden bias that is not decayed"):
        certify(module, X, y, loss=loss, weight_decay=0.05, decayed_bias=False)


def test_attention_under_weight_decay_of_all_parameters() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((12, 3, 1)), 1 + rng.standard_normal(12)
    module = ReluAttentionNetwork(1, 2, 1, average=1)
    with torch.no_grad():
        for part in module.parameters():
            part.copy_(torch.tensor(rng.standard_normal(part.shape)))
    found = certify(module, X, y, weight_decay=0.4, reduction="sum", loss="squared")
    x = X[:, :, 0]
    A = np.stack([np.einsum("ipq,iq->i", np.maximum(s * x[:, :, None] * x[:, None], 0), x) / 3 for s in (1, -1)], 1)
    bias = cp.Variable()
    z = cp.Variable(2)
    best = cp.Problem(cp.Minimize(cp.sum_squares(A @ z + bias - y) + 0.4 * cp.norm1(z) + 0.2 * bias**2)).solve()
    assert found.lower_bound * found.unit == pytest.approx(best, rel=1e-4)
    assert found.better_objective * found.unit == pytest.approx(best, rel=1e-4)


@pytest.mark.parametrize("name", ["plain", "windows", "signals"])
def test_the_better_network_goes_into_the_users_own_module(name: str) -> None:
    """With filters to spare in place, and with more filters in a copy."""
    wide, X, y = cnn(name)
    found = certify(after_adam(wide, X, y, 1.0), X, y, 1.0, max_time=0.2)
    assert found.better is not None
    m = found.better.hidden.out_channels
    for width, load in ((m + 2, found.load_into), (1, partial(load_network, found.better, head=None, widen=True))):
        conv, linear = deepcopy(wide[0]), wide[-1]
        conv.out_channels, places = width, linear.in_features // wide[0].out_channels
        for part in conv._parameters:
            if conv._parameters[part] is not None:
                conv._parameters[part] = nn.Parameter(torch.ones(width, *conv._parameters[part].shape[1:]))
        module = nn.Sequential(conv, *wide[1:-1], nn.Linear(width * places, 1))
        load(model=module)
        with torch.no_grad():
            assert torch.allclose(module(X), found.better(X.double()).float(), atol=1e-5)
        assert float(plain_objective(module, X, y, 1.0).detach()) == pytest.approx(found.better_objective, rel=1e-5)
        assert found.objective_of(module) == pytest.approx(found.better_objective, rel=1e-5)


def test_finish_takes_a_convolutional_network() -> None:
    module, X, y = cnn("signals")
    done = finish(module, (X, y), beta=1.0, max_time=0.2)
    assert done.improved
    assert done.objective == pytest.approx(float(plain_objective(done.model, X, y, 1.0).detach()), rel=1e-5)
    assert done.objective < float(plain_objective(module, X, y, 1.0).detach())


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (
            ReluAttentionNetwork(2, 1, 1, average=1),
            "a self-attention network with ReLU scores cannot be changed in place",
        ),
        (nn.Sequential(nn.Conv2d(1, 1, 2), nn.BatchNorm2d(1), nn.ReLU(), nn.Flatten(), nn.Linear(4, 1)), "was folded"),
    ],
)
def test_finish_refuses_before_any_work_what_it_cannot_change(module: nn.Module, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        finish(module.eval(), ("no samples", "no targets"), beta=1.0)


def test_modules_that_the_better_network_does_not_fit_into_are_left_alone() -> None:
    module, X, y = cnn("plain")
    found = certify(module, X, y, 0.5, max_time=0.2)
    for other, words in (
        (nn.Sequential(nn.Conv2d(1, 3, 2, stride=2), *module[1:]), "the module's convolution has another geometry"),
        (nn.Sequential(nn.Conv2d(2, 3, 2), *module[1:]), "has 1 x 2 x 2 features and 1 outputs, your module 2 x 2 x 2"),
        (nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)), "a Sequential has no convolution; give the mod"),
    ):
        before = deepcopy(other.state_dict())
        with pytest.raises(ValueError, match=words):
            load_network(found.better, other, None, widen=True)
        assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())


class Functional(nn.Module):
    """ReLU, or another activation, and Flatten as function calls."""

    def __init__(self, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.conv, self.activation, self.fc = nn.Conv2d(1, 2, 2), activation, nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.activation(self.conv(x)).flatten(1))


def test_a_forward_of_its_own_is_compared_with_the_layers() -> None:
    X, y = images(1, 3, 3)
    module = Functional(F.relu)
    found = certify(module, X, y, 1.0, max_time=0.1)
    decayed = module.conv.weight, module.conv.bias, module.fc.weight
    with torch.no_grad():
        objective = 0.5 * (module(X)[:, 0] - y).square().sum() + 0.5 * sum(part.square().sum() for part in decayed)
    assert found.objective == pytest.approx(float(objective), rel=1e-5)
    with pytest.raises(ValueError, match="Functional has the layers of a convolutional network, but its forward"):
        certify(Functional(F.gelu), X, y, 1.0)


def layers(*between: nn.Module, conv: nn.Module | None = None, end: tuple[nn.Module, ...] = ()) -> nn.Sequential:
    return nn.Sequential(conv or nn.Conv2d(1, 2, 2), *between, nn.Linear(8, 1), *end)


FLAT = nn.ReLU(), nn.Flatten()
REFUSED: dict[str, tuple[nn.Module, str]] = {
    "max pooling": (layers(nn.ReLU(), nn.MaxPool2d(1), nn.Flatten()), "layer '2' is a MaxPool2d where Flatten is exp"),
    "tanh": (layers(nn.Tanh(), nn.Flatten()), "layer '1' is a Tanh where ReLU is expected"),
    "two convolutions": (
        layers(nn.ReLU(), nn.Conv2d(2, 2, 1), nn.ReLU(), nn.Flatten()),
        "layer '2' is a Conv2d.*head=",
    ),
    "more layers": (layers(*FLAT, end=(nn.ReLU(), nn.Linear(1, 1))), "layer '4' is a ReLU where the end is expected"),
    "nested": (layers(nn.Sequential(nn.ReLU(), nn.Softmax(1))), r"layer '1\.1' is a Softmax"),
    "no end": (nn.Sequential(nn.Conv2d(1, 2, 2), *FLAT), "the layers end where Linear is expected"),
    "groups": (layers(*FLAT, conv=nn.Conv2d(1, 2, 2, groups=1, padding_mode="circular")), "padding_mode='circular'"),
    "even kernel": (layers(*FLAT, conv=nn.Conv2d(1, 2, 2, padding="same")), "pads unevenly"),
    "some axes": (layers(nn.ReLU(), nn.Flatten(2)), "layer '2' is a Flatten of some axes only"),
    "lazy": (layers(*FLAT, conv=nn.LazyConv2d(2, 2)), "LazyConv2d that has seen no data"),
    "no statistics": (
        layers(nn.BatchNorm2d(2, track_running_stats=False), *FLAT).eval(),
        "BatchNorm2d '1' keeps no running statistics",
    ),
    "several channels": (layers(*FLAT, conv=nn.Conv2d(3, 2, 2)), "images of shape .* with 3 channels, got"),
    "another size": (layers(*FLAT, conv=nn.Conv2d(1, 2, 1)), "give 9 numbers per filter after pooling, and .* takes 4"),
    "odd filters": (layers(*FLAT, conv=nn.Conv2d(1, 3, 2)), "8 numbers, which is no multiple of the 3 filters"),
    "tokens": (ReluAttentionNetwork(2, 1, 1, average=0), r"average=1.*one per token"),
    "sequences": (ReluAttentionNetwork(2, 1, 1, average=1), r"sequences of shape \(n, tokens, 2\), got"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_named(name: str) -> None:
    module, words = REFUSED[name]
    X, y = images(1, 3, 3)
    with pytest.raises(ValueError, match=words) as caught:
        certify(module, X, y, 0.1)
    assert "\n" not in str(caught.value)


def test_weights_and_samples_must_be_numbers() -> None:
    module, X, y = cnn("plain")
    with pytest.raises(ValueError, match="X must be finite, got NaN or infinity; drop or impute those images"):
        certify(module, X * np.nan, y, 0.1)
    with torch.no_grad():
        module[0].weight[0] = torch.nan
    with pytest.raises(ValueError, match="filters holds NaN or infinity"):
        certify(module, X, y, 0.1)


class Clipped(nn.Sequential):
    """Something else than its layers, but only where the last samples are."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).clamp(-1e3, 1e3)


def test_a_forward_of_its_own_is_seen_at_the_last_samples_too() -> None:
    module, X, y = cnn("signals")
    many, targets = X.repeat(8, 1, 1), y.repeat(8)
    many[-1] *= 1e6
    with pytest.raises(ValueError, match="its forward computes something else"):
        certify(Clipped(*module, nn.Identity()), many, targets, 0.5, max_time=0.1)
