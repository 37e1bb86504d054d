"""The geometry of patches of images, and the linear pooling of activations at them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from numbers import Integral
from typing import Self

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from bidual.runtime.registry import Part


@dataclass(frozen=True, eq=False)
class Pooling:
    """P_a (a, K) of BM (22): a numbers from the K patches of an image.

    Attributes:
        matrix: P_a, its columns in the order of the patches in the image.
        order: the order in which the patches of an image are listed.
        window: the number of patches of a window, if P_a averages windows, whose patches are then listed together and
            products cost a times less; 0 otherwise.
    """

    matrix: Float[Tensor, "a k"]
    order: Int[Tensor, " k"]
    window: int = 0

    @classmethod
    def to_grid(cls, patches: tuple[int, ...], grid: tuple[int, ...], like: Tensor) -> Self:
        """The average over each window of a grid; the papers' "average" is the sum, q times as much."""
        if len(grid) != len(patches):
            raise ValueError(f"a pooling grid for a {patches} map of patches needs {len(patches)} numbers, got {grid}.")
        if any(g < 1 or k % g for k, g in zip(patches, grid, strict=True)):
            raise ValueError(
                f"a pooling grid {grid} does not divide the {patches} map of patches; use numbers that do, or give a "
                f"matrix of {prod(patches)} columns."
            )
        index = torch.arange(prod(patches), device=like.device).reshape(
            [n for k, g in zip(patches, grid, strict=True) for n in (g, k // g)]
        )
        dims = len(patches)
        windows = index.permute([2 * k for k in range(dims)] + [2 * k + 1 for k in range(dims)]).reshape(prod(grid), -1)
        size = windows.shape[1]
        matrix = like.new_zeros(len(windows), prod(patches)).scatter_(1, windows, 1 / size)
        return cls(matrix, windows.flatten(), size)

    @classmethod
    def by_matrix(cls, patches: tuple[int, ...], matrix: Tensor, like: Tensor) -> Self:
        """Any P_a."""
        if matrix.ndim != 2 or matrix.shape[1] != prod(patches) or not len(matrix):
            raise ValueError(
                f"a pooling matrix needs one column for each of the {prod(patches)} patches of an image, got shape "
                f"{tuple(matrix.shape)}."
            )
        if not bool(torch.isfinite(matrix).all()):
            raise ValueError("a pooling matrix must be finite, got NaN or infinity.")
        return cls(matrix.to(like), torch.arange(prod(patches), device=like.device))

    @property
    def listed(self) -> Float[Tensor, "a k"]:
        """P_a, its columns in the order in which patches are listed."""
        return self.matrix[:, self.order]

    @property
    def size(self) -> int:
        return len(self.matrix)

    def is_same(self, other: "Pooling") -> bool:
        """Equal matrices, and patches in the same order."""
        return torch.equal(self.matrix, other.matrix) and torch.equal(self.order, other.order)

    def pool(self, H: Float[Tensor, "n k q"]) -> Float[Tensor, "n a q"]:
        """P_a H_i."""
        return H.unflatten(1, (-1, self.window)).mean(2) if self.window else self.listed @ H

    def products(self, D: Float[Tensor, "n k p"], X: Float[Tensor, "n k h"]) -> Float[Tensor, "n p h a"]:
        """P_a diag(D_p) X_i for every p."""
        n, _, h = X.shape
        if not self.window:
            weighted = X[:, :, :, None] * self.listed.T[:, None, :]
            return (D.mT @ weighted.flatten(2)).reshape(n, D.shape[2], h, self.size)
        count, q = n * self.size, self.window
        parts = D.reshape(count, q, D.shape[2]).mT @ (X / q).reshape(count, q, h)
        return parts.reshape(n, self.size, D.shape[2], h).permute(0, 2, 3, 1)


@dataclass(frozen=True, eq=False)
class Convolution(Part):
    """The geometry of a convolution in one or two dimensions.

    Attributes:
        kernel_size, stride, padding, dilation: as in torch, one number per dimension; padding is with zeros.
        pooling: a grid to average to, one number per dimension, () for one global average; or the matrix P_a.
    """

    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    pooling: tuple[int, ...] | Tensor = ()
    name = "convolution"

    def __post_init__(self) -> None:
        if len(self.kernel_size) not in (1, 2):
            raise ValueError(f"convolutions have one or two dimensions, got kernel_size={self.kernel_size}.")
        for name, least in (("kernel_size", 1), ("stride", 1), ("padding", 0), ("dilation", 1)):
            self._check_numbers(name, getattr(self, name), least)
        if not isinstance(self.pooling, Tensor) and self.pooling:
            self._check_numbers("pooling", self.pooling, 1)

    def _check_numbers(self, name: str, given: tuple[int, ...], least: int) -> None:
        whole = all(isinstance(number, int) and not isinstance(number, bool) and number >= least for number in given)
        if len(given) != self.dims or not whole:
            raise ValueError(f"{name} needs {self.dims} whole numbers of at least {least}, got {given}.")

    @classmethod
    def of(
        cls,
        dims: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        pooling: int | Sequence[int] | Tensor = (),
    ) -> "Convolution":
        """The same number for every dimension where only one is given."""
        kernel, steps, zeros, gaps = (_per_dimension(value, dims) for value in (kernel_size, stride, padding, dilation))
        grid = pooling if isinstance(pooling, Tensor) else _per_dimension(pooling, dims)
        return cls(kernel, steps, zeros, gaps, grid)

    def pooled(self, pooling: tuple[int, ...] | Tensor) -> "Convolution":
        """The same patches, pooled in another way."""
        return replace(self, pooling=pooling)

    @property
    def dims(self) -> int:
        return len(self.kernel_size)

    @property
    def geometry(self) -> tuple[tuple[int, ...], ...]:
        """Everything but the pooling."""
        return self.kernel_size, self.stride, self.padding, self.dilation

    def map_of(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The number of patches along every dimension of images (channels, ...) of this shape."""
        if len(shape) != self.dims + 1:
            size = "(channels, length)" if self.dims == 1 else "(channels, height, width)"
            raise ValueError(f"a {self.dims}-dimensional convolution needs images of shape {size}, got {tuple(shape)}.")
        count = []
        for length, kernel, stride, padding, dilation in zip(shape[1:], *self.geometry, strict=True):
            span = dilation * (kernel - 1) + 1
            if length + 2 * padding < span:
                raise ValueError(
                    f"an image of shape {tuple(shape)} with padding {self.padding} is smaller than a filter that spans "
                    f"{span}; use a smaller kernel_size, or padding."
                )
            count.append((length + 2 * padding - span) // stride + 1)
        return tuple(count)

    @property
    def readouts(self) -> int:
        """a, without making P_a."""
        return len(self.pooling) if isinstance(self.pooling, Tensor) else prod(self.grid)

    def pooling_for(self, shape: Sequence[int], like: Tensor) -> Pooling:
        """P_a for images of this shape."""
        patches = self.map_of(shape)
        if isinstance(self.pooling, Tensor):
            return Pooling.by_matrix(patches, self.pooling, like)
        return Pooling.to_grid(patches, self.grid, like)

    @property
    def grid(self) -> tuple[int, ...]:
        """The grid that windows are averaged to."""
        assert not isinstance(self.pooling, Tensor)
        return self.pooling or (1,) * self.dims

    def unfold(self, X: Float[Tensor, "n channels *size"]) -> Float[Tensor, "n h k"]:
        """The patches of every image as columns, each ordered (channel, position), as a filter is."""
        one = self.dims == 1
        geometry = [(1, *part) if one else part for part in (self.kernel_size, self.dilation)]
        geometry += [(0, *self.padding) if one else self.padding, (1, *self.stride) if one else self.stride]
        return functional.unfold(X[:, :, None] if one else X, *geometry)

    def rows_of(self, channels: int) -> int:
        return channels * prod(self.kernel_size)


def _per_dimension(value: int | Sequence[int], dims: int) -> tuple[int, ...]:
    numbers = value if isinstance(value, Sequence) else (value,) * dims
    return tuple(int(number) if isinstance(number, Integral) else number for number in numbers)
