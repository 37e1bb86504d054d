from typing import Self

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bidual.operators.base import SampleOperator


class GatedOperator(SampleOperator):
    r"""A Z = sum_p D_p X Z_p, with D_p the diagonal 0/1 matrix of activation pattern p (BM eq. 5).

    Forward and adjoint are products with the constant pattern matrix D (n, P), so that no (n, P, c) array is made:

        A Z = rowsum_d( X o (D Z) ),      A* V = D^T [v_1 X | ... | v_c X],      A A* = (X X^T) o (D D^T).
    """

    def __init__(
        self, X: Float[Tensor, "n d"], patterns: Bool[Tensor, "p n"] | Float[Tensor, "p n"], n_outputs: int
    ) -> None:
        if patterns.shape[1] != len(X):
            raise ValueError(f"patterns must have one column per sample ({len(X)}), got {patterns.shape[1]}.")
        self.X = X
        self.patterns = patterns.to(X.dtype)  # (P, n): blocks are rows, so that selecting blocks is cheap
        self.n_outputs = n_outputs

    @property
    def block_shape(self) -> tuple[int, int, int]:
        return len(self.patterns), self.X.shape[1], self.n_outputs

    def to(self, dtype: torch.dtype) -> Self:
        return self if dtype == self.X.dtype else type(self)(self.X.to(dtype), self.patterns, self.n_outputs)

    def _forward(self, Z: Tensor) -> Tensor:
        n, c = self.output_shape
        H = (self.patterns.T @ Z.flatten(1)).reshape(n, -1, c)
        return (H * self.X[:, :, None]).sum(1)

    def _adjoint(self, V: Tensor) -> Tensor:
        scaled = (self.X[:, :, None] * V[:, None, :]).flatten(1)
        return (self.patterns @ scaled).reshape(self.block_shape)

    def _select(self, blocks: Tensor) -> Self:
        return type(self)(self.X, self.patterns[blocks], self.n_outputs)

    def kernel(self, weights: Float[Tensor, " p"] | None = None) -> Float[Tensor, "n n"]:
        D = self.patterns
        if weights is not None:
            used = weights > 0
            D = D[used] * weights[used].sqrt()[:, None]
        return (self.X @ self.X.T) * (D.T @ D)

    def responses(self, G: Float[Tensor, "p a"], blocks: Tensor) -> Float[Tensor, "n q"]:
        return self.patterns[blocks].T * (self.X @ G[blocks].T)

    def design(self) -> Float[Tensor, "n k"]:
        return (self.patterns.T[:, :, None] * self.X[:, None, :]).reshape(len(self.X), -1)
