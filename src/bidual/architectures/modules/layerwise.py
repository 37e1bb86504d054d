"""Deep convolutional networks that were grown stage by stage."""

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from bidual.architectures.modules.base import Picture, RebuildableModule, Sizes, as_numbers, filters_picture, zeroed


class GatedPooling(torch.autograd.Function):
    r"""P_a sum_j D_kj (x * u_rjk) for every filter r and gate k, from x * u (BM eq. 126, PR eq. 11).

    Channels are ordered (filter, unit, gate), those of ``on`` (unit, gate), and results (filter, gate, readout): the
    innermost numbers of channels-last maps then share no gate, and products run along memory. The backward pass needs
    the gates only.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Float[Tensor, "n filters h w"], on: Bool[Tensor, "n units h w"], gates: int, grid: int
    ) -> Float[Tensor, "n pooled"]:
        """``gates`` is p, and a is grid * grid."""
        maps, active = _parts(hidden, on, gates)
        ctx.save_for_backward(on)
        ctx.shape, ctx.gates, ctx.grid = hidden.shape, gates, grid
        pooled = [(maps[:, *at] * active[:, *at]).mean((1, 2)).sum(2) for at in windows(hidden.shape[2:], grid)]
        return torch.stack(pooled, 3).flatten(1)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        (on,) = ctx.saved_tensors
        n, channels, height, width = ctx.shape
        back = slope.new_zeros(n, height, width, channels).permute(0, 3, 1, 2)
        maps, active = _parts(back, on, ctx.gates)
        slopes = slope.unflatten(1, (-1, ctx.gates, ctx.grid**2))
        for number, at in enumerate(windows((height, width), ctx.grid)):
            size = maps[:, *at].shape[1:3].numel()
            maps[:, *at] += active[:, *at] * (slopes[:, None, None, :, None, :, number] / size)
        return back, None, None, None


def windows(size: tuple[int, ...] | torch.Size, grid: int) -> list[tuple[slice, slice]]:
    """The windows of adaptive average pooling, which overlap where the grid does not divide the map."""
    rows, columns = ([slice(k * side // grid, -(-(k + 1) * side // grid)) for k in range(grid)] for side in size)
    return [(row, column) for row in rows for column in columns]


def _parts(hidden: Tensor, on: Tensor, gates: int) -> tuple[Tensor, Tensor]:
    """Views (n, h, w, filter, unit, gate) of maps that lie channels last, and of the gates, without filters."""
    active = on.permute(0, 2, 3, 1).unflatten(3, (1, -1, gates))
    return hidden.permute(0, 2, 3, 1).unflatten(3, (-1, active.shape[4], gates)), active


class GatedStage(nn.Module):
    r"""The hidden layer of a gated two-layer CNN, or of a parallel three-layer one, on standardised inputs.

    Two layers (``units`` 1, BM eq. 126): channel (r, k) is D_k(x) (x * u_rk), D_k = 1{x * g_k >= 0}.
    Three layers (``units`` m_1, PR eq. 11 on patches): channel (r, k) is D_2k(x) sum_j D_1jk(x) (x * u_rjk), where
    D_1jk = 1{x * g_jk >= 0} and D_2k = 1{sum_j s_jk (x * g_jk)_+ >= 0} with signs s_jk.

    Gates are constants. Filters have a bias and see ``kernel`` x ``kernel`` patches, padded with zeros. An input is
    downsampled first where asked for: the four pixels of a 2 x 2 window become channels (an invertible map), then
    every channel is shifted and scaled.
    """

    def __init__(self, channels: int, gates: int, factors: int, units: int, kernel: int, downsample: bool) -> None:
        super().__init__()
        self.gates, self.factors, self.units, self.downsample = gates, factors, units, downsample
        seen = 4 * channels if downsample else channels
        self.shift: Tensor
        self.scale: Tensor
        self.signs: Tensor
        self.register_buffer("shift", torch.zeros(seen, dtype=torch.float32))
        self.register_buffer("scale", torch.ones(seen, dtype=torch.float32))
        self.register_buffer("signs", torch.ones(units, gates, dtype=torch.float32))
        self.gate = _conv(seen, units * gates, kernel).requires_grad_(False)
        self.hidden = _conv(seen, factors * units * gates, kernel)

    @property
    def channels(self) -> int:
        """Of the output."""
        return self.gates * self.factors

    def prepare(self, x: Tensor) -> Tensor:
        """The input of the filters: downsampled and standardised."""
        return (self.spread(x) - self.shift[:, None, None]).mul_(self.scale[:, None, None])

    def spread(self, x: Tensor) -> Tensor:
        """Downsampled, where this stage does that."""
        if not self.downsample:
            return x
        if x.shape[2] % 2 or x.shape[3] % 2:
            raise ValueError(f"downsampling needs an even height and width, got {tuple(x.shape[2:])}.")
        if not len(x):  # torch leaves the shape of no images as it is
            return x.new_empty(0, 4 * x.shape[1], x.shape[2] // 2, x.shape[3] // 2)
        return functional.pixel_unshuffle(x, 2)

    @torch.no_grad()
    def activity(self, x: Tensor) -> Tensor:
        """D_2k D_1kj as (n, units * gates, h, w), of a prepared input, in full precision."""
        with torch.autocast(x.device.type, enabled=False):
            seen = self.gate(x.to(self.gate.weight.dtype))
        on = seen >= 0
        if self.units == 1:
            return on
        sums = torch.einsum("njkhw,jk->nkhw", seen.clamp_(min=0).unflatten(1, self.signs.shape), self.signs)
        return (on.unflatten(1, self.signs.shape) & (sums >= 0)[:, None]).flatten(1, 2)

    def gated(self, x: Tensor, on: Tensor) -> Tensor:
        """The channels of a prepared input, given the gates that are on."""
        parts = self.hidden(x).unflatten(1, (self.factors, self.units, self.gates))
        parts = parts.mul_(on.unflatten(1, (1, self.units, self.gates)))
        return (parts[:, :, 0] if self.units == 1 else parts.sum(2)).flatten(1, 2)

    def pooled(self, x: Tensor, on: Tensor, grid: int) -> Tensor:
        """The channels averaged to a grid, (n, channels * grid * grid), without being kept: for training."""
        return GatedPooling.apply(self.hidden(x), on, self.gates, grid)

    def forward(self, x: Tensor) -> Tensor:
        x = self.prepare(x)
        return self.gated(x, self.activity(x))


def _conv(channels: int, filters: int, kernel: int) -> nn.Conv2d:
    return zeroed(nn.Conv2d, channels, filters, kernel, padding=kernel // 2, dtype=torch.float32)


class Head(nn.Module):
    """Average pooling to a grid x grid map, and a linear layer."""

    def __init__(self, channels: int, grid: int, n_outputs: int) -> None:
        super().__init__()
        self.grid = grid
        self.output = zeroed(nn.Linear, channels * grid**2, n_outputs, dtype=torch.float32)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(functional.adaptive_avg_pool2d(x, self.grid).flatten(1))

    def of_pooled(self, x: Tensor) -> Tensor:
        """The outputs, from channels that are pooled already."""
        return self.output(x)


class Stages(nn.ModuleList):
    """A list of stages that says so to type checkers."""

    def __iter__(self) -> Iterator[GatedStage]:
        return super().__iter__()  # type: ignore[return-value]

    @property
    def last(self) -> GatedStage:
        return self[-1]  # type: ignore[return-value]


class Heads(nn.ModuleList):
    @property
    def last(self) -> Head:
        return self[-1]  # type: ignore[return-value]


class LayerwiseNetwork(RebuildableModule):
    """Stages one after another, and the head of the last one. The heads of all stages are kept.

    Args:
        channels, n_outputs: of the images, and classes.
        gates, factors, units, downsample: of every stage; see :class:`GatedStage`.
        kernel: the side of the filters.
        grid: the side of the map that is pooled to.
    """

    kind, words = "layerwise_cnn", "deep gated convolutional network"

    def __init__(
        self,
        channels: int,
        n_outputs: int,
        gates: Sequence[int],
        factors: Sequence[int],
        units: Sequence[int],
        downsample: Sequence[int],
        kernel: int,
        grid: int,
    ) -> None:
        super().__init__()
        self.stages, self.heads = Stages(), Heads()
        self._channels, self._kernel, self._grid, self._outputs = channels, kernel, grid, n_outputs
        for p, r, m, halves in zip(gates, factors, units, downsample, strict=True):
            self.stages.append(GatedStage(channels, p, r, m, kernel, bool(halves)))
            self.heads.append(Head(p * r, grid, n_outputs))
            channels = p * r
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @property
    def sizes(self) -> Sizes:
        stages = list(self.stages)
        return {
            "channels": self._channels,
            "n_outputs": self._outputs,
            "gates": [stage.gates for stage in stages],
            "factors": [stage.factors for stage in stages],
            "units": [stage.units for stage in stages],
            "downsample": [int(stage.downsample) for stage in stages],
            "kernel": self._kernel,
            "grid": self._grid,
        }

    @property
    def n_neurons(self) -> int:
        """Channels that the last head uses."""
        weight = self.heads.last.output.weight.detach()
        return int((weight.unflatten(1, (-1, self._grid**2)) != 0).any(2).any(0).sum())

    def pictures(self, x: Tensor | None = None, names: Sequence[str] = ()) -> list[Picture]:
        """The filters of the first stage."""
        first = next(iter(self.stages)).hidden
        return filters_picture(first, np.linalg.norm(as_numbers(first.weight.flatten(1)), axis=1))

    def upto(self, count: int) -> Self:
        """The network of the first ``count`` stages, with the head of the last of them; it shares their weights."""
        if not 1 <= count <= len(self.stages):
            raise ValueError(f"the network has stages 1 to {len(self.stages)}, got {count}.")
        sizes = {name: size[:count] if isinstance(size, list) else size for name, size in self.sizes.items()}
        part = type(self)(**sizes)  # type: ignore[arg-type]
        part.stages, part.heads = Stages(self.stages[:count]), Heads(self.heads[:count])
        return part

    def features(self, x: Tensor) -> Tensor:
        """The channels of the last stage."""
        x = x.to(self.heads.last.output.weight.dtype).contiguous(memory_format=torch.channels_last)
        for stage in self.stages:
            x = stage(x)
        return x

    def forward(self, x: Tensor) -> Tensor:
        return self.heads.last(self.features(x))
