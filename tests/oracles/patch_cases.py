"""Images under convolutions of every kind, with their explicit rows and readouts."""

from typing import NamedTuple

import torch
from torch import Tensor

from bidual.operators.patches import Convolution, ImagePatches
from helpers.draws import normal
from oracles.explicit_readouts import Explicit, image_rows, pooled_readout, window_averages


class Case(NamedTuple):
    """Images of a size, a geometry, the map of patches that comes of it and a grid that divides it."""

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    map: tuple[int, ...]
    grid: tuple[int, ...]

    @property
    def images(self) -> Tensor:
        return normal(3, *self.size)

    def convolution(self, pooling: tuple[int, ...] | Tensor = ()) -> Convolution:
        return Convolution(self.kernel, self.stride, self.padding, self.dilation, pooling)

    def matrix(self, pooling: str) -> Tensor:
        """P_a: one average, windows of a grid, or anything."""
        K = torch.Size(self.map).numel()
        if pooling == "matrix":
            return normal(3, K, seed=5)
        return window_averages(self.map, self.grid if pooling == "grid" else (1,) * len(self.map))

    def patches(self, pooling: str, bias: bool = False) -> ImagePatches:
        given = {"average": (), "grid": self.grid, "matrix": self.matrix("matrix")}[pooling]
        return ImagePatches(self.images, self.convolution(given), bias)

    def explicit(self, pooling: str, bias: bool = False) -> Explicit:
        """Rows and readout, in the order in which the patches of an image are listed under this pooling."""
        rows = image_rows(self.images, self.kernel, self.stride, self.padding, self.dilation, bias)
        listed = self.listed(pooling)
        return Explicit(rows[listed], pooled_readout(self.matrix(pooling), len(self.images))[:, :, listed])

    def listed(self, pooling: str) -> Tensor:
        """The places (R) of the listed patches among those of all images, row by row."""
        order = self.patches(pooling).pooling.order
        return (len(order) * torch.arange(len(self.images))[:, None] + order).flatten()


POOLINGS = ["average", "grid", "matrix"]
CASES = {
    "1-D": Case((1, 8), (3,), (1,), (0,), (1,), (6,), (2,)),
    "1-D, channels": Case((3, 7), (2,), (1,), (0,), (1,), (6,), (3,)),
    "1-D, all at once": Case((2, 9), (3,), (2,), (2,), (2,), (5,), (5,)),
    "1-D, padding beyond the filter": Case((1, 3), (2,), (1,), (3,), (1,), (8,), (4,)),
    "2-D": Case((1, 4, 5), (2, 2), (1, 1), (0, 0), (1, 1), (3, 4), (3, 2)),
    "2-D, square windows": Case((1, 5, 7), (2, 2), (1, 1), (0, 0), (1, 1), (4, 6), (2, 3)),
    "2-D, channels and unlike sides": Case((2, 5, 4), (3, 2), (1, 1), (1, 0), (1, 1), (5, 3), (5, 3)),
    "2-D, all at once": Case((2, 6, 7), (2, 3), (2, 1), (1, 2), (3, 2), (3, 7), (3, 1)),
    "2-D, the whole image": Case((2, 3, 2), (3, 2), (1, 1), (0, 0), (1, 1), (1, 1), (1, 1)),
}
