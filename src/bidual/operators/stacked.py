"""Operators whose blocks are those of another one, several at a time: sub-networks."""

from functools import cached_property
from math import sqrt
from typing import Self

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bidual.operators.base import Depth, LiftedOperator
from bidual.operators.gated import GatedOperator
from bidual.runtime.memory import available_bytes

_SHARE = 0.25  # of the free memory that stored kernels may take


class StackedOperator(LiftedOperator):
    """Blocks of another operator, ``count`` at a time, one above the other: (P, a, b) becomes (P / count, count a, b).

    A group of blocks is then priced as one, as the units of a sub-network are (PR eq. 8).
    """

    def __init__(self, inner: LiftedOperator, count: int) -> None:
        if count < 1 or inner.block_shape[0] % count:
            raise ValueError(f"{inner.block_shape[0]} blocks cannot be stacked by {count}.")
        self.inner, self.count = inner, count

    @property
    def block_shape(self) -> tuple[int, int, int]:
        p, a, b = self.inner.block_shape
        return p // self.count, self.count * a, b

    @property
    def output_shape(self) -> tuple[int, int]:
        return self.inner.output_shape

    @property
    def like(self) -> Tensor:
        return self.inner.like

    @property
    def magnitude(self) -> float:
        return sqrt(self.count) * self.inner.magnitude

    @property
    def depth(self) -> Depth:
        return self.inner.depth

    @property
    def unit(self) -> str:
        return "sub-networks"

    def to(self, dtype: torch.dtype) -> Self:
        return type(self)(self.inner.to(dtype), self.count)

    def _forward(self, Z: Tensor) -> Tensor:
        return self.inner.forward(Z.reshape(self.inner.block_shape))

    def _adjoint(self, V: Tensor) -> Tensor:
        return self.inner.adjoint(V).reshape(self.block_shape)

    def select(self, blocks: Tensor) -> Self:
        each = torch.arange(self.count, device=blocks.device)
        return type(self)(self.inner.select((blocks[:, None] * self.count + each).flatten()), self.count)


class GatedSubNetworkOperator(StackedOperator):
    r"""A Z = sum_k D_2k sum_j D_1kj X Z_kj, the sum of three-layer sub-networks with given gates (PR eq. 7, 21).

    A :class:`GatedOperator` with the K m_1 patterns d_2k o d_1kj, m_1 of them to a block (m_1 d, c). The signs of the
    second layer are in Z, and norms do not depend on them. One output has the kernel

        A_k A_k^T = (X X^T) o (D_1k^T D_1k) o (d_2k d_2k^T),

    (n, n) for any m_1 and d; the K products of patterns are stored where memory allows.
    """

    inner: GatedOperator

    def __init__(
        self, X: Float[Tensor, "n d"], patterns: Bool[Tensor, "k m n"] | Float[Tensor, "k m n"], n_outputs: int
    ) -> None:
        super().__init__(GatedOperator(X, patterns.flatten(0, 1), n_outputs), patterns.shape[1])
        self.X, self.patterns, self.n_outputs = X, patterns.to(X.dtype), n_outputs

    @classmethod
    def of(
        cls, X: Float[Tensor, "n d"], first: Bool[Tensor, "k m n"], second: Bool[Tensor, "k n"], n_outputs: int
    ) -> Self:
        """From the patterns of both layers."""
        return cls(X, first & second[:, None], n_outputs)

    @property
    def design_width(self) -> int:
        return self.inner.design_width

    def to(self, dtype: torch.dtype) -> Self:
        return self if dtype == self.X.dtype else type(self)(self.X.to(dtype), self.patterns, self.n_outputs)

    def select(self, blocks: Tensor) -> Self:
        return type(self)(self.X, self.patterns[blocks], self.n_outputs)

    @cached_property
    def _shared(self) -> Float[Tensor, "k n n"] | None:
        """The number of units of sub-network k that are on at two samples; None where memory does not allow it."""
        k, _, n = self.patterns.shape
        if k * n * n * self.X.element_size() > _SHARE * available_bytes(self.X.device):
            return None
        return self.patterns.mT @ self.patterns

    def kernel(self, weights: Float[Tensor, " p"] | None = None) -> Float[Tensor, "n n"]:
        k, m, n = self.patterns.shape
        weights = self.X.new_ones(k) if weights is None else weights
        if self._shared is None:
            return self.inner.kernel(weights.repeat_interleave(m))
        return (self.X @ self.X.T) * (weights @ self._shared.flatten(1)).reshape(n, n)

    def responses(self, G: Float[Tensor, "p a"], blocks: Tensor) -> Float[Tensor, "n q"]:
        D = self.patterns[blocks]
        linear = G[blocks].reshape(*D.shape[:2], self.X.shape[1]) @ self.X.T
        return (D * linear).sum(1).T

    def design(self) -> Float[Tensor, "n k"]:
        return self.inner.design()
