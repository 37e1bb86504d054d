"""Solvers, and the only loop that runs them."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from torch import Tensor

from bidual.problems.certificate import Certificate, certify
from bidual.problems.problem import Problem
from bidual.runtime.registry import Part
from bidual.types import Blocks, Matrix


class Status(Enum):
    """How a run ended; the value is what to tell the user."""

    CERTIFIED = "the certified relative gap is within the tolerance"
    EXHAUSTED = "the gap is as small as float64 can prove; a larger beta leaves more digits"
    MAX_STEPS = "the step limit was reached first; raise max_iter, or tol"
    MAX_TIME = "the time limit was reached first; raise max_time, or tol"
    SEARCHED = "search finds no neuron worth adding, and proving more needs data of lower rank, or fewer samples"
    STALLED = "the solver could make no more progress; try a larger beta, or a larger tol"


@dataclass(frozen=True)
class Record(Part):
    """One line of a run's history."""

    solver: str
    step: int
    seconds: float
    primal: float
    dual: float
    relative_gap: float
    name = "record"


@dataclass(frozen=True, eq=False)
class Solution:
    """What a solver returns: the point, its certificate, and how it got there."""

    Z: Blocks
    certificate: Certificate
    status: Status
    n_steps: int
    seconds: float
    history: tuple[Record, ...]
    solver: str


class Solver(ABC):
    """One algorithm. Settings are a frozen dataclass; what changes lives in a private state.

    ``needs`` maps a part of the problem ("operator", "gauge") to the Protocols it must satisfy; ``instead`` is said
    when it does not. ``check_every`` is how many steps pass between certificates.
    """

    name: ClassVar[str]
    needs: ClassVar[dict[str, tuple[type, ...]]] = {}
    needs_smooth_loss: ClassVar[bool] = False
    instead: ClassVar[str] = "interior_point"
    check_every: ClassVar[int] = 10

    def refusal(self, problem: Problem) -> str | None:
        """Why this solver cannot take the problem, in one sentence; None if it can."""
        for part, protocols in self.needs.items():
            thing = getattr(problem, part)
            for protocol in protocols:
                if not isinstance(thing, protocol):
                    return f"{self.name} needs {part}s that are {protocol.__name__}; {type(thing).__name__} is not."
        if self.needs_smooth_loss and problem.datafit.smoothness is None:
            return f"{self.name} needs a smooth loss; {problem.datafit.loss.name} has kinks."
        return self._refusal(problem)

    def limited(self, seconds: float | None) -> "Solver":
        """The solver with a limit on one step; only solvers whose steps are long need to know."""
        return self

    def check(self, problem: Problem) -> None:
        """Raise before any work is done if the solver cannot take the problem."""
        if reason := self.refusal(problem):
            raise ValueError(f"{reason} Use solver={self.instead!r} or 'auto'.")

    def _refusal(self, problem: Problem) -> str | None:
        return None

    @abstractmethod
    def init(self, problem: Problem, start: Tensor | None, dual: Tensor | None) -> Any:
        """The state to begin with, warm if a lifted variable or a dual point is given."""

    @abstractmethod
    def step(self, problem: Problem, state: Any) -> Any:
        """One iteration."""

    @abstractmethod
    def point(self, problem: Problem, state: Any) -> Blocks:
        """The lifted variable of a state."""

    def candidates(self, problem: Problem, state: Any) -> Sequence[Matrix]:
        """Dual points of the solver's own; they matter for losses with kinks."""
        return ()

    def estimate(self, problem: Problem, state: Any) -> float | None:
        """A cheap guess of the relative gap, to decide when a certificate is worth its time."""
        return None

    def finished(self, state: Any) -> bool:
        """True when further steps are useless."""
        return False


Callback = Callable[[Record], None]
Watch = Callable[[Certificate], None]


def solve(
    problem: Problem,
    solver: Solver,
    *,
    tol: float = 1e-4,
    max_steps: int = 10_000,
    max_time: float | None = None,
    start: Blocks | None = None,
    dual: Matrix | None = None,
    callback: Callback | None = None,
    known: Certificate | None = None,
    watch: Watch | None = None,
) -> Solution:
    """Run ``solver`` until the certified relative gap is at most ``tol``, and return the best point seen.

    ``known`` is the certificate of ``start`` for this very problem, where there is one. ``watch`` is shown the best
    certificate so far whenever ``callback`` is told of it.
    """
    if math.isnan(tol):
        raise ValueError("tol must be a number, got nan. It is a relative duality gap, like 1e-4.")
    solver.check(problem)
    solver = solver.limited(max_time)
    start = None if start is None else start.to(problem.operator.like)
    dual = None if dual is None else dual.to(problem.operator.like)
    judge = _Judge(problem, solver.name, callback, watch)
    if known is None:
        judge.look(0, problem.operator.zeros() if start is None else start, () if dual is None else (dual,))
    else:
        judge.keep(0, known)
    status, step = Status.CERTIFIED, 0
    state = None if judge.best.within(tol) else solver.init(problem, start, dual)
    while not judge.best.within(tol):
        if max_time is not None and judge.seconds > max_time:
            status = Status.MAX_TIME
        elif step >= max_steps:
            status = Status.MAX_STEPS
        elif solver.finished(state):
            status = Status.STALLED
        else:
            step += 1
            state = solver.step(problem, state)
            if _worth_a_look(problem, solver, state, step, tol):
                judge.look(step, solver.point(problem, state), solver.candidates(problem, state))
            continue
        if step and judge.last_step < step:
            judge.look(step, solver.point(problem, state), solver.candidates(problem, state))
        break
    if judge.best.within(tol):
        status = Status.CERTIFIED if judge.best.relative_gap <= tol else Status.EXHAUSTED
    return Solution(judge.best.point, judge.best, status, step, judge.seconds, tuple(judge.history), solver.name)


def _worth_a_look(problem: Problem, solver: Solver, state: Any, step: int, tol: float) -> bool:
    guess = solver.estimate(problem, state)
    return step % solver.check_every == 0 or solver.finished(state) or (guess is not None and guess <= tol)


class _Judge:
    """Certifies points as they come and keeps the best point and the best dual."""

    best: Certificate

    def __init__(self, problem: Problem, name: str, callback: Callback | None, watch: Watch | None = None) -> None:
        self.problem, self.name, self.callback, self.watch = problem, name, callback, watch
        self.began = time.perf_counter()
        self.history: list[Record] = []
        self.last_step = -1

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began

    def look(self, step: int, Z: Tensor, candidates: Sequence[Tensor]) -> None:
        certificate = certify(self.problem, Z, candidates)
        if self.history:
            better = certificate if certificate.primal < self.best.primal else self.best
            certificate = better.with_dual_of(certificate).with_dual_of(self.best)
        self.keep(step, certificate)

    def keep(self, step: int, certificate: Certificate) -> None:
        """The best so far, written down."""
        self.best, self.last_step = certificate, step
        values = (certificate.primal, certificate.dual, certificate.relative_gap)
        self.history.append(Record(self.name, step, self.seconds, *values))
        if self.callback is not None:
            self.callback(self.history[-1])
        if self.watch is not None:
            self.watch(certificate)
