"""Gated pooling: the product with the gates and the averages in one step, without storing the product."""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Window = tuple[slice, slice]


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


def windows(size: tuple[int, ...] | torch.Size, grid: int) -> list[Window]:
    """The windows of adaptive average pooling, which overlap where the grid does not divide the map."""
    rows, columns = ([slice(k * side // grid, -(-(k + 1) * side // grid)) for k in range(grid)] for side in size)
    return [(row, column) for row in rows for column in columns]


def _parts(hidden: Tensor, on: Tensor, gates: int) -> tuple[Tensor, Tensor]:
    """Views (n, h, w, filter, unit, gate) of maps that lie channels last, and of the gates, without filters."""
    active = on.permute(0, 2, 3, 1).unflatten(3, (1, -1, gates))
    return hidden.permute(0, 2, 3, 1).unflatten(3, (-1, active.shape[4], gates)), active
