"""Primal-dual hybrid gradient: first-order steps for losses with kinks."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor

from bidual.gauges import Proximable
from bidual.problems.problem import Problem
from bidual.solvers.driver import Solver
from bidual.types import as_protocol


@dataclass
class _State:
    Z: Tensor
    b: Tensor
    V: Tensor
    AZ: Tensor
    total: tuple[Tensor, Tensor, Tensor]  # sums of Z, b and V since the last restart
    began: tuple[Tensor, Tensor]  # Z and V at the last restart
    norm: float
    weight: float
    since: int = 0


@dataclass(frozen=True)
class PrimalDual(Solver):
    r"""Chambolle and Pock (2011) on min_{Z,b} max_V <V, A Z + 1 b^T> - F*(V) + beta Omega(Z).

    Restarted from the average, with the ratio of primal to dual steps set by the distances travelled (as in
    Applegate et al. 2021). Needs no kernel matrix and no smoothness.
    """

    restart_every: int = 200
    name = "primal_dual"
    needs = {"gauge": (Proximable,)}  # noqa: RUF012
    check_every = 50

    def init(self, problem: Problem, start: Tensor | None, dual: Tensor | None) -> _State:
        Z = problem.operator.zeros() if start is None else start
        AZ = problem.operator.forward(Z)
        V = problem.datafit.grad(AZ) if dual is None else dual
        n = len(AZ) if problem.datafit.intercept else 0
        norm = sqrt(1.05 * problem.operator.norm_squared(torch.Generator().manual_seed(0)) + n)
        b = problem.datafit.offset(AZ)
        total = (torch.zeros_like(Z), torch.zeros_like(b), torch.zeros_like(V))
        weight = max(float(torch.linalg.vector_norm(V)), 1e-12) / max(float(torch.linalg.vector_norm(AZ)), 1.0)
        return _State(Z, b, V, AZ, total, (Z, V), max(norm, 1e-30), weight)

    def step(self, problem: Problem, state: _State) -> _State:
        primal_step, dual_step = 0.99 / (state.norm * state.weight), 0.99 * state.weight / state.norm
        gradient = problem.operator.adjoint(state.V)
        Z = as_protocol(problem.gauge, Proximable).prox(state.Z - primal_step * gradient, primal_step * problem.beta)
        b = state.b - primal_step * state.V.sum(0) if problem.datafit.intercept else state.b
        AZ = problem.operator.forward(Z)
        ahead = 2 * (AZ + b) - (state.AZ + state.b)
        u = state.V / dual_step + ahead
        V = dual_step * (u - problem.datafit.prox(u, 1 / dual_step))  # Moreau: the prox of F* from that of F
        state.Z, state.b, state.AZ, state.V = Z, b, AZ, V
        state.total = tuple(old + new for old, new in zip(state.total, (Z, b, V), strict=True))  # type: ignore[assignment]
        state.since += 1
        if state.since >= self.restart_every:
            _restart(problem, state)
        return state

    def point(self, problem: Problem, state: _State) -> Tensor:
        return state.Z

    def candidates(self, problem: Problem, state: _State) -> Sequence[Tensor]:
        return (state.V, state.total[2] / state.since) if state.since else (state.V,)


def _restart(problem: Problem, state: _State) -> None:
    """Continue from the average, and favour steps of the side that travelled further."""
    Z, b, V = (part / state.since for part in state.total)
    travelled = [float(torch.linalg.vector_norm(new - old)) for new, old in zip((Z, V), state.began, strict=True)]
    if min(travelled) > 1e-12:
        state.weight = sqrt(state.weight * travelled[1] / travelled[0])
    state.Z, state.b, state.V = Z, b, V
    state.AZ = problem.operator.forward(Z)
    state.total = tuple(torch.zeros_like(part) for part in state.total)  # type: ignore[assignment]
    state.began, state.since = (Z, V), 0
