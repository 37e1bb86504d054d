"""ADMM on the gated kernel with Anderson acceleration: fast to a moderate gap."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bidual.gauges import Proximable
from bidual.numerics.anderson import Anderson
from bidual.operators import HasKernel, LiftedOperator
from bidual.problems.problem import Problem
from bidual.solvers.driver import Solver
from bidual.solvers.kernel import ShiftedKernel, Solve, kernel_bytes
from bidual.types import as_protocol

_FAR = 1e6
_MOST = 0.75  # of all blocks: up to here a product with some of them is cheaper than with all


@dataclass
class _State:
    """x = (V, v, A V) is the fixed-point variable, flat, and its parts are views of it.

    Z = prox(V) with multiplier V - Z; the same for the predictions, q = prox_F(v) with multiplier v - q, which squared
    loss does not need.
    """

    problem: Problem
    kernel: ShiftedKernel
    direct: bool
    rho: float
    tau: float
    Z: Tensor
    AZ: Tensor
    b: Tensor
    q: Tensor
    some: "_Some"
    prox: Callable[[Tensor, float], Tensor]
    x: Tensor = field(init=False)
    solve: Solve = field(init=False)
    shift: Tensor = field(init=False)  # (n, 1)
    nu: Tensor = field(init=False)
    G: Tensor = field(init=False)
    anderson: Anderson = field(default_factory=Anderson)
    steps: int = 0
    dual: float = 0.0  # the best seen
    guess: float = 1.0
    best_guess: float = float("inf")
    since_best: int = 0
    closest: float = float("inf")  # the shortest move so far
    lost: bool = False

    @property
    def V(self) -> Tensor:
        return self.x[: self.Z.numel()].view_as(self.Z)

    @property
    def v(self) -> Tensor:
        """Of the size of the predictions; unused if direct."""
        return self.x[self.Z.numel() : -self.AZ.numel()].view(-1, self.AZ.shape[1])

    @property
    def AV(self) -> Tensor:
        return self.x[-self.AZ.numel() :].view_as(self.AZ)

    def put(self, V: Tensor, v: Tensor, AV: Tensor) -> None:
        self.x = torch.cat([V.flatten(), v.flatten()[: 0 if self.direct else None], AV.flatten()])


class _Some:
    """A Z for a sparse Z, by an operator of a few more blocks than are active, kept until others become active."""

    def __init__(self, operator: LiftedOperator) -> None:
        self.operator, self.part, self.count = operator, operator, operator.block_shape[0]
        self.chosen = torch.ones(self.count, dtype=torch.bool, device=operator.like.device)
        self.blocks = torch.arange(self.count, device=operator.like.device)

    def forward(self, Z: Tensor) -> Tensor:
        active = Z.flatten(1).any(1)
        count = int(active.sum())
        if count > _MOST * len(Z):
            return self.operator.forward(Z)
        if self.count > 1.3 * count + 8 or bool((active & ~self.chosen).any()):
            self.chosen, self.count, self.blocks = active, count, active.nonzero()[:, 0]
            self.part = self.operator.select(self.blocks)
        return self.part.forward(Z[self.blocks])


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
        return self._memory_refusal(need, problem.operator.like.device)

    def init(self, problem: Problem, start: Tensor | None, dual: Tensor | None) -> _State:
        small = problem.to(getattr(torch, self.dtype))
        kernel = ShiftedKernel.of(small.operator, small.datafit.intercept)
        direct = small.datafit.loss.half_square
        tau = 1.0 if direct else 0.5 * small.datafit.bend
        beta_max = problem.beta_max
        ratio = min(problem.beta / beta_max, 1.0) if beta_max > 0 else 1.0
        size = float(small.datafit.weights.mean()) if direct else tau
        rho = _power_of_two(0.9 * size * kernel.mean_diagonal * ratio**0.7)
        Z = small.operator.zeros() if start is None else start.to(small.operator.like)
        AZ = small.operator.forward(Z)
        b = small.datafit.offset(AZ)
        V, v = Z, AZ + b
        if dual is not None:
            dual = dual.to(AZ)
            V, v = Z - small.operator.adjoint(dual) / rho, v + dual / tau
        prox = as_protocol(small.gauge, Proximable).prox
        state = _State(small, kernel, direct, rho, tau, Z, AZ, b, AZ + b, _Some(small.operator), prox)
        state.nu, state.G = torch.zeros_like(AZ), torch.zeros_like(Z)
        state.put(V, v, small.operator.forward(V) if dual is not None else AZ)
        _factor(state)
        _take_proxes(state)
        return state

    def step(self, problem: Problem, state: _State) -> _State:
        if state.steps in (12, 30, 70, 150, 310, 630, 1270):
            _rescale(state)
        state.steps += 1
        try:
            self._advance(state)
        except torch.linalg.LinAlgError:  # numbers beyond the precision
            state.lost = True
        if state.lost:
            return state
        if state.steps % 25 == 0:
            state.AV.copy_(state.problem.operator.forward(state.V))  # the recursion drifts in float32
        if state.steps % 5 == 0:
            self._watch(state)
        return state

    def _advance(self, state: _State) -> None:
        data, alpha = state.problem.datafit, self.relaxation
        s = data.targets if state.direct else 2 * state.q - state.v
        state.nu, b = state.solve(s - (2 * state.AZ - state.AV))
        state.b = b
        state.G = state.problem.operator.adjoint(state.nu)
        AW = torch.addcmul(s - b if data.intercept else s, state.shift, state.nu, value=-1)
        parts = [(state.G + state.Z).flatten(), state.x[-AW.numel() :] + (AW - state.AZ).flatten()]
        if not state.direct:
            parts.insert(1, (state.v + AW + b - state.q).flatten())
        image = torch.lerp(state.x, torch.cat(parts), alpha)
        residual = (image - state.x)[: -AW.numel()]
        if not state.direct:
            residual[state.Z.numel() :] *= math.sqrt(state.tau / state.rho)
        size = float(torch.linalg.vector_norm(residual))
        state.closest = min(state.closest, size)
        if not size <= _FAR * state.closest:  # a kernel too ill-conditioned for this precision makes steps diverge
            state.lost = True
            return
        state.x = state.anderson.mix(residual, image)
        _take_proxes(state)

    def _watch(self, state: _State) -> None:
        """An estimate of the relative gap in working precision, and the number of steps since it last fell."""
        problem, theta = state.problem, -state.rho * state.nu
        primal = problem.datafit.value_at(state.AZ, state.b) + problem.beta * problem.gauge.value(state.Z)
        polar = problem.gauge.polar(state.rho * state.G).upper
        scale = min(1.0, problem.beta / polar) if polar > 0 else 1.0
        dual = -problem.datafit.conjugate(scale * problem.datafit.into_domain(theta))
        # only squared loss uses theta unchanged: elsewhere the polar is an estimate, and the dual value no bound
        state.dual = max(state.dual, dual) if state.direct else dual
        state.guess = (primal - state.dual) / primal if primal > 0 else 0.0
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


def _power_of_two(rho: float) -> float:
    """The nearest power of two: neighbours on a path then share a factor of the kernel."""
    if not math.isfinite(rho):
        raise FloatingPointError("the kernel is beyond the range of its precision; scale the features.")
    return 2.0 ** round(math.log2(max(rho, 1e-30)))


def _factor(state: _State) -> None:
    weights = state.problem.datafit.weights[:, 0]
    shift = state.rho / weights if state.direct else torch.ones_like(weights) * (state.rho / state.tau)
    state.shift, state.solve = shift[:, None], state.kernel.factor(shift)


def _take_proxes(state: _State) -> None:
    problem = state.problem
    state.Z = state.prox(state.V, problem.beta / state.rho)
    state.AZ = state.some.forward(state.Z)
    if not state.direct:
        state.q = problem.datafit.prox(state.v, 1 / state.tau, start=state.q)


def _rescale(state: _State) -> None:
    """rho <- 0.45 beta (atoms) / Omega(Z), a multiplier over a variable, and the same for tau, if off by 1.6."""
    problem = state.problem
    value = problem.gauge.value(state.Z)
    up = 0.45 * problem.beta * problem.gauge.n_atoms(state.Z) / value / state.rho if value > 0 else 1.0
    across = 1.0
    if not state.direct:
        force = float(torch.linalg.vector_norm(state.tau * (state.v - state.q)))
        spread = float(torch.linalg.vector_norm(state.q - state.q.mean(0)))
        across = 0.45 * force / spread / state.tau if spread > 0 and force > 0 else 1.0
    if all(0.62 < factor < 1.6 for factor in (up, across)):
        return
    up, across = min(max(up, 1e-3), 1e3), min(max(across, 1e-3), 1e3)
    V, v = state.Z + (state.V - state.Z) / up, state.q
    if not state.direct:
        v = v + (state.v - state.q) / across
    state.rho, state.tau = state.rho * up, state.tau * across
    state.put(V, v, problem.operator.forward(V))
    _factor(state)
    state.anderson.reset()
