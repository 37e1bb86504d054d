"""The linear map A from lifted variables to predictions."""

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.types import Blocks, Matrix, as_protocol


class Depth(NamedTuple):
    """The number of roundings of a term A_ij Z_j of A Z (``forward``), or A_ij V_i of A* V (``adjoint``).

    For a plain sum of k products it is k. Rounding errors are at most this many units of |A| |Z| and |A|^T |V|.
    """

    forward: int
    adjoint: int


class LiftedOperator(ABC):
    """A: Z (p, a, b) -> predictions (n, c), and its adjoint.

    Subclasses write ``_forward``, ``_adjoint``, ``select``, ``to`` and the four properties; forward and adjoint are
    checked for shape here.
    """

    @property
    @abstractmethod
    def block_shape(self) -> tuple[int, int, int]:
        """(blocks, rows, cols) of a lifted variable."""

    @property
    @abstractmethod
    def output_shape(self) -> tuple[int, int]:
        """(n, c) of the predictions."""

    @property
    @abstractmethod
    def like(self) -> Tensor:
        """A tensor of this operator's dtype and device, to make others from."""

    @property
    @abstractmethod
    def magnitude(self) -> float:
        r"""A number m with | |A_p|^T |V| |_F <= m |V|_F for every block p; rounding errors are proportional to it."""

    @property
    def excess(self) -> float:
        """The relative excess of the lengths of hidden weights over their price, besides rounding in float64."""
        return 0.0

    @property
    def depth(self) -> Depth:
        """Of plain sums over all entries, unless overridden; computed entries of A count with their own operations."""
        (p, a, b), (n, c) = self.block_shape, self.output_shape
        return Depth(p * a * b + 64, n * c + p + 64)

    @property
    def multiplications(self) -> int:
        """The multiplications of one product, from its shapes."""
        return self.output_shape[0] * math.prod(self.block_shape)

    @property
    def design_bytes(self) -> int:
        """The memory of the design of an operator that has one, in float64."""
        return 8 * self.multiplications // max(self.output_shape[1], 1)

    @property
    def unit(self) -> str:
        """The word for its neurons, in the plural."""
        return "neurons"

    @abstractmethod
    def to(self, dtype: torch.dtype) -> Self:
        """The same operator in another precision."""

    def __getstate__(self) -> dict[str, Any]:
        """The state without caches."""
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_kept")}

    def forward(self, Z: Blocks) -> Matrix:
        """A Z."""
        _has_shape("lifted variable", Z, self.block_shape)
        return self._forward(Z)

    def adjoint(self, V: Matrix) -> Blocks:
        """A* V."""
        _has_shape("dual variable", V, self.output_shape)
        return self._adjoint(V)

    @abstractmethod
    def select(self, blocks: Tensor) -> Self:
        """The operator restricted to some blocks, given by their indices."""

    def forward_of(self, Z: Blocks, blocks: Tensor) -> Matrix:
        """A Z for a Z that is zero outside some blocks."""
        return self.select(blocks)._forward(Z[blocks])

    def zeros(self) -> Blocks:
        return self.like.new_zeros(self.block_shape)

    def dense(self) -> Float[Tensor, "m k"]:
        """A as a matrix from Z.flatten() to predictions.flatten(); for tests and small conic programs."""
        identity = torch.eye(self.zeros().numel(), dtype=self.like.dtype, device=self.like.device)
        return torch.stack([self._forward(e.reshape(self.block_shape)).flatten() for e in identity], 1)

    def norm_squared(self, generator: torch.Generator, rounds: int = 30) -> float:
        """An estimate of |A|^2 by power iteration, from below."""
        Z = torch.randn(self.block_shape, generator=generator, dtype=torch.float64).to(self.like)
        size = 0.0
        for _ in range(rounds):
            size = float(torch.linalg.vector_norm(Z))
            if size == 0:
                return 0.0
            Z = self._adjoint(self._forward(Z / size))
        return float(torch.linalg.vector_norm(Z))

    @abstractmethod
    def _forward(self, Z: Tensor) -> Tensor: ...

    @abstractmethod
    def _adjoint(self, V: Tensor) -> Tensor: ...


@runtime_checkable
class HasKernel(Protocol):
    """Outputs do not mix: A Z = B Z.reshape(-1, c) with the design B (n, k), and A A* = K kron I_c with K = B B^T.

    Without a readout k is blocks * rows; with one, a block (rows, readouts * c) has rows * readouts columns in B.
    """

    @property
    def design_width(self) -> int:
        """k."""

    def kernel(self, weights: Float[Tensor, " p"] | None = None) -> Float[Tensor, "n n"]:
        """sum_p weights_p A_p A_p^T for one output."""

    def responses(self, G: Float[Tensor, "p k"], blocks: Tensor) -> Float[Tensor, "n q"]:
        """The columns B_p G_p for one output and the given blocks."""

    def design(self) -> Float[Tensor, "n k"]:
        """B, whose columns are the features of one output; in compressed rows where samples are sparse."""


def kernel_by_blocks(
    operator: LiftedOperator, weights: Float[Tensor, " p"] | None, at_once: int
) -> Float[Tensor, "n n"]:
    """B B^T of an operator that has a kernel, from a few blocks of the design at a time, ``at_once`` numbers or so."""
    n, p = operator.output_shape[0], operator.block_shape[0]
    K = operator.like.new_zeros(n, n)
    used = torch.arange(p, device=K.device) if weights is None else weights.nonzero()[:, 0]
    per_block = as_protocol(operator, HasKernel).design_width // max(p, 1)
    for blocks in used.split(max(at_once // max(n * per_block, 1), 1)):
        B = as_protocol(operator.select(blocks), HasKernel).design()
        if weights is not None:
            B = B * weights[blocks].sqrt().repeat_interleave(per_block)
        K.addmm_(B, B.T)
    return K


def _has_shape(what: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise ValueError(f"the {what} must have shape {shape}, got {tuple(tensor.shape)}.")
