"""What a run is limited by, what it records, and what it returns."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Self

from bidual.operators import NeuronOperator
from bidual.polar import Neurons
from bidual.problems.certificate import Certificate
from bidual.problems.problem import Problem
from bidual.runtime.registry import Part
from bidual.types import Blocks, Matrix

_MOMENT = 1e-9  # seconds; the limit of a run that has no time left


class Status(Enum):
    """How a run ended; the value is what to tell the user."""

    CERTIFIED = "the certified relative gap is within the tolerance"
    EXHAUSTED = "the gap is as small as float64 can prove; a larger beta leaves more digits"
    MAX_STEPS = "the step limit was reached first; raise max_iter, or tol"
    MAX_TIME = "the time limit was reached first; raise max_time, or tol"
    SEARCHED = "no better network was found, but the proof is not tight; raise max_time, or use a larger beta"
    STALLED = "the solver could make no more progress; try a larger beta, or a larger tol"
    CALLED_OFF = "the callback ended training; let it return None to go on"
    DIVERGED = "the objective grew beyond ten times that of the start; lower the learning rate"


@dataclass(frozen=True)
class Limits:
    """When to stop.

    Attributes:
        tol: the relative duality gap to reach.
        max_steps: of the solver, None for its own limit.
        max_time: in seconds, None for no limit.
    """

    tol: float | int = 1e-4
    max_steps: int | None = None
    max_time: float | int | None = None

    def __post_init__(self) -> None:
        if math.isnan(self.tol):
            raise ValueError("tol must be a number, got nan. It is a relative duality gap, like 1e-4.")
        if self.max_steps is not None and (self.max_steps < 0 or self.max_steps % 1):
            raise ValueError(f"max_steps must be None or a whole number, 0 or more, got {self.max_steps!r}.")
        if self.max_time is not None and not self.max_time > 0:
            raise ValueError(f"max_time must be None or positive, got {self.max_time!r}.")

    def after(self, seconds: float = 0.0, steps: int = 0, *, least: float = _MOMENT) -> Self:
        """What is left after so many seconds and steps; of time, at least ``least``."""
        return replace(
            self,
            max_steps=None if self.max_steps is None else max(self.max_steps - steps, 0),
            max_time=None if self.max_time is None else max(self.max_time - seconds, least),
        )


DEFAULT_LIMITS = Limits()


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


Callback = Callable[[Record], object]  # a True that it returns ends the run
Watch = Callable[[Certificate], None]


@dataclass(frozen=True, eq=False)
class Verdict:
    """A point that was judged.

    Attributes:
        problem: the program that the point belongs to; of a network over all patterns, the one over its neurons.
        certificate: the point with its bounds.
        dual_point: the dual point that was judged, before it was scaled; None if it is the certificate's.
        search_gap: what the relative gap would be if the steepest neuron that was found were the steepest of all.
    """

    problem: Problem
    certificate: Certificate
    dual_point: Matrix | None = None
    search_gap: float | None = None

    def improving(self, best: "Verdict") -> "Verdict":
        """The better of both points, with the better of both lower bounds."""
        better = self if self.beats(best) else best
        joined = better.certificate.with_dual_of(self.certificate).with_dual_of(best.certificate)
        return replace(better, certificate=joined)

    def beats(self, best: "Verdict") -> bool:
        """Whether this point is to be preferred to an earlier one."""
        return self.certificate.primal <= best.certificate.primal

    def within(self, tol: float) -> bool:
        """Whether nothing is left to do."""
        return self.certificate.within(tol)

    def record(self, solver: str, step: int, seconds: float) -> Record:
        found = self.certificate
        return Record(solver, step, seconds, found.primal, found.dual, found.relative_gap)


@dataclass(frozen=True, eq=False)
class Solution:
    """What a run returns: the best point, its certificate, and how it was found.

    Attributes:
        problem: the program that Z belongs to; of a network over all patterns, the one over its neurons.
        Z: the lifted variable; of a network over all patterns, the output weights of its neurons of length one.
        certificate: the bounds at Z.
        status: how the run ended.
        n_steps, seconds: of all its solvers.
        history: one record per certificate, with seconds and steps from the beginning of the run.
        solver: the names of the solvers that ran, joined by "+".
        dual_point: the last dual point that was judged, or the best one that a search has seen, before it was scaled.
        search_gap: what the relative gap would be if the steepest neuron that was found were the steepest of all; None
            for programs over given patterns.
        verdict: on the best point, as the solver gave it; of factored training it holds the factors.
    """

    problem: Problem
    Z: Blocks
    certificate: Certificate
    status: Status
    n_steps: int
    seconds: float
    history: tuple[Record, ...]
    solver: str
    dual_point: Matrix
    search_gap: float | None = None
    verdict: Verdict | None = None

    def shortfall(self, tol: float) -> str:
        """What is open where ``tol`` was not reached: how much better networks may be, by the search and proved."""
        gap = self.certificate.relative_gap
        missed = f"certified relative gap {gap:.1e} is above tol={tol:g}: "
        if self.search_gap is None or self.status is Status.CALLED_OFF:
            return f"{missed}{self.status.value}."
        if self.search_gap > max(tol, 0.1 * gap):
            cure = Status.MAX_STEPS.value if self.status is Status.SEARCHED else self.status.value
            return (
                f"{missed}training has not ended, the search still finds neurons that may improve the objective by "
                f"{self.search_gap:.1e} of it; {cure}."
            )
        return (
            f"{missed}training has ended, the search finds nothing that would improve the objective by more than "
            f"{self.search_gap:.1e} of it, but the proof excludes only networks that are better by more than "
            f"{gap:.1e}; raise max_time for a longer proof, or use a larger beta."
        )

    @property
    def neurons(self) -> Neurons:
        """The hidden weights of a network over all patterns, of length one."""
        return neurons_of(self.problem)


def neurons_of(problem: Problem) -> Neurons:
    """The dictionary of a program over neurons."""
    if not isinstance(problem.operator, NeuronOperator):
        raise TypeError(f"{type(problem.operator).__name__} has patterns, not neurons.")
    return problem.operator.neurons
