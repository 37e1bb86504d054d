from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.operators.base import Depth, SampleOperator


class LinearOperator(SampleOperator):
    """A Z = X Z_1, one block (BM eq. 2), or none when nothing is selected."""

    def __init__(self, X: Float[Tensor, "n d"], n_outputs: int, n_blocks: int = 1) -> None:
        self.X = X
        self.n_outputs = n_outputs
        self.n_blocks = n_blocks

    @property
    def block_shape(self) -> tuple[int, int, int]:
        return self.n_blocks, self.X.shape[1], self.n_outputs

    @property
    def depth(self) -> Depth:
        return Depth(self.n_blocks + self.X.shape[1], len(self.X))

    def to(self, dtype: torch.dtype) -> Self:
        return self if dtype == self.X.dtype else type(self)(self.X.to(dtype), self.n_outputs, self.n_blocks)

    def _forward(self, Z: Tensor) -> Tensor:
        return self.X @ Z.sum(0)

    def _adjoint(self, V: Tensor) -> Tensor:
        return (self.X.T @ V).expand(self.block_shape)

    def _select(self, blocks: Tensor) -> Self:
        return type(self)(self.X, self.n_outputs, len(blocks))

    def kernel(self, weights: Float[Tensor, " p"] | None = None) -> Float[Tensor, "n n"]:
        K = self.X @ self.X.T
        return K * (self.n_blocks if weights is None else weights.sum())

    def responses(self, G: Float[Tensor, "p a"], blocks: Tensor) -> Float[Tensor, "n q"]:
        return self.X @ G[blocks].T

    def design(self) -> Float[Tensor, "n k"]:
        return self.X.repeat(1, self.n_blocks)
