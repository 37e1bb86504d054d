"""Training on factors: a method descends, the certificate judges, and saddles are left."""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor

from bidual.gauges import Factorised, Factors
from bidual.problems.problem import Problem
from bidual.problems.solution import Callback, Limits, Solution, Status, Verdict
from bidual.runtime.user_warnings import warn_user
from bidual.solvers.active_neurons import smooth_price_refusal
from bidual.solvers.driver import Solver, solve
from bidual.solvers.factored.arithmetic import plus, resized
from bidual.solvers.factored.escape import go_on
from bidual.solvers.factored.gradient_descent import Descent
from bidual.solvers.factored.lbfgs import LBFGS
from bidual.solvers.factored.levenberg_marquardt import LevenbergMarquardt
from bidual.solvers.factored.method import Method, State
from bidual.solvers.factored.preconditioned import Preconditioned
from bidual.solvers.factored.program import FactoredProgram
from bidual.solvers.factored.proximal import Proximal
from bidual.solvers.factored.variable_projection import VariableProjection
from bidual.types import as_protocol

_SHIPPED: tuple[type[Method], ...] = (
    Descent,
    Preconditioned,
    LBFGS,
    LevenbergMarquardt,
    VariableProjection,
    Proximal,
)
METHODS: dict[str, type[Method]] = {cls.name: cls for cls in _SHIPPED}
_BLOWN_UP = 10.0  # times the objective of the start
_ROUNDING = 1e-13  # of two objectives that differ by less the later one is kept: its gradient is smaller
_NOISE = 1e-3  # is added to a warm start, so that columns of zeros can grow


def make_method(method: str | Method) -> Method:
    """A method by its name."""
    if isinstance(method, Method):
        return method
    if method not in METHODS:
        raise ValueError(f"method must be one of {sorted(METHODS)}, got {method!r}.")
    return METHODS[method]()


@dataclass(frozen=True, eq=False, kw_only=True)
class FactoredPoint(Verdict):
    """Factors, their program and their certificate.

    Attributes:
        program: with the final number of factors, and of blocks for a ReLU network.
        factors: of that program.
        value: the objective of (14), a sum over samples; times ``program.unit`` in the program's own scaling.
        escapes: how many saddles were left on the way.
    """

    program: FactoredProgram
    factors: Factors
    value: float
    escapes: int = 0

    @classmethod
    def of(cls, program: FactoredProgram, factors: Factors, value: float, escapes: int = 0) -> Self:
        """Judge factors; where their product is better than they are, its cheapest factors replace them."""
        found = program.judged(factors)
        point = cls(found.problem, found.certificate, program=program, factors=factors, value=value, escapes=escapes)
        if point.excess <= found.certificate.relative_gap:
            return point
        even = program.balanced(factors)
        cheaper = program.value(even)
        return replace(point, factors=even, value=cheaper) if cheaper < value else point

    @property
    def excess(self) -> float:
        """How much of the objective is due to factors that are not the cheapest of their product; rounding is not."""
        share = (self.value - self.certificate.primal) / self.value if self.value > 0 else 0.0
        return share if share > _ROUNDING else 0.0

    @property
    def gradient_norm(self) -> float:
        return self.program.stationarity(self.factors)

    def beats(self, best: Verdict) -> bool:
        if not isinstance(best, FactoredPoint):
            return super().beats(best)
        return self.value <= best.value + _ROUNDING * abs(self.value)

    def within(self, tol: float) -> bool:
        """Whether both the product and the factors are good enough."""
        near = self.certificate.relative_gap + self.excess <= tol
        return near or (self.certificate.exhausted and not self.excess)


def factored_point(solution: Solution) -> FactoredPoint:
    """The factors that were trained; of a solution by another solver, the cheapest factors of its Z."""
    if isinstance(solution.verdict, FactoredPoint):
        return solution.verdict
    factors = as_protocol(solution.problem.gauge, Factorised).split(solution.Z)
    program = FactoredProgram(solution.problem, factors.U.shape[2])
    value = program.value(factors)
    return FactoredPoint(solution.problem, solution.certificate, program=program, factors=factors, value=value)


@dataclass(frozen=True, eq=False)
class _Run:
    """Where a descent is.

    Attributes:
        program, state: the program, which may have grown, and the method's state on it.
        lowest: the state of least objective since the last saddle.
        ceiling: an objective above it means divergence.
        left_at: the objective at which the last saddle was left; minus infinity if none may be left.
        escapes: how many saddles were left.
        ended: why no step can follow.
    """

    program: FactoredProgram
    state: State
    lowest: State
    ceiling: float
    left_at: float
    escapes: int = 0
    ended: Status | None = None


@dataclass(frozen=True)
class BurerMonteiro(Solver):
    r"""min_{U,W} F(A (U_p W_p^T)_p) + beta/2 (|U|^2 + |W|^2) (BM eq. 17, 18), or any :class:`FactoredProgram`.

    The certificate of the convex program judges every point, so that a saddle is never mistaken for an optimum.
    :func:`factored_point` gives the factors of the solution.

    Attributes:
        rank: m, the neurons per block, where a :class:`Problem` is solved; the default min(a, b) leaves no spurious
            local minima for linear and gated networks (docs/corrections.md, BM Thm 3.3).
        method: descends; a step of the solver is one of its steps.
        escape: whether the direction that the certificate finds violated is added where the method stops.
        seed, scale: of the random start, and its standard deviation.
        start: factors to begin with instead.
    """

    rank: int | None = None
    method: str | Method = "lbfgs"
    escape: bool = True
    seed: int = 0
    scale: float = 0.1
    start: Factors | None = field(default=None, compare=False)
    name = "burer_monteiro"
    needs = {"gauge": (Factorised,)}  # noqa: RUF012
    needs_smooth_loss = True
    instead = "kernel_admm"

    def __post_init__(self) -> None:
        if self.rank is not None and self.rank < 1:
            raise ValueError(f"rank must be at least 1, got {self.rank}.")
        if not 0 <= self.scale < math.inf:
            raise ValueError(f"scale must be a finite standard deviation, got {self.scale!r}.")
        make_method(self.method)

    @cached_property
    def _method(self) -> Method:
        return make_method(self.method).with_seed(self.seed) if isinstance(self.method, str) else self.method

    @property
    def check_every(self) -> int:
        return self._method.check_every

    @property
    def max_steps(self) -> int:
        return self._method.max_steps

    def refusal(self, problem: Any) -> str | None:
        return self._method.refusal(problem) if isinstance(problem, FactoredProgram) else super().refusal(problem)

    def _refusal(self, problem: Problem) -> str | None:
        return smooth_price_refusal(self.name, problem) or self._method.refusal(self._program(problem))

    def check(self, problem: Any) -> None:
        if not isinstance(problem, FactoredProgram):
            super().check(problem)
        elif reason := self.refusal(problem):
            able = next((name for name, other in METHODS.items() if other().refusal(problem) is None), None)
            remedy = f"Use method={able!r}." if able else "Use a convex solver, such as bidual.solvers.plan.solve_auto."
            raise ValueError(f"{reason} {remedy}")

    def first(self, problem: Any, start: Tensor | None, dual: Tensor | None) -> Verdict | None:
        if not isinstance(problem, FactoredProgram):
            return super().first(problem, start, dual)
        factors = self._start(problem, None)
        return FactoredPoint.of(problem, factors, problem.value(factors))

    def init(self, problem: Any, start: Tensor | None, dual: Tensor | None) -> _Run:
        program = self._program(problem)
        program.warn_if_wasteful()
        return self._begun(program, self._start(program, start))

    def resume(self, problem: Any, done: Solution) -> _Run:
        found = done.verdict
        if isinstance(found, FactoredPoint):
            return self._begun(found.program, found.factors)
        return super().resume(problem, done)

    def _program(self, problem: Problem | FactoredProgram) -> FactoredProgram:
        if isinstance(problem, FactoredProgram):
            return problem
        return FactoredProgram(problem, self.rank or min(problem.operator.block_shape[1:]))

    def _start(self, program: FactoredProgram, near: Tensor | None) -> Factors:
        """The given factors, or random ones, or those of a lifted variable with some noise."""
        if self.start is not None:
            return program.feasible(program.check(self.start))
        generator = torch.Generator().manual_seed(self.seed)
        if near is None:
            return program.start(generator, self.scale)
        known = resized(as_protocol(program.problem.gauge, Factorised).split(near), program.m)
        return plus(program.start(generator, _NOISE), known, 1.0)

    def _begun(self, program: FactoredProgram, factors: Factors) -> _Run:
        state = self._method.init(program, factors)
        ceiling = _BLOWN_UP * max(program.value(factors), program.problem.datafit.scale)
        return _Run(program, state, state, ceiling, math.inf if self.escape else -math.inf)

    def step(self, problem: Any, state: _Run) -> _Run:
        """One step of the method, after an escape where it has finished or become slow."""
        run = self._past_saddle(state) if state.state.finished or state.state.slow else state
        if run.ended:
            return run
        new = self._method.step(run.program, run.state)
        if not new.value <= run.ceiling:  # NaN included
            warn_user(f"{self._method.name} diverged: {Status.DIVERGED.value}.", UserWarning)
            return replace(run, state=new, ended=Status.DIVERGED)
        return replace(run, state=new, lowest=new if new.value < run.lowest.value else run.lowest)

    def _past_saddle(self, run: _Run) -> _Run:
        following = go_on(run.program, self._method, run.state, run.left_at)
        if following is None:
            return replace(run, ended=Status.STALLED)
        program, state = following
        if state is run.state:  # slow, and at no saddle
            return run
        return replace(
            run, program=program, state=state, lowest=state, left_at=run.state.value, escapes=run.escapes + 1
        )

    def _best(self, run: _Run) -> State:
        near = run.state.value <= run.lowest.value + _ROUNDING * abs(run.lowest.value)
        return run.state if near else run.lowest

    def point(self, problem: Any, state: _Run) -> Tensor:
        return state.program.product(self._best(state).factors)

    def certified(self, problem: Any, state: _Run) -> Verdict:
        best = self._best(state)
        return FactoredPoint.of(state.program, best.factors, best.value, state.escapes)

    def estimate(self, problem: Any, state: _Run) -> float | None:
        return 0.0 if state.state.finished else None

    def finished(self, state: _Run) -> Status | None:
        return state.ended


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
    callback: Callback | None = None,
) -> Solution:
    """Run :class:`BurerMonteiro` on a program until both the factors and their product are certified to ``tol``.

    A negative ``tol`` runs to the end of the method, unless the gap is as small as float64 can prove.
    """
    solver = BurerMonteiro(None, method, escape, seed, scale, start)
    return solve(program, solver, Limits(tol, max_steps, max_time), callback=callback)
