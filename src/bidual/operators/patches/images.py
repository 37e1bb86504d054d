from functools import cached_property
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.operators.patches.base import Patches
from bidual.operators.patches.convolution import Convolution, Pooling


class ImagePatches(Patches):
    """The patches x_r of images (n, channels, ...) under a convolution, and its pooling P_a (BM eq. 22).

    With ``bias`` every patch ends with a constant 1, which padding does not touch; those of the last ``silent`` images,
    which are zero, end with 0.
    """

    unit = "filters"

    def __init__(
        self, X: Float[Tensor, "n channels *size"], convolution: Convolution, bias: bool = False, silent: int = 0
    ) -> None:
        self.X, self.convolution, self.bias, self.silent = X, convolution, bias, silent
        self.map = convolution.map_of(X.shape[1:])

    @cached_property
    def pooling(self) -> Pooling:
        return self.convolution.pooling_for(self.X.shape[1:], self.X)

    def samples(self, some: slice) -> "ImagePatches":
        silent = sum(index >= len(self.X) - self.silent for index in range(len(self.X))[some])
        return ImagePatches(self.X[some], self.convolution, self.bias, silent)

    def with_silent_sample(self) -> "ImagePatches":
        X = torch.cat([self.X, torch.zeros_like(self.X[:1])])
        return ImagePatches(X, self.convolution, self.bias, self.silent + 1)

    def to(self, dtype: torch.dtype) -> "ImagePatches":
        return ImagePatches(self.X.to(dtype), self.convolution, self.bias, self.silent)

    @property
    def width(self) -> int:
        return self.convolution.rows_of(self.X.shape[1]) + self.bias

    @property
    def readouts(self) -> int:
        return self.pooling.size

    @property
    def work(self) -> int:
        return prod(self.map) * self.width * (3 if self.pooling.window else self.readouts)

    @property
    def per_sample(self) -> tuple[int, int]:
        return prod(self.map), 1

    def rows(self) -> Float[Tensor, "R h"]:
        return self._by_image.flatten(0, 1)

    @cached_property
    def _by_image(self) -> Float[Tensor, "n k h"]:
        X = self.convolution.unfold(self.X)[:, :, self.pooling.order]
        if self.bias:
            constant = X.new_ones(len(X), 1, X.shape[2])
            constant[len(X) - self.silent :] = 0.0
            X = torch.cat([X, constant], 1)
        return X.mT.contiguous()

    def pool(self, H: Float[Tensor, "R q"]) -> Float[Tensor, "N q a"]:
        return self.pooling.pool(self._per_image(H)).mT

    def spread(self, V: Float[Tensor, "N c"]) -> Float[Tensor, "R ac"]:
        return (self.pooling.listed.T[None, :, :, None] * V[:, None, None, :]).flatten(2).flatten(0, 1)

    def compress(self, D: Float[Tensor, "R p"]) -> Float[Tensor, "N p h a"]:
        return self.pooling.products(self._per_image(D), self._by_image.to(D.dtype))

    def reach(self) -> Float[Tensor, "N a"]:
        lengths = torch.linalg.vector_norm(self._by_image, dim=2)
        return lengths @ self.pooling.listed.abs().T

    def is_same(self, other: Patches) -> bool:
        if not isinstance(other, ImagePatches) or (self.bias, self.silent) != (other.bias, other.silent):
            return False
        if self.convolution.geometry != other.convolution.geometry or not torch.equal(self.X, other.X):
            return False
        return self.pooling.is_same(other.pooling)

    def _per_image(self, H: Float[Tensor, "R q"]) -> Float[Tensor, "n k q"]:
        return H.reshape(len(self), prod(self.map), H.shape[1])
