"""The loop that runs a method on a factored program, looks at certificates, and leaves saddles."""

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from bidual.gauges import Factors
from bidual.problems.certificate import Certificate
from bidual.runtime.threads import threads_for
from bidual.solvers.factored.escape import go_on
from bidual.solvers.factored.method import Method, State
from bidual.solvers.factored.methods import check_method, make_method
from bidual.solvers.factored.program import FactoredProgram
from bidual.solvers.factored.solution import Ending, FactoredSolution, Moment

BLOWN_UP = 10.0  # times the objective of the start
_ROUNDING = 1e-13  # of two objectives that differ by less the later one is kept: its gradient is smaller


def train(
    program: FactoredProgram,
    method: str | Method = "lbfgs",
    *,
    start: Factors | None = None,
    seed: int = 0,
    scale: float = 0.3,
    tol: float = 1e-6,
    escape: bool = True,
    max_steps: int | None = None,
    max_time: float | None = None,
    callback: Callable[[Moment], None] | None = None,
) -> FactoredSolution:
    """Descend until the certified relative gap is at most ``tol``, and return the point with the least objective.

    The start is random (``seed``, standard deviation ``scale``) unless one is given. Where the method ends short of
    ``tol`` at a point whose certificate shows a violated direction, that direction becomes a new factor and the method
    goes on, unless ``escape`` is False. A negative ``tol`` runs to the end of the method whatever the certificate says.
    """
    _check_limits(tol, max_steps, max_time, scale)
    chosen = make_method(method).with_seed(seed) if isinstance(method, str) else method
    check_method(chosen, program)
    program.warn_if_wasteful()
    first = program.start(torch.Generator().manual_seed(seed), scale) if start is None else program.check(start)
    run = _Run(program, chosen, tol, math.inf if escape else -math.inf, callback)
    with threads_for(program.problem.operator.multiplications):
        ending = run.go(program.feasible(first), chosen.max_steps if max_steps is None else max_steps, max_time)
    if ending is Ending.DIVERGED:
        warnings.warn(
            f"{chosen.name} diverged: {ending.value}. The best point so far is returned, gap {run.best.gap:.2e}.",
            stacklevel=2,
        )
    best = run.best
    return FactoredSolution(
        best.program,
        best.factors,
        best.certificate,
        ending,
        run.escapes,
        run.steps,
        run.seconds,
        tuple(run.history),
        chosen.name,
    )


def _check_limits(tol: float, max_steps: int | None, max_time: float | None, scale: float) -> None:
    if math.isnan(tol):
        raise ValueError("tol must be a number, got nan. It is a relative duality gap, like 1e-4.")
    if max_steps is not None and (max_steps < 1 or max_steps % 1):
        raise ValueError(f"max_steps must be None or a positive whole number, got {max_steps!r}.")
    if max_time is not None and not max_time > 0:
        raise ValueError(f"max_time must be None or positive, got {max_time!r}.")
    if not 0 <= scale < math.inf:
        raise ValueError(f"scale must be a finite standard deviation, got {scale!r}.")


@dataclass
class _Best:
    """The point with the least objective that was looked at, and its certificate."""

    program: FactoredProgram
    factors: Factors
    value: float
    certificate: Certificate

    @property
    def gap(self) -> float:
        """How far the factors' own objective can be above the optimum, relatively: it is above the certificate's primal
        where they are not the cheapest factors of their product."""
        excess = max(self.value - self.certificate.primal, 0.0) / self.value if self.value > 0 else 0.0
        return self.certificate.relative_gap + (excess if excess > _ROUNDING else 0.0)


@dataclass
class _Run:
    program: FactoredProgram
    method: Method
    tol: float
    left_at: float  # the objective at which the last saddle was left; minus infinity if none may be
    callback: Callable[[Moment], None] | None
    history: list[Moment] = field(default_factory=list)
    steps: int = 0
    escapes: int = 0
    began: float = field(default_factory=time.perf_counter)
    best: _Best = field(init=False)
    lowest: State = field(init=False)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began

    def go(self, factors: Factors, max_steps: int, max_time: float | None) -> Ending:
        self.lowest = State(factors, self.program.value(factors))
        self._look(self.lowest)
        ending = self._descend(self.method.init(self.program, factors), max_steps, max_time)
        if self.lowest.value < self.best.value:
            self._look(self.lowest)
        return Ending.CERTIFIED if self.best.gap <= self.tol else ending

    def _descend(self, state: State, max_steps: int, max_time: float | None) -> Ending:
        ceiling = BLOWN_UP * max(self.best.value, self.program.problem.datafit.scale)
        while not self.best.gap <= self.tol:
            if not state.value <= ceiling:  # NaN included
                return Ending.DIVERGED
            if max_time is not None and self.seconds > max_time:
                return Ending.MAX_TIME
            if self.steps >= max_steps:
                return Ending.MAX_STEPS
            if state.finished or state.slow:
                following = go_on(self.program, self.method, state, self.left_at)
                if following is None:
                    return Ending.STATIONARY
                state = self._continued(*following, state)
            state = self._step(state, max_steps)
        return Ending.CERTIFIED

    def _step(self, state: State, max_steps: int) -> State:
        state = self.method.step(self.program, state)
        self.steps += 1
        if state.value < self.lowest.value:
            self.lowest = state
        due = self.steps % self.method.check_every == 0 or self.steps >= max_steps or state.finished
        if due and math.isfinite(state.value):
            self._look(state)
        return state

    def _continued(self, program: FactoredProgram, state: State, left: State) -> State:
        """Take note of an escape."""
        if state is not left:
            self.program, self.lowest, self.escapes, self.left_at = program, state, self.escapes + 1, left.value
            self._look(state)
        return state

    def _look(self, state: State) -> None:
        """Certify; keep the best objective and the best dual. An optimal product gets its cheapest factors."""
        factors, value = state.factors, state.value
        certificate = self.program.certificate(factors)
        if certificate.within(self.tol):
            even = self.program.balanced(factors)
            cheaper = self.program.value(even)
            factors, value = (even, cheaper) if cheaper < value else (factors, value)
        if not self.history or value <= self.best.value + _ROUNDING * abs(value):
            old = certificate if not self.history else self.best.certificate
            self.best = _Best(self.program, factors, value, certificate.with_dual_of(old))
        else:
            self.best.certificate = self.best.certificate.with_dual_of(certificate)
        gap, gradient = self.best.gap, self.program.stationarity(factors)
        self.history.append(Moment(self.steps, self.seconds, value, gradient, gap, self.program.m))
        if self.callback is not None:
            self.callback(self.history[-1])
