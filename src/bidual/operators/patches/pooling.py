"""Linear pooling of the activations at the patches of an image."""

from dataclasses import dataclass
from math import prod
from typing import Self

import torch
from jaxtyping import Float, Int
from torch import Tensor


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
