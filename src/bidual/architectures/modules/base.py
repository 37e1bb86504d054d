"""The base of decoded networks."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from bidual.architectures.modules.views import Picture, Units

Sizes = dict[str, Any]  # of whole numbers, and lists of them


class RebuildableModule(nn.Module):
    """A module that can be rebuilt from a dictionary of sizes and its state, without unpickling code.

    A subclass with a ``kind`` is known by it from then on, in this package or elsewhere. Reports and ONNX export need
    nothing but what is said here.

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


def check_gate_index(index: Tensor, n_gates: int) -> None:
    """Refuse an index that points nowhere."""
    if not bool(((index >= 0) & (index < n_gates)).all()):
        raise ValueError("gate_index points beyond the gates; the model file is damaged.")


class Zeroed:
    """A layer that starts at zero, without a draw from the global generator; its printed name is that of the layer."""

    def _get_name(self) -> str:
        return type(self).__mro__[2].__name__

    def reset_parameters(self) -> None:
        for parameter in self.parameters():  # type: ignore[attr-defined]
            nn.init.zeros_(parameter)


class ZeroLinear(Zeroed, nn.Linear):
    pass


class ZeroConv1d(Zeroed, nn.Conv1d):
    pass


class ZeroConv2d(Zeroed, nn.Conv2d):
    pass


def zero_linear(n_in: int, n_out: int) -> nn.Linear:
    return ZeroLinear(n_in, n_out, dtype=torch.float64)


def zero_conv(n_in: int, n_out: int, kernel_size: list[int], **geometry: Any) -> nn.Conv1d | nn.Conv2d:
    layer = ZeroConv1d if len(kernel_size) == 1 else ZeroConv2d
    return layer(n_in, n_out, kernel_size, dtype=torch.float64, **geometry)  # type: ignore[arg-type]


def with_bias(layer: Any) -> Tensor:
    """The weights of every neuron or filter of a layer, its bias last."""
    return torch.cat([layer.weight.flatten(1), layer.bias[:, None]], 1)
