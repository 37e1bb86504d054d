"""Solving (K + diag(shift)) nu = R, the linear system of the kernel methods."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.numerics.linear_algebra import robust_cholesky
from bidual.numerics.sparse import gram, transposed, values_of
from bidual.operators import HasKernel, LiftedOperator
from bidual.types import as_protocol

Solve = Callable[[Tensor], tuple[Tensor, Tensor]]
_KEPT, _SMALL_BYTES = "_kept_kernel", 2**26


class ShiftedKernel:
    r"""K = A A* of one output, as an (n, n) matrix or as K = B B^T when the design B is narrow.

    ``factor(shift)`` returns a solver of (K + diag(shift)) nu + 1 b^T = R; with ``intercept`` b is such that
    1^T nu = 0, else b = 0. The last factor is kept: along a path the same shift comes again.
    """

    @classmethod
    def of(cls, operator: LiftedOperator, intercept: bool) -> "ShiftedKernel":
        """The kernel of an operator, cached with it if small."""
        kept = operator.__dict__.get(_KEPT)
        if kept is None or kept.intercept is not intercept:
            kept = cls(operator, intercept)
            if values_of(kept.matrix).numel() * kept.matrix.element_size() <= _SMALL_BYTES:
                operator.__dict__[_KEPT] = kept
        return kept

    def __init__(self, operator: LiftedOperator, intercept: bool) -> None:
        self.intercept = intercept
        self.narrow = is_narrow(operator)
        source = as_protocol(operator, HasKernel)
        self.matrix = source.design().to(torch.float64) if self.narrow else source.kernel()
        trace = values_of(self.matrix).square().sum() if self.narrow else self.matrix.diagonal().sum()
        self.mean_diagonal = float(trace) / len(self.matrix)
        self.last: tuple[Tensor, Solve] | None = None

    def factor(self, shift: Float[Tensor, " n"]) -> Solve:
        """A solver for this shift."""
        last = self.last  # read once: another thread may replace it
        if last is None or not torch.equal(last[0], shift):
            last = self.last = (shift, self._factor(shift))
        return last[1]

    def _factor(self, shift: Tensor) -> Solve:
        solve = self._narrow(shift) if self.narrow else _cholesky_solver(self._shifted(shift))
        if not self.intercept:
            return lambda R: (solve(R), R.new_zeros(R.shape[1]))
        ones = solve(torch.ones_like(shift)[:, None])
        total = ones.sum()

        def bordered(R: Tensor) -> tuple[Tensor, Tensor]:
            nu = solve(R)
            b = nu.sum(0) / total
            return nu - ones * b, b

        return bordered

    def _shifted(self, shift: Tensor) -> Tensor:
        M = self.matrix.clone()
        M.diagonal().add_(shift)
        return M

    def _narrow(self, shift: Tensor) -> Callable[[Tensor], Tensor]:
        """Woodbury: (S + B B^T)^-1 = S^-1 - S^-1 B (I + B^T S^-1 B)^-1 B^T S^-1.

        The difference cancels where B B^T is large beside S, so it is taken in float64 for any precision of R.
        """
        B, back, like = self.matrix, transposed(self.matrix), values_of(self.matrix)
        inverse = (1 / shift.to(like))[:, None]
        inner = gram(B, inverse)
        inner.diagonal().add_(1)
        solve = _cholesky_solver(inner)

        def woodbury(R: Tensor) -> Tensor:
            scaled = inverse * R.to(like)
            return (scaled - inverse * (B @ solve(back @ scaled))).to(R)

        return woodbury


def is_narrow(operator: LiftedOperator) -> bool:
    return 2 * as_protocol(operator, HasKernel).design_width < operator.output_shape[0]


def kernel_bytes(operator: LiftedOperator, itemsize: int) -> int:
    """The memory of the kernel and its factor."""
    n, k = operator.output_shape[0], as_protocol(operator, HasKernel).design_width
    return 2 * operator.design_bytes + 16 * k * k if is_narrow(operator) else 3 * itemsize * n * n


def _cholesky_solver(M: Tensor) -> Callable[[Tensor], Tensor]:
    """Two triangular solves, for few columns many times as fast as ``cholesky_solve``."""
    L = robust_cholesky(M)
    return lambda R: torch.linalg.solve_triangular(L.mT, torch.linalg.solve_triangular(L, R, upper=False), upper=True)
