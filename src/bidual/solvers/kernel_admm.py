"""ADMM on the gated kernel with Anderson acceleration: the fast way to a moderate gap."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt

import torch
from torch import Tensor

from bidual.abilities import ability
from bidual.anderson import Anderson
from bidual.driver import Solver
from bidual.gauges import Proximable
from bidual.memory import available_bytes, human_bytes
from bidual.operators import HasKernel
from bidual.problem import Problem
from bidual.solvers.kernel import ShiftedKernel, Solve, kernel_bytes

_FAR = 1e6


@dataclass
class _State:
    problem: Problem
    kernel: ShiftedKernel
    direct: bool
    rho: float
    tau: float
    V: Tensor  # fixed-point variable: Z = prox(V), multiplier U = V - Z
    AV: Tensor
    v: Tensor  # the same for the predictions: q = prox_F(v), multiplier u = v - q; unused if direct
    Z: Tensor
    AZ: Tensor
    q: Tensor
    solve: Solve
    nu: Tensor
    G: Tensor
    b: Tensor
    anderson: Anderson = field(default_factory=Anderson)
    steps: int = 0
    guess: float = 1.0
    best_guess: float = float("inf")
    since_best: int = 0
    closest: float = float("inf")  # the shortest move so far
    lost: bool = False


@dataclass(frozen=True)
class KernelADMM(Solver):
    r"""Alternating directions with the splitting W = Z and (for losses other than squared) A W + 1 b^T = q.

    One factorisation of K + shift, K = A A*, serves all steps. With T = Z - U and s the target of the W-step,

        nu = (K + shift)^-1 (s - A T - 1 b^T),   W = T + A* nu,   A W = s - 1 b^T - shift nu  exactly,

    so -rho nu is a dual candidate whose A* is already known, and A T follows by recursion from A Z. For squared loss
    s = Y and shift = rho / w; otherwise s = q - u and shift = rho / tau. The penalties rho, tau follow the sizes of
    the multipliers relative to the variables.
    """

    dtype: str = "float32"
    relaxation: float = 1.7
    patience: int = 80

    name = "kernel_admm"
    needs = {"operator": (HasKernel,), "gauge": (Proximable,)}  # noqa: RUF012
    instead = "fista"
    check_every = 50

    def _refusal(self, problem: Problem) -> str | None:
        need = kernel_bytes(problem.operator, 4 if self.dtype == "float32" else 8)
        if need <= available_bytes(problem.operator.like.device):
            return None
        return f"kernel_admm needs {human_bytes(need)} for its kernel matrix, more than there is."

    def init(self, problem: Problem, start: Tensor | None, dual: Tensor | None) -> _State:
        small = problem.to(getattr(torch, self.dtype))
        kernel = ShiftedKernel(small.operator, small.datafit.intercept)
        direct = small.datafit.loss.half_square
        tau = 1.0 if direct else 0.5 * (small.datafit.smoothness or 1.0)
        beta_max = problem.beta_max
        ratio = min(problem.beta / beta_max, 1.0) if beta_max > 0 else 1.0
        rho = max(0.9 * tau * kernel.mean_diagonal * ratio**0.7, 1e-30)
        Z = small.operator.zeros() if start is None else start.to(small.operator.like)
        AZ = small.operator.forward(Z)
        b = small.datafit.offset(AZ)
        V, v = Z, AZ + b
        if dual is not None:
            dual = dual.to(AZ)
            V, v = Z - small.operator.adjoint(dual) / rho, v + dual / tau
        state = _State(
            small,
            kernel,
            direct,
            rho,
            tau,
            V,
            AZ,
            v,
            Z,
            AZ,
            AZ + b,
            _unset,
            torch.zeros_like(AZ),
            torch.zeros_like(Z),
            b,
        )
        state.AV = small.operator.forward(V)
        state.solve = kernel.factor(_shift(state))
        _take_proxes(state)
        return state

    def step(self, problem: Problem, state: _State) -> _State:
        if state.steps in (12, 30, 70, 150, 310, 630, 1270):
            _rescale(state)
        state.steps += 1
        try:
            self._advance(state)
        except torch.linalg.LinAlgError:  # numbers that have outgrown the precision
            state.lost = True
        if state.lost:
            return state
        if state.steps % 25 == 0:
            state.AV = state.problem.operator.forward(state.V)  # the recursion drifts in float32
        if state.steps % 5 == 0:
            self._watch(state)
        return state

    def _advance(self, state: _State) -> None:
        data, alpha = state.problem.datafit, self.relaxation
        s = data.targets if state.direct else 2 * state.q - state.v
        state.nu, b = state.solve(s - (2 * state.AZ - state.AV))
        state.b = b
        state.G = state.problem.operator.adjoint(state.nu)
        AW = s - b - _shift(state)[:, None] * state.nu
        moves = [alpha * (state.G - (state.V - state.Z)), alpha * (AW - state.AZ)]
        parts = [state.V + moves[0], state.AV + moves[1]]
        residual = moves[0].flatten()
        if not state.direct:
            move = alpha * (AW + b - state.q)
            parts.append(state.v + move)
            residual = torch.cat([residual, sqrt(state.tau / state.rho) * move.flatten()])
        size = float(torch.linalg.vector_norm(residual))
        state.closest = min(state.closest, size)
        if not size <= _FAR * state.closest:  # a kernel too ill-conditioned for this precision makes steps diverge
            state.lost = True
            return
        mixed = state.anderson.mix(residual, tuple(parts))
        state.V, state.AV = mixed[0], mixed[1]
        state.v = state.v if state.direct else mixed[2]
        _take_proxes(state)

    def _watch(self, state: _State) -> None:
        """A guess of the relative gap in working precision, and how long since it last fell."""
        problem, theta = state.problem, -state.rho * state.nu
        primal = problem.datafit.value_at(state.AZ, state.b) + problem.beta * problem.gauge.value(state.Z)
        polar = problem.gauge.polar(state.rho * state.G).upper
        scale = min(1.0, problem.beta / polar) if polar > 0 else 1.0
        dual = -problem.datafit.conjugate(scale * problem.datafit.into_domain(theta))
        state.guess = (primal - dual) / primal if primal > 0 else 0.0
        if 0 < state.guess < 0.9 * state.best_guess:
            state.best_guess, state.since_best = state.guess, 0
        else:
            state.since_best += 5

    def point(self, problem: Problem, state: _State) -> Tensor:
        return state.Z.to(problem.operator.like)

    def candidates(self, problem: Problem, state: _State) -> Sequence[Tensor]:
        like = problem.operator.like
        own = [(-state.rho * state.nu).to(like)]
        return own if state.direct else [*own, (state.tau * (state.v - state.q)).to(like)]

    def estimate(self, problem: Problem, state: _State) -> float | None:
        return state.guess if state.steps % 5 == 0 else None

    def finished(self, state: _State) -> bool:
        return state.lost or state.since_best >= self.patience


def _unset(R: Tensor) -> tuple[Tensor, Tensor]:
    raise RuntimeError("the kernel has not been factored yet")


def _shift(state: _State) -> Tensor:
    weights = state.problem.datafit.weights[:, 0]
    return state.rho / weights if state.direct else torch.full_like(weights, state.rho / state.tau)


def _take_proxes(state: _State) -> None:
    problem = state.problem
    state.Z = ability(problem.gauge, Proximable).prox(state.V, problem.beta / state.rho)
    active = state.Z.flatten(1).any(1).nonzero()[:, 0]
    if len(active) < 0.75 * len(state.Z):
        state.AZ = problem.operator.forward_of(state.Z, active)
    else:
        state.AZ = problem.operator.forward(state.Z)
    if not state.direct:
        state.q = problem.datafit.prox(state.v, 1 / state.tau, start=state.q)


def _rescale(state: _State) -> None:
    """rho <- 0.45 |multiplier| / |variable| on the active blocks, and the same for tau, when off by more than 1.6."""
    problem = state.problem
    value, square = problem.gauge.value(state.Z), float(state.Z.square().sum())
    up = 0.45 * problem.beta * value / square / state.rho if square > 0 else 1.0
    across = 1.0
    if not state.direct:
        force = float(torch.linalg.vector_norm(state.tau * (state.v - state.q)))
        spread = float(torch.linalg.vector_norm(state.q - state.q.mean(0)))
        across = 0.45 * force / spread / state.tau if spread > 0 and force > 0 else 1.0
    if all(0.62 < factor < 1.6 for factor in (up, across)):
        return
    up, across = min(max(up, 1e-3), 1e3), min(max(across, 1e-3), 1e3)
    U, u = (state.V - state.Z) / up, (state.v - state.q) / across
    state.rho, state.tau = state.rho * up, state.tau * across
    state.V, state.v = state.Z + U, state.q + u
    state.AV = problem.operator.forward(state.V)
    state.solve = state.kernel.factor(_shift(state))
    state.anderson.reset()
