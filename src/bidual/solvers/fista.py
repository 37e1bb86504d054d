"""Accelerated proximal gradient with restarts: needs only forward, adjoint and prox."""

from dataclasses import dataclass
from math import isfinite, sqrt

import torch
from torch import Tensor

from bidual.gauges import Proximable
from bidual.problems.problem import Problem
from bidual.solvers.driver import Solver
from bidual.types import as_protocol


@dataclass
class _State:
    problem: Problem
    Z: Tensor
    AZ: Tensor
    Q: Tensor  # the extrapolated point
    AQ: Tensor
    momentum: float
    lipschitz: float


@dataclass(frozen=True)
class FISTA(Solver):
    """Beck and Teboulle (2009) with backtracking and the gradient restart of O'Donoghue and Candes (2015).

    The solver for more samples than a kernel matrix allows. It stalls at small beta: expect gaps of 1e-2 to 1e-4 there.
    """

    dtype: str = "float64"
    name = "fista"
    needs = {"gauge": (Proximable,)}  # noqa: RUF012
    needs_smooth_loss = True
    instead = "primal_dual"
    check_every = 25

    def init(self, problem: Problem, start: Tensor | None, dual: Tensor | None) -> _State:
        working = problem.to(getattr(torch, self.dtype))
        Z = working.operator.zeros() if start is None else start.to(working.operator.like)
        AZ = working.operator.forward(Z)
        norm = working.operator.norm_squared(torch.Generator().manual_seed(0))
        # half the bound is usually enough; backtracking raises it where it is not
        guess = 0.5 * working.datafit.bend * max(norm, 1e-30)
        return _State(working, Z, AZ, Z, AZ, 1.0, guess)

    def step(self, problem: Problem, state: _State) -> _State:
        work = state.problem
        at_q = work.datafit.value(state.AQ)
        if not isfinite(at_q):  # extrapolated to where an exponential overflows
            state.Q, state.AQ, state.momentum = state.Z, state.AZ, 1.0
            at_q = work.datafit.value(state.AQ)
        V = work.datafit.grad(state.AQ)
        gradient = work.operator.adjoint(V)
        rounding = 8 * sqrt(len(V)) * torch.finfo(V.dtype).eps
        for _ in range(100):
            Z = as_protocol(work.gauge, Proximable).prox(
                state.Q - gradient / state.lipschitz, work.beta / state.lipschitz
            )
            AZ = work.operator.forward(Z)
            move = Z - state.Q
            model = at_q + float((gradient * move).sum()) + 0.5 * state.lipschitz * float(move.square().sum())
            if work.datafit.value(AZ) <= model + rounding * abs(at_q):
                break
            state.lipschitz *= 1.5
        return self._extrapolate(state, Z, AZ)

    def _extrapolate(self, state: _State, Z: Tensor, AZ: Tensor) -> _State:
        if float(((state.Q - Z) * (Z - state.Z)).sum()) > 0:
            state.momentum = 1.0
        following = (1 + sqrt(1 + 4 * state.momentum**2)) / 2
        carry = (state.momentum - 1) / following
        state.Q, state.AQ = Z + carry * (Z - state.Z), AZ + carry * (AZ - state.AZ)
        state.Z, state.AZ, state.momentum = Z, AZ, following
        return state

    def point(self, problem: Problem, state: _State) -> Tensor:
        return state.Z.to(problem.operator.like)
