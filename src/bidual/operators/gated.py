"""Operators on plain samples: linear and gated."""

from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Self

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bidual.numerics.rounding import length
from bidual.numerics.sparse import is_sparse, row_gram, scaled_rows, side_by_side, take_rows, transposed, values_of
from bidual.operators.base import Depth, LiftedOperator

_KEPT_BYTES = 2**28  # patterns are kept as numbers up to this size; beyond it they stay one byte each
_AT_ONCE = 2**23  # numbers per tile of samples


class SampleOperator(LiftedOperator):
    """An operator on plain samples X (n, d), which may be sparse, with ``n_outputs`` columns of predictions.

    Solvers multiply with X by ``times`` and ``back_times``.
    """

    X: Float[Tensor, "n d"]
    n_outputs: int

    @property
    def output_shape(self) -> tuple[int, int]:
        return len(self.X), self.n_outputs

    @property
    def like(self) -> Tensor:
        return values_of(self.X)

    @property
    def design_width(self) -> int:
        p, rows, _ = self.block_shape
        return p * rows

    @cached_property
    def magnitude(self) -> float:
        return length(values_of(self.X))

    @property
    def multiplications(self) -> int:
        return values_of(self.X).numel() * self.block_shape[0] * self.n_outputs

    @property
    def design_bytes(self) -> int:
        """The memory of the design in float64; with its transpose and the places of its entries where X is sparse."""
        entries = values_of(self.X).numel() * self.block_shape[0]
        return (24 if is_sparse(self.X) else 8) * entries

    def times(self, U: Float[Tensor, "d k"], out: Tensor | None = None) -> Float[Tensor, "n k"]:
        """X U."""
        return torch.mm(self.X, U, out=out)

    def back_times(self, H: Float[Tensor, "n k"]) -> Float[Tensor, "d k"]:
        """X^T H."""
        return self._kept_transposed @ H

    @cached_property
    def _kept_transposed(self) -> Float[Tensor, "d n"]:
        return transposed(self.X)

    @abstractmethod
    def rows(self, rows: Tensor) -> Self:
        """The operator on some of the samples."""


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
        return self.back_times(V).expand(self.block_shape)

    def select(self, blocks: Tensor) -> Self:
        return type(self)(self.X, self.n_outputs, len(blocks))

    def rows(self, rows: Tensor) -> Self:
        return type(self)(take_rows(self.X, rows), self.n_outputs, self.n_blocks)

    def kernel(self, weights: Float[Tensor, " p"] | None = None) -> Float[Tensor, "n n"]:
        K = row_gram(self.X)
        return K * (self.n_blocks if weights is None else weights.sum())

    def responses(self, G: Float[Tensor, "p a"], blocks: Tensor) -> Float[Tensor, "n q"]:
        return self.X @ G[blocks].T

    def design(self) -> Float[Tensor, "n k"]:
        return self.X if self.n_blocks == 1 else side_by_side([self.X] * self.n_blocks)


class GatedOperator(SampleOperator):
    r"""A Z = sum_p D_p X Z_p, with D_p the diagonal 0/1 matrix of activation pattern p (BM eq. 5).

    Forward and adjoint are products with the constant pattern matrix D (n, P), so that no (n, P, c) array is made:

        A Z = rowsum_d( X o (D Z) ),      A* V = D^T [v_1 X | ... | v_c X],      A A* = (X X^T) o (D D^T).

    D may carry signs, -1 instead of 1. Both go over tiles of samples, so that no (n, d c) array is made.
    """

    def __init__(
        self, X: Float[Tensor, "n d"], patterns: Bool[Tensor, "p n"] | Float[Tensor, "p n"], n_outputs: int
    ) -> None:
        if patterns.shape[1] != len(X):
            raise ValueError(f"patterns must have one column per sample ({len(X)}), got {patterns.shape[1]}.")
        self.X = X
        self.patterns = _one_byte(patterns)  # (P, n): blocks are rows, so that selecting blocks is cheap
        self.n_outputs = n_outputs

    @property
    def block_shape(self) -> tuple[int, int, int]:
        return len(self.patterns), self.X.shape[1], self.n_outputs

    @property
    def depth(self) -> Depth:
        """A forward product adds up blocks, then features; an adjoint adds up tiles, each a sum over its samples."""
        (p, d, _), size = self.block_shape, self._tile_size
        return Depth(p + d, min(size, len(self.X)) + -(-len(self.X) // size) + 4)

    def to(self, dtype: torch.dtype) -> Self:
        """Cached, so that caches of the converted operator serve a whole path."""
        if dtype == self.X.dtype:
            return self
        if dtype not in self._kept_conversions:
            self._kept_conversions[dtype] = type(self)(self.X.to(dtype), self.patterns, self.n_outputs)
        return self._kept_conversions[dtype]

    @cached_property
    def _kept_conversions(self) -> dict[torch.dtype, Self]:
        return {}

    def _forward(self, Z: Tensor) -> Tensor:
        P, weights = self.like.new_empty(self.output_shape), Z.flatten(1)
        for rows, D in self._tiles():
            X = self.X[rows]
            P[rows] = torch.bmm(X[:, None, :], (D.T @ weights).view(*X.shape, self.n_outputs))[:, 0]
        return P

    def _adjoint(self, V: Tensor) -> Tensor:
        G = self.zeros()
        for rows, D in self._tiles():
            scaled = (self.X[rows][:, :, None] * V[rows][:, None, :]).flatten(1)
            G.flatten(1).addmm_(D, scaled)
        return G

    def select(self, blocks: Tensor) -> Self:
        part = type(self)(self.X, self.patterns[blocks], self.n_outputs)
        if self._kept_numbers is not None:
            part.__dict__["_kept_numbers"] = self._kept_numbers[blocks]
        return part

    def rows(self, rows: Tensor) -> Self:
        return type(self)(take_rows(self.X, rows), self.patterns[:, rows], self.n_outputs)

    def kernel(self, weights: Float[Tensor, " p"] | None = None) -> Float[Tensor, "n n"]:
        D = self._mask(slice(None))
        if weights is not None:
            used = weights > 0
            D = D[used] * weights[used].sqrt()[:, None]
        return (D.T @ D).mul_(row_gram(self.X))

    def responses(self, G: Float[Tensor, "p a"], blocks: Tensor) -> Float[Tensor, "n q"]:
        return (self.X @ G[blocks].T).mul_(self._mask(slice(None))[blocks].T)

    def design(self) -> Float[Tensor, "n k"]:
        return (self.patterns.T[:, :, None] * self.X[:, None, :]).flatten(1)

    @cached_property
    def _kept_numbers(self) -> Float[Tensor, "p n"] | None:
        """The patterns in the precision of X, where that takes little memory."""
        small = self.patterns.numel() * self.like.element_size() <= _KEPT_BYTES
        return self.patterns.to(self.X.dtype) if small else None

    def _mask(self, rows: slice) -> Float[Tensor, "p r"]:
        return self.patterns[:, rows].to(self.X.dtype) if self._kept_numbers is None else self._kept_numbers[:, rows]

    @property
    def _tile_size(self) -> int:
        p, d, c = self.block_shape
        return max(_AT_ONCE // max(p + d * c, 1), 1)

    def _tiles(self) -> Iterator[tuple[slice, Float[Tensor, "p r"]]]:
        """Slices of samples with their patterns."""
        n, size = len(self.X), self._tile_size
        for start in range(0, n, size):
            rows = slice(start, min(start + size, n))
            yield rows, self._mask(rows)


class SparseGatedOperator(GatedOperator):
    r"""The gated operator on sparse samples, which are multiplied with some blocks at a time and never written out.

    A Z = sum_p D_p (X Z_p),      A* V = X^T [D_1 V | ... | D_P V].
    """

    @property
    def depth(self) -> Depth:
        """A forward product adds up features, then blocks; entries that are not kept count as if they were."""
        p, d, _ = self.block_shape
        return Depth(p + d, len(self.X))

    def _forward(self, Z: Tensor) -> Tensor:
        P = self.like.new_zeros(self.output_shape)
        for blocks in self._chunks(Z.flatten(1).any(1).nonzero()[:, 0]):
            hidden = self.times(Z[blocks].transpose(0, 1).flatten(1)).view(len(P), len(blocks), -1)
            P += hidden.mul_(self._numbers(blocks).T[:, :, None]).sum(1)
        return P

    def _adjoint(self, V: Tensor) -> Tensor:
        G = self.zeros()
        for blocks in self._chunks(torch.arange(len(G), device=G.device)):
            gated = (self._numbers(blocks).T[:, :, None] * V[:, None, :]).flatten(1)
            G[blocks] = self.back_times(gated).view(G.shape[1], len(blocks), -1).transpose(0, 1)
        return G

    def select(self, blocks: Tensor) -> Self:
        part = super().select(blocks)
        if "_kept_transposed" in self.__dict__:
            part.__dict__["_kept_transposed"] = self._kept_transposed
        return part

    def design(self) -> Float[Tensor, "n k"]:
        """In compressed rows."""
        return side_by_side([scaled_rows(pattern, self.X) for pattern in self.patterns])

    def _numbers(self, blocks: Tensor) -> Float[Tensor, "q n"]:
        return self.patterns[blocks].to(self.like) if self._kept_numbers is None else self._kept_numbers[blocks]

    def _chunks(self, blocks: Tensor) -> tuple[Tensor, ...]:
        """Some blocks at a time, so that hidden values and weights of about a tile are held."""
        n, size = len(self.X), max(_AT_ONCE // max((len(self.X) + self.X.shape[1]) * self.n_outputs, 1), 1)
        return blocks.split(size) if n and len(blocks) else ()


def gated_operator(
    X: Float[Tensor, "n d"], patterns: Bool[Tensor, "p n"] | Float[Tensor, "p n"], n_outputs: int
) -> GatedOperator:
    """The gated operator for samples that may be sparse."""
    return (SparseGatedOperator if is_sparse(X) else GatedOperator)(X, patterns, n_outputs)


def _one_byte(patterns: Tensor) -> Tensor:
    """Patterns as one byte each, if they are 0, 1 or -1."""
    if patterns.dtype == torch.bool:
        return patterns
    signs = patterns.to(torch.int8)
    if not bool((signs == patterns).all()):
        raise ValueError("patterns must be 0, 1 or -1, got other numbers; scale X or the blocks instead.")
    return signs
