"""Newton's method in one variable per group: fast convergence to a tight gap for sums of Euclidean norms."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bidual.gauges import EuclideanGroups
from bidual.numerics.linear_algebra import robust_cholesky
from bidual.operators import HasKernel
from bidual.problems.problem import Problem
from bidual.solvers.driver import Solver
from bidual.types import as_protocol

_EXACT = {torch.float32: 1e-12, torch.float64: 1e-15}  # the relative size of changes that are rounding
_ROUNDS = 8  # of refinement
_SHORT = 700  # samples up to which a factor in float64 costs less than refining one in float32


@dataclass
class _Point:
    """The inner minimum over Z and b at given eta, for all sets of columns that share their norms.

    S is A* alpha by output, (P, rows, c); factors and values are one per set.
    """

    eta: Tensor  # (P, sets)
    alpha: Tensor
    S: Tensor
    factors: list[Tensor]
    values: list[float]

    def take(self, other: "_Point", number: int, columns: list[int]) -> None:
        """One set of columns from another point."""
        self.eta[:, number] = other.eta[:, number]
        self.alpha[:, columns], self.S[:, :, columns] = other.alpha[:, columns], other.S[:, :, columns]
        self.factors[number], self.values[number] = other.factors[number], other.values[number]


@dataclass
class _State:
    small: Problem  # the problem in the precision of the factors
    sets: list[list[int]]
    point: _Point
    done: list[bool]


@dataclass(frozen=True)
class EtaNewton(Solver):
    r"""|z| = min_eta (|z|^2 / eta + eta) / 2 turns squared loss with a group norm into a smooth problem in eta >= 0:

        min_eta  1/2 tr(Y^T alpha) + 1/2 sum eta,   (K_eta + beta diag(1/w)) alpha + 1 b^T = Y,   1^T alpha = 0,

    with K_eta = sum_p eta_p A_p A_p^T, gradient (1 - |A_p^T alpha|^2) / 2 and a Hessian from the columns
    A_p A_p^T alpha. Then Z_p = eta_p A_p^T alpha and V = -beta alpha. A projected Newton step with an active set of the
    bounds; 2 to 4 steps from a point with gap 1e-3. Matrices are factored in float32 and alpha is refined in float64,
    until the matrix is too ill-conditioned for that; from then on, and for few samples, everything is float64.
    """

    name = "eta_newton"
    needs = {"operator": (HasKernel,), "gauge": (EuclideanGroups,)}  # noqa: RUF012
    needs_squared_loss = True
    instead = "kernel_admm"
    check_every = 1

    def _refusal(self, problem: Problem) -> str | None:
        if not _groups(problem):
            return f"eta_newton needs a sum of Euclidean norms; {problem.gauge.name} with these outputs is none."
        n, p = problem.operator.output_shape[0], problem.operator.block_shape[0]
        need = 8 * ((4 + len(_groups(problem))) * n * n + 3 * n * p + 3 * p * p)
        return self._memory_refusal(need, problem.operator.like.device)

    def init(self, problem: Problem, start: Tensor | None, dual: Tensor | None) -> _State:
        problem = problem.to(torch.float64)
        sets, Y = _groups(problem), problem.datafit.targets
        start = None if start is None else _by_output(problem, start.to(Y))
        eta = Y.new_empty(problem.operator.block_shape[0], len(sets))
        for number, columns in enumerate(sets):
            if start is None or not bool(start[:, :, columns].any()):
                eta[:, number] = 0.01 * float(Y[:, columns].square().sum()) / (problem.beta * len(eta))
            else:
                eta[:, number] = torch.linalg.vector_norm(start[:, :, columns], dim=(1, 2))
        small = problem if len(Y) <= _SHORT else problem.to(torch.float32)
        small, point = _minimise(problem, small, sets, eta, range(len(sets)))
        return _State(small, sets, point, [False] * len(sets))

    def step(self, problem: Problem, state: _State) -> _State:
        problem = problem.to(torch.float64)
        slopes = _slopes(state)
        moves = {k: _move(problem, state, k, slopes[:, k]) for k, done in enumerate(state.done) if not done}
        for halving in range(12):
            if not moves:
                return state
            eta = state.point.eta.clone()
            for k, move in moves.items():
                eta[:, k] = (eta[:, k] + 0.5**halving * move).clamp(min=0)
            accepted = _accept(problem, state, eta, moves)
            moves = {k: move for k, move in moves.items() if k not in accepted}
        # otherwise eta_p <- |Z_p|, the majorisation step, which never increases the objective
        accepted = _accept(problem, state, state.point.eta * (1 - 2 * slopes).clamp(min=0).sqrt(), moves)
        state.done = [done or (k in moves and k not in accepted) for k, done in enumerate(state.done)]
        return state

    def point(self, problem: Problem, state: _State) -> Tensor:
        Z = problem.operator.zeros().to(torch.float64)
        for number, columns in enumerate(state.sets):
            eta = state.point.eta[:, number, None, None]
            _by_output(problem, Z)[:, :, columns] = eta * state.point.S[:, :, columns]
        return Z

    def candidates(self, problem: Problem, state: _State) -> Sequence[Tensor]:
        return (-problem.beta * state.point.alpha,)

    def finished(self, state: _State) -> bool:
        return all(state.done)


def _groups(problem: Problem) -> list[list[int]]:
    """The outputs that share their norms; none where a norm has only some readouts of an output."""
    outputs, columns = problem.operator.output_shape[1], problem.operator.block_shape[2]
    groups = as_protocol(problem.gauge, EuclideanGroups).column_groups(columns)
    if columns == outputs:
        return groups
    return [list(range(outputs))] if groups == [list(range(columns))] else []


def _by_output(problem: Problem, Z: Tensor) -> Tensor:
    """Blocks whose columns are the outputs: readouts are further rows."""
    return Z.view(len(Z), -1, problem.operator.output_shape[1])


def _minimise(
    problem: Problem, small: Problem, sets: list[list[int]], eta: Tensor, wanted: Collection[int]
) -> tuple[Problem, _Point]:
    """The inner minimum for the wanted sets, in float64 if the given precision is too low."""
    Y, factors = problem.datafit.targets, [eta.new_empty(0)] * len(sets)
    spread = torch.zeros_like(Y)  # which set a column belongs to, as eta by column below
    by_column = eta.new_zeros(len(eta), Y.shape[1])
    for k in wanted:
        factors[k] = _factor(small, problem.beta, eta[:, k])
        spread[:, sets[k]], by_column[:, sets[k]] = 1.0, eta[:, k : k + 1]

    def solve(R: Tensor) -> Tensor:
        solved = torch.zeros_like(R)
        for k in wanted:
            solved[:, sets[k]] = _solve(problem, factors[k], R[:, sets[k]])
        return solved

    alpha, size, shift = solve(Y), math.inf, problem.beta / problem.datafit.weights
    for _ in range(_ROUNDS):
        S = _by_output(problem, problem.operator.adjoint(alpha))
        predictions = problem.operator.forward((by_column[:, None, :] * S).view(problem.operator.block_shape))
        change = solve(spread * Y - shift * alpha - predictions)
        alpha = alpha + change
        before, size = size, float(torch.linalg.vector_norm(change) / torch.linalg.vector_norm(alpha).clamp(min=1e-300))
        if size <= 1e-12 or small is problem:
            break
        if not size <= min(0.1 * before, 0.1):
            return _minimise(problem, problem, sets, eta, wanted)
    values = [0.5 * float((Y * alpha)[:, sets[k]].sum()) + 0.5 * float(eta[:, k].sum()) for k in range(len(sets))]
    return small, _Point(eta, alpha, S, factors, values)


def _factor(small: Problem, beta: float, eta: Tensor) -> Tensor:
    M = as_protocol(small.operator, HasKernel).kernel(eta.to(small.operator.like))
    M.diagonal().add_(beta / small.datafit.weights[:, 0])
    return robust_cholesky(M)


def _solve(problem: Problem, L: Tensor, R: Tensor) -> Tensor:
    """M^-1 R, with a multiple of the constant added to R where there is an intercept, so that columns sum to zero."""
    ones = R.new_ones(len(R), 1) if problem.datafit.intercept else R[:, :0]
    right = torch.linalg.solve_triangular(L, torch.cat([R, ones], 1).to(L), upper=False)
    solved = torch.linalg.solve_triangular(L.mT, right, upper=True).to(R)
    if not problem.datafit.intercept:
        return solved
    alpha, one = solved[:, :-1], solved[:, -1:]
    return alpha - one * (alpha.sum(0) / one.sum())


def _slopes(state: _State) -> Tensor:
    """The gradient in eta, (P, sets)."""
    squares = state.point.S.square().sum(1)
    return 0.5 * (1 - torch.stack([squares[:, columns].sum(1) for columns in state.sets], 1))


def _move(problem: Problem, state: _State, number: int, slope: Tensor) -> Tensor:
    """The projected Newton step of one set."""
    eta, move = state.point.eta[:, number], torch.zeros_like(slope)
    free = ((eta > 0) | (slope < 0)).nonzero()[:, 0]
    if len(free):
        H = _hessian(state.small, state.point.factors[number], state.point.S[:, :, state.sets[number]], free)
        move[free] = _bounded_quadratic(H.to(eta), slope[free], eta[free]) - eta[free]
    return move


def _accept(problem: Problem, state: _State, eta: Tensor, wanted: Collection[int]) -> set[int]:
    """Accept the new eta of those sets whose value does not rise; mark those that no longer change as done."""
    eta = torch.where(eta < 1e-14 * eta.amax(0), 0.0, eta)
    state.small, found = _minimise(problem, state.small, state.sets, eta, wanted)
    exact, accepted = _EXACT[state.small.operator.like.dtype], set()
    for k in wanted:
        new, old = found.values[k], state.point.values[k]
        if new <= old * (1 + 100 * exact):
            same = torch.equal(eta[:, k] > 0, state.point.eta[:, k] > 0)
            state.done[k] = new >= old * (1 - exact) and same
            state.point.take(found, k, state.sets[k])
            accepted.add(k)
    return accepted


def _hessian(small: Problem, L: Tensor, S: Tensor, free: Tensor) -> Tensor:
    """sum_k R_k^T M^-1 R_k over the columns k, with R_k = [A_p S_p[:, k]]_p, and the intercept projected out."""
    S = S.to(L)
    H = S.new_zeros(len(free), len(free))
    ones = torch.linalg.solve_triangular(L, S.new_ones(len(L), 1), upper=False)
    for k in range(S.shape[2]):
        R = as_protocol(small.operator, HasKernel).responses(S[:, :, k], free)
        W = torch.linalg.solve_triangular(L, R, upper=False)
        H += W.T @ W
        if small.datafit.intercept:
            t = W.T @ ones
            H -= t @ t.T / ones.square().sum()
    return H


def _bounded_quadratic(H: Tensor, gradient: Tensor, eta: Tensor) -> Tensor:
    """The minimiser over x >= 0 of <gradient, x - eta> + 1/2 (x - eta)^T H (x - eta), dropping variables that leave."""
    H = H + torch.diag(1e-10 * H.diagonal() + torch.finfo(H.dtype).tiny)
    free = torch.ones(len(eta), dtype=torch.bool, device=eta.device)
    for _ in range(len(eta) + 1):
        x = torch.zeros_like(eta)
        if not bool(free.any()):
            return x
        right = -gradient[free] + H[free][:, ~free] @ eta[~free]
        x[free] = eta[free] + torch.cholesky_solve(right[:, None], robust_cholesky(H[free][:, free]))[:, 0]
        leaving = free & (x < 0)
        if not bool(leaving.any()):
            return x
        free = free & ~leaving
    return eta
