"""Training by relaxation: a lower bound, a network from it, and the gap between them."""

from dataclasses import dataclass, replace
from math import inf
from time import perf_counter
from typing import Self

from jaxtyping import Float
from torch import Tensor

from bidual.numerics.caratheodory import merge
from bidual.polar import bound_near
from bidual.polar.base import Neurons
from bidual.polar.search import RidgeSearch
from bidual.problems.certificate import Scope, judge
from bidual.problems.relu import ReluProblem
from bidual.problems.solution import DEFAULT_LIMITS, Limits, Solution, Status, Verdict
from bidual.solvers.driver import solve
from bidual.training.copositive.compact import Compact
from bidual.training.copositive.forms import checked_form, relax_compact
from bidual.training.copositive.pattern_program import check_squared
from bidual.training.copositive.randomised_rounding import RandomisedRounding
from bidual.training.copositive.relaxed import Relaxed
from bidual.training.neuron_solver import NeuronSolver
from bidual.training.relu.column_generation import ColumnGeneration

_ANGLES, _MERGING = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6), 1e-9  # angles between neurons, and what merging may cost
_ROUNDS = 3  # of polishing in a step


@dataclass
class _State:
    """The smaller problem with its relaxation, and the best network in it so far."""

    compact: Compact
    began: float
    bound: Relaxed | None = None
    neurons: Neurons | None = None
    best: Solution | None = None
    verdict: Verdict | None = None
    over: bool = False


@dataclass(frozen=True)
class Copositive(NeuronSolver):
    """Relax, round, polish, certify. The first step solves the relaxation and rounds it to a network; every step adds
    neurons to it that a local search finds.

    Attributes:
        form: of the relaxation, see :func:`relax`.
        starts: of the search.
        seed: of the draws and the search.
        limits: of the run.
    """

    form: str = "auto"
    starts: int = 256
    seed: int = 0
    limits: Limits = DEFAULT_LIMITS

    name = "copositive"
    max_steps = 20

    def __post_init__(self) -> None:
        if not self.starts >= 1:
            raise ValueError(f"starts must be at least 1, got {self.starts!r}.")

    def check(self, problem: ReluProblem) -> None:
        super().check(problem)
        check_squared(problem, "solver='copositive'", "solver='auto'")
        checked_form(Compact.of(problem), self.form)

    def within(self, limits: Limits) -> Self:
        return replace(self, limits=limits)

    def init(self, problem: ReluProblem, start: Neurons | None, dual: Tensor | None) -> _State:
        return _State(Compact.of(problem), perf_counter())

    def step(self, problem: ReluProblem, state: _State) -> _State:
        bound, neurons = (state.bound, state.neurons) if state.bound is not None else self._rounded(state)
        tol, before = self.limits.tol, inf if state.best is None else state.best.certificate.primal
        search = RidgeSearch(state.compact.problem.X, starts=self.starts, seed=self.seed)
        limits = Limits(0.3 * tol, _ROUNDS, self._left(state))
        done = solve(state.compact.problem, ColumnGeneration(search), limits, start=neurons)
        best = done if state.best is None or done.certificate.primal <= before else state.best
        little = before - best.certificate.primal <= 0.1 * tol * best.certificate.primal
        verdict = _judged(state.compact, bound, best)
        over = little or done.status is Status.SEARCHED
        return _State(state.compact, state.began, bound, done.neurons, best, verdict, over)

    def _rounded(self, state: _State) -> tuple[Relaxed, Neurons]:
        """The relaxation, and neurons from it."""
        compact, tol = state.compact, self.limits.tol
        bound = relax_compact(compact, self.form, max_time=self._left(state), tol=0.03 * tol)
        factors = tuple(rows @ compact.basis for rows in bound.factors)
        enough = bound.dual / (1 - 0.3 * tol)
        return bound, RandomisedRounding(seed=self.seed)(compact.problem, factors, self._left(state), enough)

    def _left(self, state: _State) -> float | None:
        return self.limits.after(perf_counter() - state.began, least=0.1).max_time

    def finished(self, state: _State) -> Status | None:
        return Status.STALLED if state.over else None


def _merged(problem: ReluProblem, done: Solution) -> tuple[Neurons, Float[Tensor, "m c"]]:
    """Neurons that point one way as one, as coarsely as costs nothing: draws often end at the same neuron."""
    neurons, weights = done.neurons, done.Z[:, 0]
    most = done.certificate.primal * (1 + _MERGING)
    for tol in _ANGLES:
        fewer, sums = merge(neurons, weights, tol)
        if problem.restricted_to(fewer).primal(sums[:, None]) <= most:
            return fewer, sums
    return neurons, weights


def _judged(compact: Compact, bound: Relaxed, polished: Solution) -> Verdict:
    """The network in the coordinates of the given problem, with the bound of the relaxation."""
    given = compact.relaxed(bound)
    neurons, weights = _merged(compact.problem, polished)
    program, Z = compact.given.restricted_to(compact.neurons(neurons)), compact.in_outputs(weights)[:, None]
    polar = bound_near(compact.given.X, given.V, given.polar)
    certificate = judge(program, Z, given.V, polar, Scope.ALL_PATTERNS)
    return Verdict(program, certificate, given.V, certificate.relative_gap)
