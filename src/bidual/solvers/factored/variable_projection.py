"""Newton's method on the hidden weights alone; the output weights are always the best ones for them."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.gauges import Factors
from bidual.numerics.linear_algebra import robust_cholesky
from bidual.solvers.factored.damped_newton import (
    DampedNewton,
    Model,
    as_columns,
    design_blocks,
    from_columns,
    repeat_blocks,
)
from bidual.solvers.factored.method import State
from bidual.solvers.factored.program import FactoredProgram

_EPS = torch.finfo(torch.float64).eps
_REFINEMENTS = 2


class Inner(NamedTuple):
    """The minimum over the output weights: alpha, the factor of C, and L^-1 1 / |L^-1 1| with an intercept."""

    alpha: Float[Tensor, "n c"]
    L: Float[Tensor, "n n"]
    ones: Float[Tensor, "n 1"] | None


@dataclass(frozen=True)
class VariableProjection(DampedNewton):
    r"""Golub and Pereyra's (1973) elimination of W from (17) and (18), for squared loss. With H = [A_p U_p]_p,

        phi(U) = beta/2 (tr Y^T C^-1 Y + |U|^2),     C = H H^T + beta diag(1/w),     alpha = C^-1 Y,
        W_p = S_p^T U_p with S_p = A_p^T alpha,      grad_p = beta (I - S_p S_p^T) U_p,
        Hessian = beta (T^T C^-1 T + (I - S_p S_p^T)_p),   T dU = sum_p A_p (dU_p U_p^T + U_p dU_p^T) S_p.

    phi is convex in the U_p U_p^T, and its Hessian at an optimum has no negative direction, because |S_p| <= 1 is dual
    feasibility. Far better conditioned than (U, W) together: the method for small beta.
    """

    name = "variable_projection"

    def _refusal(self, program: FactoredProgram) -> str | None:
        loss = program.problem.datafit.loss
        return super()._refusal(program) if loss.half_square else f"{self.name} needs squared loss, got {loss.name}."

    def _size(self, program: FactoredProgram) -> tuple[int, int]:
        (n, c), (p, a, m) = program.operator.output_shape, program.shapes[0]
        return n * c, p * a * m

    def init(self, program: FactoredProgram, factors: Factors) -> State:
        return _at(program, factors.U)

    def _model(self, program: FactoredProgram, state: State) -> Model:
        (p, a, m), c = program.shapes[0], program.operator.output_shape[1]
        U, B, beta = state.factors.U, design_blocks(program), program.problem.beta
        inner = _inner(program, U)
        S = torch.einsum("npiq,nk->piqk", B, inner.alpha).flatten(2)
        Q = beta * (torch.eye(a).to(S) - S @ S.mT)
        T = torch.einsum("npiq,pjqk->nkpji", B, (U.mT @ S).unflatten(2, (-1, c)))
        T += torch.einsum("nplq,plj,piqk->nkpji", B, U, S.unflatten(2, (-1, c)))
        J = torch.linalg.solve_triangular(inner.L, T.reshape(len(B), -1), upper=False)
        if inner.ones is not None:
            J = J - inner.ones @ (inner.ones.T @ J)
        return Model(as_columns(Q @ U), beta**0.5 * J.reshape(len(B) * c, p * m * a), repeat_blocks(Q, m), beta)

    def _moved(self, program: FactoredProgram, state: State, step: Tensor) -> State:
        p, _, m = program.shapes[0]
        return _at(program, state.factors.U + from_columns(step, p, m))


def _at(program: FactoredProgram, U: Float[Tensor, "p a m"]) -> State:
    """U with its best W. The value is that of the factors: errors of W enter it by their squares only."""
    S = torch.einsum("npiq,nk->piqk", design_blocks(program), _inner(program, U).alpha).flatten(2)
    factors = Factors(U, S.mT @ U)
    return State(factors, program.value(factors))


def _inner(program: FactoredProgram, U: Float[Tensor, "p a m"]) -> Inner:
    datafit = program.problem.datafit
    shift = program.problem.beta / datafit.weights
    H = torch.einsum("npiq,pij->npjq", design_blocks(program), U).flatten(1)
    L = robust_cholesky(H @ H.T + torch.diag(shift[:, 0]))
    ones = None
    if datafit.intercept:
        ones = torch.linalg.solve_triangular(L, torch.ones_like(shift), upper=False)
        ones = ones / torch.linalg.vector_norm(ones)
    alpha = _solve(L, ones, datafit.targets)
    for _ in range(_REFINEMENTS):  # C is as ill-conditioned as 1 / beta
        alpha = alpha + _solve(L, ones, datafit.targets - H @ (H.T @ alpha) - shift * alpha)
    return Inner(alpha, L, ones)


def _solve(L: Float[Tensor, "n n"], ones: Float[Tensor, "n 1"] | None, R: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
    """alpha of C alpha + 1 b^T = R with 1^T alpha = 0 if there is an intercept, and b = 0 if not."""
    half = torch.linalg.solve_triangular(L, R, upper=False)
    if ones is not None:
        half = half - ones @ (ones.T @ half)
    return torch.linalg.solve_triangular(L.T, half, upper=True)
