"""The weights of a torch module with one convolution, a ReLU, averages as pooling, and a linear layer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NoReturn

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from bidual.architectures.modules.cnn import PoolingMatrix
from bidual.io.foreign.normalisation import Scaling, check_modes
from bidual.io.foreign.parameters import check_parameters
from bidual.io.foreign.weights import check_finite
from bidual.operators.patches import Convolution, Pooling

Named = tuple[str, nn.Module]
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d)
_POOLS = (nn.AvgPool1d, nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, PoolingMatrix)
_IN_ORDER = "Conv1d or Conv2d, ReLU, average pooling, Flatten, Linear"


@dataclass(frozen=True, eq=False)
class ConvolutionalWeights:
    """x -> output pool((x * filters + filter_bias)_+) + output_bias, on the CPU in float64; None for a bias it lacks.

    Attributes:
        filters: (filters, channels, *kernel).
        output: (outputs, filters times positions after pooling), as after ``Flatten``.
        convolution: the geometry, without pooling.
        pools: the layers between the ReLU and ``Flatten``, all linear.
    """

    filters: Float[Tensor, "m channels *kernel"]
    output: Float[Tensor, "c k"]
    filter_bias: Float[Tensor, " m"] | None
    output_bias: Float[Tensor, " c"] | None
    convolution: Convolution
    pools: Sequence[nn.Module] = field(default=())

    def __post_init__(self) -> None:
        check_finite(filters=self.filters, filter_bias=self.filter_bias)
        check_finite(output=self.output, output_bias=self.output_bias)
        if self.output.shape[1] % len(self.filters):
            raise ValueError(
                f"the linear layer takes {self.output.shape[1]} numbers, which is no multiple of the "
                f"{len(self.filters)} filters; it must take all that pooling leaves of every filter."
            )

    def convolution_for(self, image_shape: tuple[int, ...]) -> Convolution:
        """With the pooling as a grid where windows of images of this shape are averaged, else as a matrix."""
        places = self.convolution.map_of(image_shape)
        shape, matrix = _pooled(self.pools, places)
        if len(shape) == len(places) and not any(k % g for k, g in zip(places, shape, strict=True)):
            grid = Pooling.to_grid(places, shape, matrix)
            if torch.allclose(grid.matrix, matrix, rtol=1e-12, atol=0.0):
                return self.convolution.pooled(shape)
        return self.convolution.pooled(matrix)


def _pooled(pools: Sequence[nn.Module], places: tuple[int, ...]) -> tuple[tuple[int, ...], Float[Tensor, "a k"]]:
    """The shape of a map after pooling, and the matrix of the pooling: what it makes of each place alone."""
    maps = torch.eye(prod(places), dtype=torch.float64).reshape(-1, 1, *places)
    for pool in pools:
        maps = pool(maps)
    return tuple(maps.shape[2:]), maps.flatten(1).T.contiguous()


def from_convolutional(module: nn.Module) -> ConvolutionalWeights | None:
    """The weights of a module that computes convolution, ReLU, average pooling, Linear; None without a convolution.

    Sequential modules may be nested, and may hold ``Identity``, ``Dropout`` and, after the convolution, ``BatchNorm``,
    which its weights and bias take in. Of other modules the layers are taken in the order in which they were
    registered, and ReLU and Flatten may be function calls: what they compute is for the caller to check.
    """
    layers = [(name, part) for name, part in _leaves(module) if not isinstance(part, nn.Identity | nn.Dropout)]
    if not any(isinstance(part, _CONVOLUTIONS) for _, part in layers):
        return None
    check_modes(module)
    weights = _Reader(layers, strict=isinstance(module, nn.Sequential)).weights()
    check_parameters(module)
    return weights


def _leaves(module: nn.Module, prefix: str = "") -> Iterator[Named]:
    """Layers without parts, in the order in which they were registered."""
    for name, child in module.named_children():
        whole = isinstance(child, PoolingMatrix) or next(child.children(), None) is None
        if whole and not isinstance(child, nn.Sequential):
            yield prefix + name, child
        else:
            yield from _leaves(child, f"{prefix}{name}.")


class _Reader:
    """Layers one after another."""

    def __init__(self, layers: Sequence[Named], strict: bool) -> None:
        self._left, self._strict = list(layers), strict

    def weights(self) -> ConvolutionalWeights:
        layer = self._conv(*self._next(*_CONVOLUTIONS))
        filters, bias = _copy(layer.weight), _copy(layer.bias)
        if (norm := self._if(_BatchNorm)) is not None:
            scaling = Scaling.of(norm[1], norm[0])
            filters = filters * scaling.scale.reshape(-1, *[1] * (filters.ndim - 1))
            bias = scaling.shift if bias is None else bias * scaling.scale + scaling.shift
        self._part(nn.ReLU)
        pools = []
        while (pool := self._if(*_POOLS)) is not None:
            pools.append(pool[1])
        self._check_flatten(self._part(nn.Flatten))
        output: Any = self._next(nn.Linear)[1]
        if self._left:
            self._refuse(*self._left[0], "the end")
        return ConvolutionalWeights(
            filters, _copy(output.weight), bias, _copy(output.bias), _geometry(layer), tuple(pools)
        )

    def _if(self, *kinds: type[nn.Module]) -> tuple[str, Any] | None:
        return self._left.pop(0) if self._left and isinstance(self._left[0][1], kinds) else None

    def _next(self, *kinds: type[nn.Module]) -> tuple[str, Any]:
        found = self._if(*kinds)
        if found is None:
            wanted = " or ".join(kind.__name__ for kind in kinds)
            self._refuse(*(self._left or [("", nn.Module())])[0], wanted)
        return found

    def _part(self, kind: type[nn.Module]) -> tuple[str, Any] | None:
        """A layer that is there, but for modules with a forward of their own."""
        return self._next(kind) if self._strict else self._if(kind)

    def _refuse(self, name: str, layer: nn.Module, wanted: str) -> NoReturn:
        there = f"layer {name!r} is a {type(layer).__name__}" if name else "the layers end"
        raise ValueError(
            f"{there} where {wanted} is expected; convolutional networks can be certified with {_IN_ORDER}, in this "
            "order, and of others the last two linear layers, with head=."
        )

    def _conv(self, name: str, layer: nn.Conv1d | nn.Conv2d) -> nn.Conv1d | nn.Conv2d:
        """A convolution of the kind that this package trains."""
        what = f"layer {name!r} is a {type(layer).__name__}"
        if nn.parameter.is_lazy(layer.weight):
            raise ValueError(f"{what} that has seen no data; run the module once.")
        if layer.groups != 1:
            raise ValueError(f"{what} with groups={layer.groups}; only groups=1 can be certified.")
        if layer.padding_mode != "zeros":
            raise ValueError(f"{what} with padding_mode={layer.padding_mode!r}; only 'zeros' can be certified.")
        return layer

    def _check_flatten(self, found: tuple[str, Any] | None) -> None:
        if found is not None and (found[1].start_dim, found[1].end_dim) != (1, -1):
            raise ValueError(f"layer {found[0]!r} is a Flatten of some axes only; use Flatten(), of all but the first.")


def _geometry(layer: nn.Conv1d | nn.Conv2d) -> Convolution:
    padding = layer.padding
    if isinstance(padding, str):  # torch pads one more at the end where the sum is odd, and refuses strides with "same"
        total = [d * (k - 1) for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
        if padding == "same" and any(t % 2 for t in total):
            raise ValueError(
                "a convolution with padding='same' and an even kernel_size pads unevenly; pad by a number."
            )
        padding = tuple(t // 2 if padding == "same" else 0 for t in total)
    return Convolution(tuple(layer.kernel_size), tuple(layer.stride), tuple(padding), tuple(layer.dilation))


def _copy(value: Tensor | None) -> Any:
    return None if value is None else value.detach().to("cpu", torch.float64, copy=True).contiguous()
