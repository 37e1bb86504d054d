"""Every solver that discovery finds keeps the solvers' contract, and the contract catches wrong solvers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from bidual.polar import Faces
from bidual.problems.problem import Problem, ReluProblem
from bidual.solvers import FISTA, SOLVERS
from bidual.solvers.driver import Solver
from bidual.testing import check_solver, concrete_subclasses
from bidual.testing.solver import planted_problems
from bidual.training.copositive.training import Copositive
from bidual.training.relu.closed_form import ConeProgram, closed_form
from bidual.training.relu.column_generation import ColumnGeneration
from bidual.training.relu.cutting_planes import CuttingPlanes
from bidual.training.relu.frank_wolfe import FrankWolfe
from bidual.training.relu.lower_bounds import LowerBound

FIRST_ORDER = {"fista": 1e-4, "primal_dual": 1e-3, "burer_monteiro": 1e-4, "active_neurons": 1e-4, "kernel_admm": 1e-4}
OVER_NEURONS: dict[str, tuple[Callable[[ReluProblem], Solver], dict[str, Any]]] = {
    "closed_form": (closed_form, {"tol": 1e-9}),
    "column_generation": (lambda problem: ColumnGeneration(Faces(problem.X)), {"tol": 1e-6}),
    "cutting_planes": (lambda problem: CuttingPlanes(Faces(problem.X)), {"tol": 1e-6}),
    "cone_program": (lambda problem: ConeProgram(Faces(problem.X)), {"tol": 1e-6}),
    "frank_wolfe": (lambda problem: FrankWolfe(Faces(problem.X), run_steps=30), {"tol": 0.3, "max_steps": None}),
    "copositive": (lambda problem: Copositive(), {"tol": 1e-3}),
}


@pytest.mark.parametrize("name", sorted(SOLVERS))
def test_solver(name: str) -> None:
    check_solver(lambda problem: SOLVERS[name](), tol=FIRST_ORDER.get(name, 1e-6))


@pytest.mark.parametrize("name", OVER_NEURONS)
def test_solver_over_all_neurons(name: str) -> None:
    make, promises = OVER_NEURONS[name]
    first = next(case.problem for case in planted_problems(0) if isinstance(case.problem, ReluProblem))
    check_solver(lambda problem: make(problem if isinstance(problem, ReluProblem) else first), **promises)


def test_every_solver_is_checked() -> None:
    """But those that only improve the certificate of a solution."""
    own = {name for name, cls in SOLVERS.items() if cls.__module__.startswith("bidual.")}
    shipped = concrete_subclasses(Solver, "bidual.solvers", "bidual.training")
    assert {cls.name for cls in shipped if not issubclass(cls, LowerBound)} == {*own, *OVER_NEURONS}


@dataclass(frozen=True)
class Stalls(FISTA):
    """Calls itself finished after a step."""

    def finished(self, state: Any) -> bool:
        return True


@dataclass(frozen=True)
class Unseeded(FISTA):
    """Starts where the global generator says."""

    def init(self, problem: Problem, start: Tensor | None, dual: Tensor | None) -> Any:
        return super().init(problem, torch.randn_like(problem.operator.zeros()), dual)


@dataclass(frozen=True)
class WritesStart(FISTA):
    """Works in the caller's tensor."""

    def step(self, problem: Problem, state: Any) -> Any:
        state = super().step(problem, state)
        if self.given:
            self.given[-1].copy_(state.Z)
        return state

    def init(self, problem: Problem, start: Tensor | None, dual: Tensor | None) -> Any:
        self.given[:] = [] if start is None else [start]
        return super().init(problem, None if start is None else start.clone(), dual)

    given: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class WritesTargets(FISTA):
    """Centres the targets in place."""

    def init(self, problem: Problem, start: Tensor | None, dual: Tensor | None) -> Any:
        targets = problem.datafit.targets
        targets -= 1e-9 * targets.mean(0)
        return super().init(problem, start, dual)


@dataclass(frozen=True)
class RefusesLate(FISTA):
    """Takes every gauge, and finds out in its first step that it does not."""

    def step(self, problem: Problem, state: Any) -> Any:
        if problem.gauge.name == "largest":
            raise ValueError("no largest")
        return super().step(problem, state)


@dataclass(frozen=True)
class RefusesAll(FISTA):
    def _refusal(self, problem: Problem) -> str | None:
        return "fista is tired."


@dataclass(frozen=True)
class AbsoluteTolerance(FISTA):
    """Stops where steps are shorter than a fixed number."""

    def step(self, problem: Problem, state: Any) -> Any:
        before = state.Z
        state = super().step(problem, state)
        state.short = float((state.Z - before).abs().max()) < 1e-4
        return state

    def finished(self, state: Any) -> bool:
        return getattr(state, "short", False)


@dataclass(frozen=True)
class SumsOfSquares(FISTA):
    """Solves a problem of twice the beta."""

    def init(self, problem: Problem, start: Tensor | None, dual: Tensor | None) -> Any:
        return super().init(problem.with_beta(2 * problem.beta), start, dual)


@dataclass(frozen=True)
class KeepsItsState(FISTA):
    """Goes on where the run before ended."""

    kept: list[Any] = field(default_factory=list)

    def init(self, problem: Problem, start: Tensor | None, dual: Tensor | None) -> Any:
        if not self.kept or self.kept[0].Z.shape != problem.operator.block_shape:
            self.kept[:] = [super().init(problem, start, dual)]
        return self.kept[0]


WRONG: dict[type[FISTA], str] = {
    Stalls: "ends certified",
    Unseeded: "twice",
    WritesStart: "stay as they were",
    WritesTargets: "stay as they were",
    RefusesLate: "no largest",
    RefusesAll: "takes a problem of known optimum",
    AbsoluteTolerance: "ends certified",
    SumsOfSquares: "ends certified",
    KeepsItsState: "ends certified|twice",
}


@pytest.mark.parametrize("cls", WRONG, ids=lambda cls: cls.__name__)
def test_a_wrong_solver_is_caught(cls: type[FISTA]) -> None:
    with pytest.raises((AssertionError, ValueError), match=WRONG[cls]):
        check_solver(lambda problem: cls(), max_steps=400)
