"""What the hidden units of a network are, and when they are on."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bidual.architectures.modules import RebuildableModule
from bidual.architectures.modules.attention import AttentionNetwork, GatedAttentionNetwork, LinearAttentionNetwork
from bidual.architectures.modules.cnn import ConvNetwork, GatedConvNetwork, LinearConvNetwork
from bidual.architectures.modules.gated_parallel import GatedParallelNetwork, activity
from bidual.architectures.modules.mlp import GatedNetwork, LinearNetwork, TwoLayerNetwork
from bidual.architectures.modules.parallel import ParallelNetwork
from bidual.numerics.gate_margin import is_on

Numbers = NDArray[np.float64]

WORDS = {
    "linear_mlp": "two-layer linear network",
    "relu_mlp": "two-layer ReLU network",
    "gated_mlp": "two-layer gated-ReLU network",
    "linear_cnn": "linear convolutional network",
    "relu_cnn": "convolutional ReLU network",
    "gated_cnn": "convolutional gated-ReLU network",
    "linear_attention": "linear self-attention network",
    "relu_attention": "self-attention network with ReLU scores",
    "gated_attention": "self-attention network with gated scores",
    "parallel": "parallel ReLU network",
    "gated_parallel": "gated parallel network",
    "layerwise_cnn": "deep gated convolutional network",
}


@dataclass(frozen=True)
class Units:
    """Hidden units, one row each: what comes in (m, p), a bias last, and what goes out (m, q)."""

    name: str
    incoming: Numbers
    outgoing: Numbers

    @property
    def prices(self) -> Numbers:
        """The product of both norms, which is what weight decay charges a unit once it is balanced."""
        return np.linalg.norm(self.incoming, axis=1) * np.linalg.norm(self.outgoing, axis=1)


@torch.no_grad()
def units_of(module: RebuildableModule) -> Units | None:
    """The units of a network; None for families that have none of this kind."""
    if isinstance(module, TwoLayerNetwork):
        return Units("neuron", _with_bias(module.hidden), _numbers(module.output.weight.T))
    if isinstance(module, ConvNetwork):
        outputs = module.output.weight.unflatten(1, (module.hidden.out_channels, -1)).transpose(0, 1).flatten(1)
        return Units("filter", _with_bias(module.hidden), _numbers(outputs))
    if isinstance(module, AttentionNetwork):
        return Units("head", _numbers(module.mixing.flatten(1)), _numbers(module.value.flatten(1)))
    if isinstance(module, ParallelNetwork):
        first, last = module.layers[0], module.layers[-1]
        return Units("sub-network", _numbers(first.flatten(1)), _numbers(last.flatten(1)))
    if isinstance(module, GatedParallelNetwork):
        return Units("sub-network", _numbers(module.weights.flatten(1)), np.ones((len(module.weights), 1)))
    return None


def _with_bias(layer: Any) -> Numbers:
    return _numbers(torch.cat([layer.weight.flatten(1), layer.bias[:, None]], 1))


@dataclass(frozen=True)
class Activity:
    """When units are on.

    Attributes:
        shares: of the places (patches, pairs of tokens) of a sample where a unit is on, (n, m).
        n_patterns: how many of the units' activation patterns on these samples differ.
    """

    shares: Numbers
    n_patterns: int


@torch.no_grad()
def activity_of(module: RebuildableModule, x: Tensor) -> Activity | None:
    """The activity on samples as the network takes them; None for units that are always on."""
    on = _activity(module, x.to(torch.float64))
    if on is None or not on.numel():
        return None
    places = on.bool().flatten(2) if on.ndim > 2 else on.bool()[:, :, None]
    patterns = len(torch.unique(places.transpose(0, 1).flatten(1), dim=0))
    return Activity(_numbers(places.double().mean(2)), patterns)


def _activity(module: RebuildableModule, x: Tensor) -> Tensor | None:
    """Whether units are on, (n, m, ...)."""
    if isinstance(module, (LinearNetwork, LinearConvNetwork, LinearAttentionNetwork)):
        return None
    if isinstance(module, GatedNetwork):
        return module._on(x)[:, module.gate_index]
    if isinstance(module, TwoLayerNetwork):
        return module.hidden(x) > 0
    if isinstance(module, GatedConvNetwork):
        size = module.gates.weight[0].numel() + 1
        return is_on(module.gates(x), module.sizes_of_gates(x.abs()), size)[:, module.gate_index]
    if isinstance(module, ConvNetwork):
        return module.hidden(x) > 0
    if isinstance(module, GatedAttentionNetwork):
        wide, bound = x[:, None], x.abs()[:, None]
        sizes = bound @ module.gates.abs() @ bound.mT
        return is_on(wide @ module.gates @ wide.mT, sizes, module.gates[0].numel())[:, module.gate_index]
    if isinstance(module, AttentionNetwork):
        return module.maps(x) > 0
    return _parallel_activity(module, x)


def _parallel_activity(module: RebuildableModule, x: Tensor) -> Tensor | None:
    if isinstance(module, ParallelNetwork):
        return (module.hidden(x) > 0).transpose(0, 1)
    if isinstance(module, GatedParallelNetwork):
        wide = torch.cat([x, x.new_ones(len(x), 1)], 1) if module.constant else x
        return activity(wide, module.gates, module.signs).second.T
    return None


def _numbers(tensor: Any) -> Numbers:
    return np.asarray(tensor.detach().cpu(), dtype=np.float64)
