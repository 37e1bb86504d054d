from itertools import product

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm

from bidual.architectures.modules import GatedNetwork, LinearNetwork
from bidual.estimators.certifying import read_network
from bidual.estimators.mlp import ConvexMLPRegressor
from bidual.io.foreign import from_module
from helpers.foreign_tools import Functional, agrees, network, own, randomise


@pytest.mark.parametrize(("bias", "output_bias"), list(product([True, False], repeat=2)))
def test_sequential(bias: bool, output_bias: bool) -> None:
    module = network(bias, output_bias)
    weights = from_module(module)
    assert (weights.hidden_bias is None, weights.output_bias is None) == (not bias, not output_bias)
    assert agrees(weights, module)


class Residual(Functional):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + x[:, :2]


def layers(*middle: nn.Module, end: tuple[nn.Module, ...] = (), outputs: int = 2) -> nn.Sequential:
    return randomise(nn.Sequential(nn.Linear(3, 5), *middle, nn.Linear(5, outputs), *end)).double()


class Gain(Functional):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.gain * super().forward(x)


def tied() -> nn.Module:
    module = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    module[2].weight = module[0].weight
    return module


def spectral() -> nn.Module:
    module = layers(nn.ReLU())
    spectral_norm(module[0])
    return module.eval()


ACCEPTED: dict[str, nn.Module] = {
    "nested": nn.Sequential(nn.Sequential(nn.Linear(3, 5), nn.ReLU(inplace=True)), nn.Sequential(nn.Linear(5, 2))),
    "harmless": nn.Sequential(nn.Flatten(), nn.Identity(), *layers(nn.ReLU(), nn.Dropout(0.5))),
    "empty part": layers(nn.ReLU(), nn.Sequential()),
    "flat output": layers(nn.ReLU(), end=(nn.Flatten(0),), outputs=1),
    "functional": Functional(),
    "child": Functional(nn.ReLU()),
    "own": own(),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_other_forms(name: str) -> None:
    module = ACCEPTED[name].double().eval()
    assert agrees(from_module(module), module)


def test_the_mode_of_every_part_is_kept() -> None:
    module = layers(nn.ReLU(), nn.Dropout(0.5)).train()
    module[1].eval()
    from_module(module)
    assert [part.training for part in module] == [True, False, True, True]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_precisions(dtype: torch.dtype) -> None:
    module = network(dtype=dtype)
    assert agrees(from_module(module), module.double())


REFUSED: dict[str, tuple[nn.Module, str]] = {
    "three layers": (
        layers(nn.ReLU(), nn.Linear(5, 5), nn.ReLU()),
        r"found Linear\(3, 5\), ReLU, Linear\(5, 5\), ReLU",
    ),
    "one layer": (nn.Sequential(nn.Linear(3, 2)), r"found Linear\(3, 2\)\."),
    "bare layer": (nn.Linear(3, 2), r"found Linear\(3, 2\)\."),
    "nothing": (nn.Sequential(), "no layer at all"),
    "no relu": (layers(), r"found Linear\(3, 5\), Linear\(5, 2\)"),
    "tanh": (layers(nn.Tanh()), "Tanh"),
    "gelu": (layers(nn.GELU()), "GELU"),
    "leaky": (layers(nn.LeakyReLU()), "LeakyReLU"),
    "batch norm": (layers(nn.BatchNorm1d(5), nn.ReLU()).train(), "BatchNorm1d '1' is in training mode"),
    "layer norm": (layers(nn.LayerNorm(5), nn.ReLU()), "LayerNorm"),
    "softmax": (layers(nn.ReLU(), end=(nn.Softmax(1),)), r"Linear\(5, 2\), Softmax"),
    "last relu": (layers(nn.ReLU(), end=(nn.ReLU(),)), r"Linear\(5, 2\), ReLU"),
    "conv": (nn.Sequential(nn.Conv1d(1, 2, 1), nn.ReLU(), nn.Linear(5, 2)), "found Conv1d"),
    "mixed samples": (layers(nn.ReLU(), end=(nn.Flatten(0),)), "ends with Flatten, which mixes its 2 outputs"),
    "functional tanh": (Functional(torch.tanh), "its forward computes something else"),
    "functional gelu": (Functional(F.gelu), "its forward computes something else"),
    "functional relu6": (Functional(F.relu6), "its forward computes something else"),
    "functional leaky": (Functional(F.leaky_relu), "its forward computes something else"),
    "residual": (Residual(), "its forward computes something else"),
    "wrong shapes": (
        nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(6, 2)),
        "5 neurons, but the output layer takes 6",
    ),
    "lazy": (nn.Sequential(nn.LazyLinear(5), nn.ReLU(), nn.Linear(5, 2)), "LazyLinear that has seen no data"),
    "tied": (tied(), "uses one parameter as '0.weight' and as '2.weight'; give each layer weights of its own"),
    "gain": (Gain(), "has a parameter 'gain' of shape .* beside the weights and biases of its layers"),
    "spectral norm": (spectral(), "has a parameter '0.parametrizations.weight.original'"),
    "gated": (GatedNetwork(3, 2, 5, 2), "'gated_mlp'"),
    "linear": (LinearNetwork(3, 5, 2), "'linear_mlp'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    module, message = REFUSED[name]
    with pytest.raises(ValueError, match=message) as caught:
        from_module(module)
    assert "\n" not in str(caught.value)


def test_a_forward_that_fails() -> None:
    with pytest.raises(ValueError, match="cannot be run on samples of shape"):
        from_module(Functional(lambda x: x / 0 @ 3))


def test_hooks_are_seen() -> None:
    module = network()
    module[1].register_forward_hook(lambda *a: a[2] + 1)
    with pytest.raises(ValueError, match="its forward computes something else"):
        from_module(module)


def test_diverged_networks() -> None:
    module = network()
    with torch.no_grad():
        module[0].weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match="hidden holds NaN"):
        from_module(module)


def test_estimators_of_this_package() -> None:
    X = torch.randn(20, 3).double()
    estimator = ConvexMLPRegressor(n_gates=4, tol=1e-1, activation="gated_relu").fit(X.numpy(), X[:, 0].numpy())
    with pytest.raises(ValueError, match="'gated_mlp'"):
        read_network(estimator)
    estimator.module_ = own(outputs=1)
    estimator.set_params(fit_intercept=False)
    assert read_network(estimator).output_bias is None


PLACES: dict[str, tuple[nn.Module, ...]] = {
    "before": (nn.BatchNorm1d(3), nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)),
    "between": (nn.Linear(3, 5, bias=False), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2, bias=False)),
    "after the relu": (nn.Linear(3, 5), nn.ReLU(), nn.BatchNorm1d(5, affine=False), nn.Dropout(), nn.Linear(5, 2)),
    "at the end": (nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2, bias=False), nn.BatchNorm1d(2)),
    "everywhere": (
        nn.BatchNorm1d(3),
        nn.Linear(3, 5),
        nn.BatchNorm1d(5),
        nn.ReLU(),
        nn.Linear(5, 2),
        nn.BatchNorm1d(2),
    ),
}


def normalised(*parts: nn.Module) -> nn.Sequential:
    """With statistics and scales that are not the first ones."""
    module, generator = nn.Sequential(*parts).double().train(), torch.Generator().manual_seed(0)
    for part in module:
        if isinstance(part, nn.BatchNorm1d) and part.affine:
            nn.init.uniform_(part.weight, -2, 2, generator=generator)
            nn.init.normal_(part.bias, generator=generator)
    for _ in range(20):
        module(3 + 2 * torch.randn(16, 3, generator=generator, dtype=torch.float64))
    return module.eval()


@pytest.mark.parametrize("name", PLACES)
def test_batch_norm_is_taken_in_by_the_layer_beside_it(name: str) -> None:
    module = normalised(*PLACES[name])
    assert agrees(from_module(module), module)
    with pytest.raises(ValueError, match="is in training mode, where it computes something else"):
        from_module(module.train())


def test_batch_norm_without_statistics() -> None:
    module = layers(nn.BatchNorm1d(5, track_running_stats=False), nn.ReLU()).eval()
    with pytest.raises(ValueError, match="BatchNorm1d '1' keeps no running statistics"):
        from_module(module)
