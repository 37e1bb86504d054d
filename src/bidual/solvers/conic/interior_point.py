"""Clarabel on the conic form of the problem: tiny gaps on small problems."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import clarabel
import torch
from jaxtyping import Float
from scipy import sparse
from torch import Tensor

from bidual.gauges import Conic, Proximable
from bidual.numerics.clarabel import clarabel_answer
from bidual.problems.problem import Problem
from bidual.problems.solution import Limits
from bidual.solvers.conic.form import clarabel_program, conic_entries
from bidual.solvers.driver import Solver
from bidual.types import Blocks, Matrix


class Attempt(NamedTuple):
    """How one run is scaled (see :func:`clarabel_program`) and how much its linear systems are regularised."""

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
    One step is one whole run. If its gap is too large, the problem is scaled differently and run again, at most twice.
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
        attempt, small = state.attempts[state.tried], conic_entries(problem) <= 1_000_000
        settings = clarabel_settings(self.tol, attempt, small, self.time_limit)
        # in float64, as certificates are: rounded to float32, a loss with kinks loses its last digits
        Z, V, _ = _answer(problem.to(torch.float64), attempt, settings)
        state.tried += 1
        if bool(torch.isfinite(Z).all()) and bool(torch.isfinite(V).all()):
            state.Z, state.duals = _without_dust(problem.to(torch.float64), Z, V), (V,)
        return state

    def within(self, limits: Limits) -> Self:
        return replace(self, time_limit=limits.max_time)

    def point(self, problem: Problem, state: _State) -> Tensor:
        return state.Z

    def candidates(self, problem: Problem, state: _State) -> Sequence[Tensor]:
        return state.duals

    def finished(self, state: _State) -> bool:
        return state.tried >= len(state.attempts)


def _answer(
    problem: Problem, attempt: Attempt, settings: clarabel.DefaultSettings, H: sparse.sparray | None = None
) -> tuple[Blocks, Matrix, Float[Tensor, " s"]]:
    """Z, V and all multipliers where Clarabel stops, accurate or not: the certificate decides."""
    program, device = clarabel_program(problem, attempt.balance, H), problem.operator.like.device
    answer = clarabel_answer(program.P, program.q, program.G, program.h, program.cones, settings)
    Z, V = program.lifted(answer.x), program.dual(answer.z, problem.datafit.targets.numel())
    shapes = problem.operator.block_shape, problem.operator.output_shape, (-1,)
    parts = [torch.from_numpy(x).reshape(s).to(device) for x, s in zip((Z, V, answer.z), shapes, strict=True)]
    return parts[0], parts[1], parts[2]


def constrained_answer(
    problem: Problem, H: sparse.sparray, attempt: Attempt, tol: float, time_limit: float | None
) -> tuple[Blocks, Matrix, Float[Tensor, " k"]]:
    """Z, V and the multipliers of H Z >= 0 where Clarabel stops, zero where it fails; for problems in float64."""
    settings = clarabel_settings(tol, attempt, small=False, time_limit=time_limit)
    Z, V, duals = (torch.nan_to_num(part) for part in _answer(problem, attempt, settings, H))
    return Z, V, problem.beta * duals[len(duals) - H.shape[0] :].clamp(min=0)  # the gauge costs 1 in the program


def _without_dust(problem: Problem, Z: Tensor, V: Tensor) -> Tensor:
    """Z after a short proximal step along the dual: an optimum is a fixed point, and entries near zero become zero.

    Interior points never reach the boundary: without this, every block would be a neuron.
    """
    if not isinstance(problem.gauge, Proximable):
        return Z
    step = 1e-4 * float(Z.abs().max()) / problem.beta
    clean = problem.gauge.prox(Z - step * problem.operator.adjoint(V), step * problem.beta)
    return clean if problem.primal(clean) <= problem.primal(Z) * (1 + 1e-10) else Z


def attempts(problem: Problem) -> tuple[Attempt, ...]:
    """The scalings to try, in order."""
    if not problem.datafit.loss.smooth:
        return _KINKED
    epigraph = problem.datafit.loss.epigraph(problem.datafit.targets[:1])
    exponential = any(rows.cone == "exponential" for rows in epigraph.constraints)
    return _EXPONENTIAL if exponential else _SMOOTH


def clarabel_settings(tol: float, attempt: Attempt, small: bool, time_limit: float | None) -> clarabel.DefaultSettings:
    """Settings of a silent Clarabel with tolerance ``tol``; ``small`` chooses the linear solver."""
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
