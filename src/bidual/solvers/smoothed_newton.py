"""Newton's method on a smoothed gauge: smooth losses over a dictionary of some hundred neurons, from a warm start."""

from dataclasses import dataclass, replace
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.gauges import EuclideanGroups
from bidual.numerics.linear_algebra import robust_cholesky
from bidual.numerics.sparse import written_out
from bidual.operators import HasKernel
from bidual.problems.problem import Problem
from bidual.problems.solution import Limits
from bidual.solvers.driver import Solver
from bidual.types import Blocks, Matrix, as_protocol

_MOST_VARIABLES = 3000  # of which a dense Hessian is factored in every step
_FAR = 30.0  # times the last width, where smoothing begins at a warm start
_SHRINK = 0.15  # of the width, once its problem is solved
_SOLVED = 0.05  # of what smoothing costs, the decrease that is left then
_DUST = 3.0  # blocks up to so many widths are smoothing, not weights
_SHORTEST = 1e-8  # step of a line search


@dataclass
class _State:
    A: Float[Tensor, "n k"]
    Z: Blocks
    b: Float[Tensor, " c"]
    width: float
    value: float  # of the smoothed problem
    V: Matrix  # the gradient of F
    solved: bool = False  # to what its width is worth
    stuck: bool = False


@dataclass(frozen=True)
class SmoothedNewton(Solver):
    r"""|z| is replaced by (|z|^2 + mu^2)^(1/2), and mu shrinks:

        min_{Z, b}  sum_i w_i l(A_i Z + b, y_i) + beta sum_p (|Z_p|^2 + mu^2)^(1/2).

    At its minimum V = grad F has |A_p^T V| = beta |Z_p| (|Z_p|^2 + mu^2)^(-1/2) < beta: it is a dual point, with a gap
    of at most beta mu per block. A step factors the Hessian in all entries of Z and b; from a warm start ten to twenty
    steps are enough, where an interior point begins from the middle.

    Attributes:
        tol: the relative gap that is aimed for.
    """

    tol: float = 1e-6
    name = "smoothed_newton"
    needs = {"operator": (HasKernel,), "gauge": (EuclideanGroups,)}  # noqa: RUF012
    needs_smooth_loss = True
    instead = "fista"
    check_every = 1000
    max_steps = 200

    def _refusal(self, problem: Problem) -> str | None:
        (n, c), (p, rows, columns) = problem.operator.output_shape, problem.operator.block_shape
        k = p * rows * columns
        if columns != c or as_protocol(problem.gauge, EuclideanGroups).column_groups(c) != [list(range(c))]:
            return f"{self.name} needs blocks with one norm each."
        if k > _MOST_VARIABLES:
            return f"{self.name} is for at most {_MOST_VARIABLES} weights, there are {k}."
        return self._memory_refusal(8 * (3 * n * p * rows + 4 * (k + c) ** 2), problem.operator.like.device)

    def within(self, limits: Limits) -> Self:
        return replace(self, tol=limits.tol)

    def init(self, problem: Problem, start: Tensor | None, dual: Tensor | None) -> _State:
        A = written_out(as_protocol(problem.operator, HasKernel).design())
        Z = problem.operator.zeros() if start is None else start.clone()
        b = problem.datafit.offset(A @ Z.flatten(0, 1))
        state = _State(A, Z, b, 0.0, 0.0, torch.zeros_like(problem.datafit.targets))
        primal, _ = _evaluated(problem, state, Z, b)
        last = self._last_width(problem, primal)
        longest = float(_norms(Z).max()) if len(Z) else 0.0
        state.width = max(last, min(0.1 * longest, _FAR * last)) if longest else _FAR * last
        state.value, state.V = _evaluated(problem, state, Z, b)
        return state

    def _last_width(self, problem: Problem, primal: float) -> float:
        """Where smoothing costs what may be left: beta mu per block."""
        blocks = max(problem.operator.block_shape[0], 1)
        return max(self.tol, 1e-13) * max(primal, 1e-300) / (problem.beta * blocks)

    def step(self, problem: Problem, state: _State) -> _State:
        if state.solved:
            state.width *= _SHRINK
            state.value, state.V = _evaluated(problem, state, state.Z, state.b)
        slope = _slope(problem, state)
        move = -torch.cholesky_solve(slope[:, None], robust_cholesky(_hessian(problem, state)))[:, 0]
        decrease = -float(slope @ move)
        self._advance(problem, state, move, decrease)
        cost = problem.beta * state.width * len(state.Z)
        state.solved = decrease <= _SOLVED * max(cost, 1e-13 * abs(state.value))
        return state

    def _advance(self, problem: Problem, state: _State, move: Tensor, decrease: float) -> None:
        """The longest of the steps 1, 1/2, 1/4 and so on that decreases the value enough."""
        count, length = state.Z.numel(), 1.0
        dZ, db = move[:count].reshape(state.Z.shape), torch.zeros_like(state.b)
        db[:] = move[count:] if len(move) > count else 0.0
        while length > _SHORTEST:
            Z, b = state.Z + length * dZ, state.b + length * db
            value, V = _evaluated(problem, state, Z, b)
            if value <= state.value - 1e-4 * length * decrease + 1e-14 * abs(state.value):
                state.Z, state.b, state.value, state.V = Z, b, value, V
                return
            length /= 2
        state.stuck = True

    def point(self, problem: Problem, state: _State) -> Tensor:
        return state.Z * (_norms(state.Z) > _DUST * state.width)[:, None, None]

    def estimate(self, problem: Problem, state: _State) -> float | None:
        """The relative gap that V has, scaled into the dual's constraint."""
        if not state.solved:
            return None
        G = (state.A.T @ state.V).reshape(state.Z.shape)
        scale = min(1.0, problem.beta / max(float(_norms(G).max()), 1e-300)) if len(G) else 1.0
        dual = -float(problem.datafit.conjugate_rows(problem.datafit.into_domain(scale * state.V)).sum())
        return (state.value - dual) / max(state.value, 1e-300)

    def finished(self, state: _State) -> bool:
        return state.stuck


def _norms(Z: Blocks) -> Float[Tensor, " p"]:
    return torch.linalg.vector_norm(Z, dim=(1, 2))


def _lengths(state: _State, Z: Blocks) -> Float[Tensor, " p"]:
    """(|Z_p|^2 + mu^2)^(1/2)."""
    return (_norms(Z).square() + state.width**2).sqrt()


def _evaluated(problem: Problem, state: _State, Z: Blocks, b: Tensor) -> tuple[float, Matrix]:
    """The smoothed value, and the gradient of F, at an intercept that need not be the best."""
    fit = problem.datafit
    P = state.A @ Z.flatten(0, 1)
    price = float(_lengths(state, Z).sum())
    return fit.value_at(P, b) + problem.beta * price, fit.weights * fit.loss.grad(P + b, fit.targets)


def _slope(problem: Problem, state: _State) -> Float[Tensor, " k"]:
    """In the entries of Z, then in the intercepts if there are any."""
    directions = state.Z / _lengths(state, state.Z)[:, None, None]
    on_Z = (state.A.T @ state.V).reshape(state.Z.shape) + problem.beta * directions
    return torch.cat([on_Z.reshape(-1), state.V.sum(0)]) if problem.datafit.intercept else on_Z.reshape(-1)


def _hessian(problem: Problem, state: _State) -> Float[Tensor, "k k"]:
    fit, A, Z = problem.datafit, state.A, state.Z
    P = A @ Z.flatten(0, 1) + state.b
    if fit.intercept:
        A = torch.cat([A, A.new_ones(len(A), 1)], 1)
    c, k = Z.shape[2], A.shape[1]
    H = A.new_zeros(k, c, k, c)
    of_loss = fit.weights[:, :, None] * fit.loss.hessian(P, fit.targets)
    for q in range(c):
        for s in range(q + 1) if not fit.loss.separable else (q,):
            H[:, q, :, s] = A.T @ (of_loss[:, q, s, None] * A)
            H[:, s, :, q] = H[:, q, :, s]
    H = H.reshape(k * c, k * c)
    _add_gauge(problem.beta, Z, _lengths(state, Z), H)
    if fit.loss.shift_invariant and fit.intercept:  # one number added to all intercepts changes nothing
        H[-c:, -c:] += H.diagonal().mean() / c
    return H


def _add_gauge(beta: float, Z: Blocks, lengths: Tensor, H: Float[Tensor, "k k"]) -> None:
    """beta (I / r - z z^T / r^3) for every block, r its smoothed length."""
    rows = Z.flatten(1)
    m, k = rows.shape
    eye = torch.eye(k, dtype=Z.dtype, device=Z.device)
    along = rows / lengths[:, None]
    blocks = (eye - along[:, :, None] * along[:, None, :]) / lengths[:, None, None]
    places = torch.arange(m * k, device=Z.device).reshape(m, k)
    H[places[:, :, None], places[:, None, :]] += beta * blocks
