"""The base of decoded networks, and what they show of themselves in a report."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bidual.numerics.gate_margin import is_on

Sizes = dict[str, Any]  # of whole numbers, and lists of them
Numbers = NDArray[np.float64]
Layer = TypeVar("Layer", bound=nn.Module)
_FILTERS, _CHANNELS = 24, 4  # that are shown


@dataclass(frozen=True)
class Units:
    """Hidden units, one row each: what comes in (m, p), a bias last, and what goes out (m, q).

    Attributes:
        name: what a unit is called.
        incoming, outgoing: its weights.
        on_features: whether incoming weights are those of the features, one each.
        on_outputs: whether outgoing weights are those of the outputs, one each.
        whole: whether these are all weights of a unit, so that its price is the product of their norms.
    """

    name: str
    incoming: Numbers
    outgoing: Numbers
    on_features: bool = False
    on_outputs: bool = False
    whole: bool = True

    @classmethod
    def of(cls, name: str, incoming: Tensor, outgoing: Tensor, **flags: bool) -> Self:
        """From tensors whose first axis counts the units."""
        return cls(name, as_numbers(incoming.flatten(1)), as_numbers(outgoing.flatten(1)), **flags)

    @property
    def prices(self) -> Numbers:
        """The product of both norms, which is what weight decay charges a unit once it is balanced."""
        return np.linalg.norm(self.incoming, axis=1) * np.linalg.norm(self.outgoing, axis=1)


@dataclass(frozen=True)
class Picture:
    """A section of a report: small images in rows of ``columns``, each in its own scale and with a name of its own."""

    title: str
    tiles: Sequence[Numbers]
    names: Sequence[str]
    columns: int
    caption: str
    alt: str  # for readers who do not see it


class RebuildableModule(nn.Module):
    """A module that can be rebuilt from a dictionary of sizes and its state, without unpickling code.

    A subclass is found by its ``kind``, in this package or elsewhere. Reports and ONNX export use only these members.

    Attributes:
        kind: the name in model files.
        words: what such a network is, in words.
        rivals: the networks that a certificate over all activation patterns compares it with; "" for general words.
        always_on: whether hidden units are always on, so that there is one activation pattern only.
    """

    kind: ClassVar[str]
    words: ClassVar[str] = "network"
    rivals: str = ""
    always_on: ClassVar[bool] = False

    @property
    def sizes(self) -> Sizes:
        """The constructor's arguments: numbers, or lists of them."""
        raise TypeError(f"{type(self).__name__} does not say its sizes.")

    @property
    def n_neurons(self) -> int:
        """Neurons (filters, heads) whose outgoing weights are not all zero."""
        raise TypeError(f"{type(self).__name__} does not count its neurons.")

    @property
    def units(self) -> Units | None:
        """The hidden units; None if the network has none of this kind."""
        return None

    def on(self, x: Tensor) -> Tensor | None:
        """Whether hidden units are on, (n, units, ...), for samples in float64; None if nothing switches."""
        return None

    def pictures(self, x: Tensor | None = None, names: Sequence[str] = ()) -> list[Picture]:
        """What a report shows, with a few samples of these names where there are any."""
        return []

    def for_onnx(self, sample_shape: tuple[int, ...]) -> nn.Module:
        """A module with the same outputs for samples of this shape, of operations that runtimes have in float64."""
        return self

    @classmethod
    def rebuild(cls, sizes: Sizes, state: dict[str, Tensor]) -> Self:
        module = cls(**sizes)
        module.load_state_dict(state)
        return module


class HiddenUnits(RebuildableModule):
    """A network with one hidden layer, of values ``hidden(x)`` before the activation."""

    hidden: Any

    @abstractmethod
    def activated(self, x: Tensor) -> Tensor:
        """The values after it."""


class LinearUnits(HiddenUnits):
    always_on = True

    def activated(self, x: Tensor) -> Tensor:
        return self.hidden(x)


class ReluUnits(HiddenUnits):
    def on(self, x: Tensor) -> Tensor:
        return self.hidden(x) > 0

    def activated(self, x: Tensor) -> Tensor:
        return torch.relu(self.hidden(x))


class GatedUnits(HiddenUnits):
    """Units that are on where a constant gate is: unit j where gate ``gate_index[j]`` is, ties included."""

    gates: Any
    gate_index: Tensor
    n_gates: int

    def _add_gates(self, n_units: int, gates: Any) -> None:
        """Gates that are a layer like the hidden one."""
        self.gates, self.n_gates = gates.requires_grad_(False), len(gates.weight)
        self.register_buffer("gate_index", torch.zeros(n_units, dtype=torch.long))

    @property
    def sizes(self) -> Sizes:
        return super().sizes | {"n_gates": self.n_gates}

    @classmethod
    def rebuild(cls, sizes: Sizes, state: dict[str, Tensor]) -> Self:
        module = super().rebuild(sizes, state)
        if not bool(((module.gate_index >= 0) & (module.gate_index < sizes["n_gates"])).all()):
            raise ValueError("gate_index points beyond the gates; the model file is damaged.")
        return module

    def on(self, x: Tensor) -> Tensor:
        sizes = self._gate_sizes(x.abs(), {"weight": self.gates.weight.abs(), "bias": self.gates.bias.abs()})
        return is_on(self.gates(x), sizes, self.gates.weight[0].numel() + 1)[:, self.gate_index]

    def _gate_sizes(self, x: Tensor, weights: dict[str, Tensor]) -> Tensor:
        """The gates' layer with other weights."""
        return torch.func.functional_call(self.gates, weights, (x,))

    def activated(self, x: Tensor) -> Tensor:
        return self.hidden(x) * self.on(x).to(x.dtype)


def zeroed(kind: type[Layer], *sizes: Any, **options: Any) -> Layer:
    """A layer that starts at zero, without a draw from the global generator."""
    layer = kind(*sizes, **options, device="meta")  # not nn.utils.skip_init, whose first call imports 487 modules
    for name, there in list(layer.named_parameters()):
        setattr(layer, name, nn.Parameter(torch.zeros(there.shape, dtype=there.dtype)))
    return layer


def zero_linear(n_in: int, n_out: int) -> nn.Linear:
    return zeroed(nn.Linear, n_in, n_out, dtype=torch.float64)


def zero_conv(n_in: int, n_out: int, kernel_size: list[int], **geometry: Any) -> nn.Conv1d | nn.Conv2d:
    kind: Any = nn.Conv1d if len(kernel_size) == 1 else nn.Conv2d
    return zeroed(kind, n_in, n_out, kernel_size, dtype=torch.float64, **geometry)


def with_bias(layer: Any) -> Tensor:
    """The weights of every neuron or filter of a layer, its bias last."""
    return torch.cat([layer.weight.flatten(1), layer.bias[:, None]], 1)


def as_numbers(tensor: Tensor) -> Numbers:
    """A copy on the CPU, in double precision."""
    return np.asarray(tensor.detach().cpu(), dtype=np.float64)


def filters_picture(layer: nn.Module, prices: Numbers) -> list[Picture]:
    """The filters of a convolution that weigh most, their channels side by side."""
    weight: Any = layer.weight
    filters = as_numbers(weight)
    order = [k for k in np.argsort(-prices, kind="stable") if prices[k] > 0][:_FILTERS]
    if not order:
        return []
    channels = min(filters.shape[1], _CHANNELS)
    tiles = [np.hstack([np.atleast_2d(part) for part in filters[k][:channels]]) for k in order]
    note = "" if filters.shape[1] == 1 else f", their first {channels} channels side by side"
    caption = f"The {len(order)} filters that weigh most{note}. Red positive, blue negative, each in its own scale."
    alt = f"{len(order)} learned filters of size {' × '.join(map(str, filters.shape[2:]))}."
    return [Picture("Learned filters", tiles, [f"{k}" for k in order], max(2, 8 // channels), caption, alt)]
