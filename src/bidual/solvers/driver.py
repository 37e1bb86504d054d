"""Solvers, the only loop that runs them, and plans: solvers that take turns."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from bidual.problems.certificate import certify
from bidual.problems.problem import NeuronProblem, Problem
from bidual.problems.solution import DEFAULT_LIMITS, Callback, Limits, Record, Solution, Status, Verdict, Watch
from bidual.runtime.memory import available_bytes, human_bytes
from bidual.runtime.numerical_errors import NUMERICAL
from bidual.runtime.threads import one_thread, threads_for
from bidual.types import Blocks, Matrix


class Solver(ABC):
    """One algorithm. Settings are a frozen dataclass; what changes lives in a private state.

    ``takes`` is the kind of problem that it solves. ``needs`` maps a part of the problem ("operator", "gauge") to the
    Protocols it must satisfy; ``instead`` names another solver where it does not. ``untimed_steps`` is how many steps
    a time limit does not prevent.
    """

    name: ClassVar[str]
    takes: ClassVar[type] = Problem
    needs: ClassVar[dict[str, tuple[type, ...]]] = {}
    needs_smooth_loss: ClassVar[bool] = False
    needs_squared_loss: ClassVar[bool] = False
    instead: ClassVar[str] = "interior_point"
    untimed_steps: ClassVar[int] = 0

    @property
    def check_every(self) -> int:
        """How many steps pass between certificates."""
        return 10

    @property
    def max_steps(self) -> int:
        """The limit where none is given."""
        return 10_000

    def refusal(self, problem: Any) -> str | None:
        """Why this solver cannot take the problem, in one sentence; None if it can."""
        kind: Any = self.takes  # mypy would narrow the problem to it
        if not isinstance(problem, kind):
            return f"{self.name} solves a {self.takes.__name__}, got a {type(problem).__name__}."
        for part, protocols in self.needs.items():
            thing = getattr(problem, part)
            for protocol in protocols:
                if not isinstance(thing, protocol):
                    return f"{self.name} needs {part}s that are {protocol.__name__}; {type(thing).__name__} is not."
        if self.needs_smooth_loss and not problem.datafit.loss.smooth:
            return f"{self.name} needs a smooth loss; {problem.datafit.loss.name} has kinks."
        if self.needs_squared_loss and not problem.datafit.loss.half_square:
            return f"{self.name} needs squared loss, got {problem.datafit.loss.name}."
        return self._refusal(problem)

    def _refusal(self, problem: Any) -> str | None:
        return None

    def _memory_refusal(self, need: int, device: torch.device) -> str | None:
        if need <= available_bytes(device):
            return None
        return f"{self.name} needs {human_bytes(need)} for its matrices, more than is free."

    def check(self, problem: Any) -> None:
        """Raise before any work is done if the solver cannot take the problem."""
        if reason := self.refusal(problem):
            others = dict.fromkeys((self.instead, "auto"))
            raise ValueError(f"{reason} Use solver={' or '.join(map(repr, others))}.")

    def within(self, limits: Limits) -> Self:
        """The solver with the limits of a run; only solvers whose steps are long need them."""
        return self

    @abstractmethod
    def init(self, problem: Any, start: Tensor | None, dual: Tensor | None) -> Any:
        """The state to begin with, warm if a start (a lifted variable, or neurons) or a dual point is given."""

    def resume(self, problem: Any, done: Solution) -> Any:
        """The state to begin with where another solver has ended."""
        return self.init(problem, *(point.to(_like(problem)) for point in (done.Z, done.certificate.dual_point)))

    @abstractmethod
    def step(self, problem: Any, state: Any) -> Any:
        """One iteration."""

    @abstractmethod
    def point(self, problem: Any, state: Any) -> Blocks:
        """The lifted variable of a state."""

    def candidates(self, problem: Any, state: Any) -> Sequence[Matrix]:
        """Dual points of the solver's own; they matter for losses with kinks."""
        return ()

    def first(self, problem: Any, start: Tensor | None, dual: Tensor | None) -> Verdict | None:
        """The starting point, judged; None for solvers that have a point after their first step only."""
        Z = problem.operator.zeros() if start is None else start
        return Verdict(problem, certify(problem, Z, () if dual is None else (dual,)))

    def certified(self, problem: Any, state: Any) -> Verdict:
        """The point of a state, judged."""
        return Verdict(problem, certify(problem, self.point(problem, state), self.candidates(problem, state)))

    def estimate(self, problem: Any, state: Any) -> float | None:
        """A cheap guess of the relative gap, to decide when a certificate is worth its time."""
        return None

    def finished(self, state: Any) -> Status | bool | None:
        """Whether further steps are useless, or why; True is STALLED."""
        return None

    def close(self, state: Any) -> None:
        """Release what a state holds besides memory, such as processes; it is not used any more."""
        return


class NeuronSolver(Solver):
    """A solver of a :class:`NeuronProblem`. Starts are neurons; states have a verdict after every step."""

    takes: ClassVar[type] = NeuronProblem
    instead = "column_generation"
    check_every = 1
    untimed_steps = 1  # there is no network before the first step

    def first(self, problem: NeuronProblem, start: Tensor | None, dual: Tensor | None) -> Verdict | None:
        return None

    def resume(self, problem: NeuronProblem, done: Solution) -> Any:
        return self.init(problem, done.neurons, done.dual_point)

    def point(self, problem: NeuronProblem, state: Any) -> Blocks:
        return self.certified(problem, state).certificate.point

    def certified(self, problem: Any, state: Any) -> Verdict:
        return state.verdict


def solve(
    problem: Any,
    solver: Solver,
    limits: Limits = DEFAULT_LIMITS,
    *,
    start: Tensor | Solution | None = None,
    dual: Matrix | None = None,
    callback: Callback | None = None,
    watch: Watch | None = None,
) -> Solution:
    """Run ``solver`` until the certified relative gap is at most ``limits.tol``, and return the best point seen.

    Args:
        problem: a :class:`Problem`, a :class:`NeuronProblem`, or what else the solver takes.
        start: a lifted variable, or neurons for a problem over all patterns; or a solution of this very problem, whose
            certificate, history, steps and seconds are continued.
        dual: a dual point to start from.
        callback: is called with every record, and ends the run by returning True.
        watch: is called with the best certificate so far, after every record.
    """
    progress = Progress(problem, callback, watch, start if isinstance(start, Solution) else None)
    with threads_of(problem):
        return progress.turn(solver, limits, None if isinstance(start, Solution) else start, dual)


class Progress:
    """The best point and the best dual of a run so far, its history and its clock; solvers take turns on it."""

    def __init__(
        self, problem: Any, callback: Callback | None = None, watch: Watch | None = None, done: Solution | None = None
    ) -> None:
        self.problem, self.callback, self.watch, self.done = problem, callback, watch, done
        self.began, self.steps, self.looked = time.perf_counter(), 0, 0
        self.called_off = False
        self.history: list[Record] = []
        self.best: Verdict | None = None
        if done is not None:
            self.began -= done.seconds
            self.steps = self.looked = done.n_steps
            self.history = list(done.history)
            self.best = self.last = Verdict(done.problem, done.certificate, done.dual_point, done.search_gap)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began

    def turn(self, solver: Solver, limits: Limits, start: Tensor | None = None, dual: Matrix | None = None) -> Solution:
        """One solver's turn, from where the last one has ended, or from ``start``: the loop."""
        problem, steps, began = self.problem, self.steps, self.seconds
        solver.check(problem)
        solver = solver.within(limits)
        start, dual = (None if point is None else point.to(_like(problem)) for point in (start, dual))
        first = solver.first(problem, start, dual) if self.best is None else None
        if first is not None and start is not None and not math.isfinite(first.certificate.primal):
            start, first = None, solver.first(problem, None, dual)  # no descent begins where a loss overflows
        if first is not None:
            self._keep(solver, first)
        status, state = self._reached(limits), None
        if status is None:
            state = solver.init(problem, start, dual) if self.done is None else solver.resume(problem, self.done)
        try:
            while status is None:
                status = self._stopped(solver, state, limits, self.steps - steps, self.seconds - began)
                if status is None:
                    self.steps += 1
                    state = solver.step(problem, state)
                    if _worth_a_look(problem, solver, state, self.steps - steps, limits.tol):
                        self._keep(solver, solver.certified(problem, state))
                    status = self._reached(limits)
            if self.looked < self.steps:
                self._keep(solver, solver.certified(problem, state))
        finally:
            solver.close(state)
        self.done = self._solution(solver, self._reached(limits) or status)
        return self.done

    def _keep(self, solver: Solver, found: Verdict) -> None:
        """The best so far, written down."""
        self.last, self.looked = found, self.steps
        self.best = found if self.best is None else found.improving(self.best)
        self.history.append(self.best.record(solver.name, self.steps, self.seconds))
        if self.callback is not None:
            self.called_off = _is_true(self.callback(self.history[-1])) or self.called_off
        if self.watch is not None:
            self.watch(self.best.certificate)

    def _reached(self, limits: Limits) -> Status | None:
        if self.best is None or not self.best.within(limits.tol):
            return Status.CALLED_OFF if self.called_off else None
        return Status.CERTIFIED if self.best.certificate.relative_gap <= limits.tol else Status.EXHAUSTED

    def _stopped(self, solver: Solver, state: Any, limits: Limits, steps: int, seconds: float) -> Status | None:
        """Why the solver must stop short of the tolerance. No limit applies before there is a point to return."""
        ended = solver.finished(state)
        if ended is Status.SEARCHED:  # no neuron is left to find, however late it is
            return Status.SEARCHED
        if self.best is None and not steps:
            return None
        if steps >= solver.untimed_steps and seconds > (limits.max_time or math.inf):
            return Status.MAX_TIME
        if ended:
            return Status.STALLED if ended is True else ended
        most = solver.max_steps if limits.max_steps is None else limits.max_steps
        return Status.MAX_STEPS if steps >= most else None

    def _solution(self, solver: Solver, status: Status) -> Solution:
        assert self.best is not None
        before = "" if self.done is None else self.done.solver
        again = before == solver.name or before.endswith("+" + solver.name)
        name = before if again else "+".join(filter(None, (before, solver.name)))
        best, V, history = self.best.certificate, self.last.dual_point, tuple(self.history)
        V = best.dual_point if V is None else V
        found = (self.best.problem, best.point, best)
        return Solution(*found, status, self.steps, self.seconds, history, name, V, self.last.search_gap, self.best)


@dataclass(frozen=True)
class Stage:
    """A solver with the limits of its turn: the gap at which it hands over, its steps and its seconds."""

    solver: Solver
    limits: Limits


# Yields stages, each made when the last one has ended, and receives the solution so far. A numerical error of a stage
# is raised where the stage was yielded.
Plan = Generator[Stage, Solution, None]


def run(
    problem: Problem | NeuronProblem,
    stages: Plan,
    tol: float,
    *,
    start: Tensor | None = None,
    dual: Matrix | None = None,
    callback: Callback | None = None,
    watch: Watch | None = None,
) -> Solution:
    """Run the stages of a plan until ``tol`` is certified; point, neurons, best dual and history are handed over."""
    progress = Progress(problem, callback, watch)
    try:
        stage = next(stages)
        while True:
            try:
                done = progress.turn(stage.solver, stage.limits, start, dual)
            except NUMERICAL as error:
                stage = stages.throw(error)
                continue
            if done.certificate.within(tol):
                break
            if progress.called_off:
                progress.done = replace(done, status=Status.CALLED_OFF)
                break
            stage = stages.send(done)
    except StopIteration:
        pass
    finally:
        stages.close()
    if progress.done is None:
        raise ValueError("no solver can take this problem in the memory there is; use fewer gates or fewer samples.")
    return progress.done


def threads_of(problem: Any) -> AbstractContextManager[None]:
    """As many threads as the products of a problem are worth; over all neurons products are many and small."""
    return (
        one_thread(spare=True) if isinstance(problem, NeuronProblem) else threads_for(problem.operator.multiplications)
    )


def _is_true(answer: object) -> bool:
    """Whether a callback has said True; what else it returns, such as a count, means nothing."""
    return isinstance(answer, (bool, np.bool_)) and bool(answer)


def _like(problem: Any) -> Tensor:
    return problem.X if isinstance(problem, NeuronProblem) else problem.operator.like


def _worth_a_look(problem: Any, solver: Solver, state: Any, step: int, tol: float) -> bool:
    guess = solver.estimate(problem, state)
    return step % solver.check_every == 0 or bool(solver.finished(state)) or (guess is not None and guess <= tol)
