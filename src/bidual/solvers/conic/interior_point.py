"""Clarabel on the conic form of the problem: the way to a tiny gap on small problems."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import clarabel
import torch
from torch import Tensor

from bidual.gauges import Conic, Proximable
from bidual.numerics.clarabel import clarabel_answer
from bidual.problems.problem import Problem
from bidual.problems.solution import Limits
from bidual.solvers.conic.form import conic_entries, conic_program
from bidual.solvers.driver import Solver


class Attempt(NamedTuple):
    """How one run is scaled (see :func:`conic_program`) and how much its linear systems are regularised."""

    balance: float
    regularization: float


# measured on the spiral at beta from 1e-4 to 1e-1: the first attempt ends at a relative gap below 2e-7
_SMOOTH = (Attempt(1.0, 1e-8), Attempt(0.25, 1e-8), Attempt(0.0, 1e-7))
_EXPONENTIAL = (Attempt(0.25, 1e-8), Attempt(0.0, 1e-8), Attempt(0.5, 1e-8))
_KINKED = (Attempt(0.0, 1e-7), Attempt(0.25, 1e-7), Attempt(0.0, 1e-8))


@dataclass
class _State:
    attempts: tuple[Attempt, ...]
    Z: Tensor
    duals: tuple[Tensor, ...] = ()
    tried: int = 0


@dataclass(frozen=True)
class InteriorPoint(Solver):
    r"""The primal-dual method of Clarabel on min F(f) + beta Omega(Z) subject to f = A Z + 1 b^T.

    Losses enter by their epigraphs, Euclidean norms by second-order cones and nuclear norms by semidefinite ones, so
    every loss and every conic gauge is solved to the last digits; the multiplier of the equality is the dual point.
    One step is one whole run. If it is not enough, the problem is scaled differently and run again, at most twice.
    """

    tol: float = 1e-12
    max_entries: int = 20_000_000
    time_limit: float | None = None

    name = "interior_point"
    needs = {"gauge": (Conic,)}  # noqa: RUF012
    instead = "kernel_admm"
    check_every = 1

    def _refusal(self, problem: Problem) -> str | None:
        entries = conic_entries(problem)
        if entries <= self.max_entries:
            return None
        return f"interior_point would store about {entries:.1e} numbers, more than its limit of {self.max_entries:.0e}."

    def init(self, problem: Problem, start: Tensor | None, dual: Tensor | None) -> _State:
        return _State(attempts(problem), problem.operator.zeros() if start is None else start)

    def step(self, problem: Problem, state: _State) -> _State:
        Z, V = self._run(problem, state.attempts[state.tried])
        state.tried += 1
        finite = bool(torch.isfinite(Z).all()) and bool(torch.isfinite(V).all())
        if finite:
            state.Z, state.duals = _without_dust(problem.to(torch.float64), Z, V), (V,)
        return state

    def within(self, limits: Limits) -> Self:
        return replace(self, time_limit=limits.max_time)

    def _run(self, problem: Problem, attempt: Attempt) -> tuple[Tensor, Tensor]:
        """Z and V where Clarabel stops, whatever it says of them: the certificate judges.

        Both stay in float64, as certificates do: rounded to float32, a loss with kinks loses its last digits.
        """
        program = conic_program(problem.to(torch.float64), attempt.balance)
        small = conic_entries(problem) <= 1_000_000
        settings = clarabel_settings(self.tol, attempt, small, self.time_limit)
        answer = clarabel_answer(program.P, program.q, program.G, program.h, program.cones, settings)
        device = problem.operator.like.device
        Z = program.lifted(answer.x)
        V = program.dual(answer.z, problem.datafit.targets.numel())
        return (
            torch.from_numpy(Z).reshape(problem.operator.block_shape).to(device),
            torch.from_numpy(V).reshape(problem.operator.output_shape).to(device),
        )

    def point(self, problem: Problem, state: _State) -> Tensor:
        return state.Z

    def candidates(self, problem: Problem, state: _State) -> Sequence[Tensor]:
        return state.duals

    def finished(self, state: _State) -> bool:
        return state.tried >= len(state.attempts)


def _without_dust(problem: Problem, Z: Tensor, V: Tensor) -> Tensor:
    """Z after a short proximal step along the dual, which an optimum is fixed by and which zeroes what is nearly zero.

    Interior points never reach the boundary: without this, every block would be a neuron.
    """
    if not isinstance(problem.gauge, Proximable):
        return Z
    step = 1e-4 * float(Z.abs().max()) / problem.beta
    clean = problem.gauge.prox(Z - step * problem.operator.adjoint(V), step * problem.beta)
    return clean if problem.primal(clean) <= problem.primal(Z) * (1 + 1e-10) else Z


def attempts(problem: Problem) -> tuple[Attempt, ...]:
    """The scalings to try, in order."""
    if problem.datafit.smoothness is None:
        return _KINKED
    epigraph = problem.datafit.loss.epigraph(problem.datafit.targets[:1])
    exponential = any(rows.cone == "exponential" for rows in epigraph.constraints)
    return _EXPONENTIAL if exponential else _SMOOTH


def clarabel_settings(tol: float, attempt: Attempt, small: bool, time_limit: float | None) -> clarabel.DefaultSettings:
    """Clarabel, quiet and asked for ``tol``; ``small`` chooses the linear solver."""
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tol
    settings.static_regularization_constant = attempt.regularization
    settings.direct_solve_method = "qdldl" if small else "faer"  # measured: more digits, and ten times the speed
    settings.max_threads = torch.get_num_threads()
    settings.chordal_decomposition_enable = False  # the semidefinite cones are dense
    if time_limit is not None:
        settings.time_limit = max(time_limit, 1e-3)
    return settings
