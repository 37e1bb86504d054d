"""A primal-dual interior point in one variable per neuron: squared loss over a dictionary, to a gap of 1e-9."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bidual.gauges import EuclideanGroups
from bidual.numerics.linear_algebra import robust_cholesky
from bidual.numerics.sparse import written_out
from bidual.operators import HasKernel
from bidual.problems.problem import Problem
from bidual.solvers.driver import Solver
from bidual.types import as_protocol


@dataclass
class _State:
    A: Tensor  # (n, m a), weighted and centred if there is an intercept
    Y: Tensor  # (n, c), likewise
    gram: Tensor  # A^T A
    correlation: Tensor  # A^T Y
    eta: Tensor
    z: Tensor  # multipliers of eta >= 0
    Z: Tensor  # (m a, c)
    S: Tensor  # A^T (Y - A Z) / beta
    inverse: Tensor  # (beta I + E G E)^-1
    gap: float = float("inf")
    idle: int = 0


@dataclass(frozen=True)
class EtaInteriorPoint(Solver):
    r"""|z| = min_eta (|z|^2 / eta + eta) / 2 turns squared loss with one group per neuron into

        min_{eta >= 0}  phi(eta) = 1/2 tr Y^T (I + A diag(eta) A^T / beta)^-1 Y / beta + 1/2 sum eta,

    with Z = E C^-1 E A^T Y, E = diag(eta)^(1/2), C = beta I + E A^T A E, S = A^T (Y - A Z) / beta, gradient
    (1 - |S_p|^2) / 2 and scaled Hessian E H E = (S S^T) o (I - beta C^-1), summed over the a rows of each neuron. Given
    A^T A, only one product with A depends on n: a step costs two factorisations of size m a.
    """

    shrink: float = 0.1  # the factor by which a step aims to reduce the complementarity
    name = "eta_interior_point"
    needs = {"operator": (HasKernel,), "gauge": (EuclideanGroups,)}  # noqa: RUF012
    needs_squared_loss = True
    instead = "eta_newton"
    check_every = 1000

    def _refusal(self, problem: Problem) -> str | None:
        (n, c), (p, rows, columns) = problem.operator.output_shape, problem.operator.block_shape
        m = p * rows
        if columns != c or as_protocol(problem.gauge, EuclideanGroups).column_groups(c) != [list(range(c))]:
            return f"{self.name} needs a dictionary of neurons with one norm each."
        return self._memory_refusal(8 * (2 * n * m + 6 * m * m), problem.operator.like.device)

    def init(self, problem: Problem, start: Tensor | None, dual: Tensor | None) -> _State:
        A, Y = _centred(problem)
        gram, correlation = A.T @ A, A.T @ Y
        size = float(torch.linalg.matrix_norm(Y)) / (float(gram.diagonal().mean()) ** 0.5 + 1e-300)
        eta, unset = A.new_full((problem.operator.block_shape[0],), size), A.new_zeros(0)
        state = _State(A, Y, gram, correlation, eta, unset, unset, unset, unset)
        while True:  # for large eta every neuron is slack, which makes the multipliers feasible
            _evaluate(problem, state)
            slack = _slope(state)
            if float(slack.min()) > 0.05:
                state.z = slack
                return state
            state.eta = 4 * state.eta

    def step(self, problem: Problem, state: _State) -> _State:
        root, g, m = state.eta.sqrt(), _slope(state), len(state.eta)
        H = (state.S @ state.S.T) * (torch.eye(len(state.S)).to(g) - problem.beta * state.inverse)
        H = H.reshape(m, len(H) // m, m, -1).sum((1, 3))
        L = robust_cholesky(H + torch.diag(state.z))
        aim = self.shrink * float(state.eta @ state.z) / len(g)
        move = root * torch.cholesky_solve((root * (aim / state.eta - g))[:, None], L)[:, 0]
        turn = aim / state.eta - state.z - state.z / state.eta * move
        state.eta = state.eta + _within(state.eta, move) * move
        state.z = state.z + _within(state.z, turn) * turn
        before = state.gap
        _evaluate(problem, state)
        state.idle = state.idle + 1 if state.gap > 0.9 * before else 0
        return state

    def point(self, problem: Problem, state: _State) -> Tensor:
        return state.Z.reshape(problem.operator.block_shape) * (state.eta > 1e-3 * state.z)[:, None, None]

    def estimate(self, problem: Problem, state: _State) -> float | None:
        return state.gap

    def finished(self, state: _State) -> bool:
        return state.idle >= 5


def _centred(problem: Problem) -> tuple[Tensor, Tensor]:
    """The design and the targets, scaled by the square roots of the weights, with the intercept projected out."""
    A, Y = written_out(as_protocol(problem.operator, HasKernel).design()), problem.datafit.targets
    w = problem.datafit.weights
    if problem.datafit.intercept:
        A, Y = A - (w * A).sum(0) / w.sum(), Y - (w * Y).sum(0) / w.sum()
    return w.sqrt() * A, w.sqrt() * Y


def _evaluate(problem: Problem, state: _State) -> None:
    """Z, S and C^-1 at eta, and the relative gap of Z and its residual."""
    root, beta = state.eta.sqrt().repeat_interleave(problem.operator.block_shape[1]), problem.beta
    C = root[:, None] * state.gram * root
    C.diagonal().add_(beta)
    L = robust_cholesky(C)
    state.inverse = torch.cholesky_inverse(L)
    state.Z = root[:, None] * torch.cholesky_solve(root[:, None] * state.correlation, L)
    residual = state.Y - state.A @ state.Z
    state.S = state.A.T @ residual / beta
    price = float(_norms(state, state.Z).sum())
    primal = 0.5 * float(residual.square().sum()) + beta * price
    s = 1 / max(1.0, float(_norms(state, state.S).max()))
    dual = s * float((residual * state.Y).sum()) - 0.5 * s * s * float(residual.square().sum())
    state.gap = (primal - dual) / max(primal, 1e-300)


def _norms(state: _State, rows: Tensor) -> Tensor:
    """The Frobenius norm of every neuron's rows."""
    return torch.linalg.vector_norm(rows.reshape(len(state.eta), -1), dim=1)


def _slope(state: _State) -> Tensor:
    """The gradient of phi."""
    return 0.5 * (1 - _norms(state, state.S).square())


def _within(x: Tensor, move: Tensor) -> float:
    """The step that stays positive, 0.99 of the way to the border, at most 1."""
    shrinking = move < 0
    return min(1.0, 0.99 * float((-x / move)[shrinking].min())) if bool(shrinking.any()) else 1.0
