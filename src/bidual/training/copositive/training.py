"""Training by relaxation: a lower bound, a network from it, and the gap between them."""

import time
from dataclasses import dataclass
from math import inf

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.numerics.caratheodory import merge
from bidual.polar import bound_near
from bidual.polar.base import Neurons
from bidual.polar.search.ridges import RidgeSearch
from bidual.problems.certificate import Scope, judge
from bidual.problems.relu import ReluProblem
from bidual.runtime.threads import one_thread
from bidual.solvers.driver import Callback, Record, Solution, Status
from bidual.training.copositive.compact import Compact
from bidual.training.copositive.forms import check_settings, checked_form, relax_compact
from bidual.training.copositive.pattern_program import check_squared
from bidual.training.copositive.randomised_rounding import RandomisedRounding
from bidual.training.copositive.relaxed import Relaxed
from bidual.training.relu.column_generation import ColumnGeneration, Training

NAME = "copositive"
_ANGLES, _MERGING = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6), 1e-9  # angles between neurons, and what merging may cost
_LOOK_EVERY = 3  # rounds of polishing between two looks at the gap


@dataclass(frozen=True)
class CopositiveTraining:
    """Relax, round, polish, certify.

    Attributes:
        form: of the relaxation, see :func:`relax`.
        rounds: the most rounds of column generation that polish the network; their neurons come from a local search.
        starts: of that search.
        seed: of the draws and the search.
    """

    form: str = "auto"
    rounds: int = 60
    starts: int = 256
    seed: int = 0

    def train(
        self,
        problem: ReluProblem,
        *,
        tol: float = 1e-4,
        max_time: float | None = None,
        callback: Callback | None = None,
    ) -> Training:
        """A network with the certificate that the relaxation gives, over all activation patterns."""
        self.check(problem)
        check_settings(max_time, tol)
        clock = _Clock(time.perf_counter(), max_time)
        with one_thread():
            compact = Compact.of(problem)
            bound = relax_compact(compact, self.form, max_time=clock.left, tol=0.03 * tol)
            polished = self._polished(compact, bound, tol, clock)
            return _judged(compact, bound, polished, clock, tol, callback)

    def check(self, problem: ReluProblem) -> None:
        """Refuse before any work what this is not for."""
        if not (self.rounds >= 1 and self.starts >= 1):
            raise ValueError(f"rounds and starts must be at least 1, got {self.rounds!r} and {self.starts!r}.")
        check_squared(problem, "solver='copositive'", "solver='auto'")
        checked_form(Compact.of(problem), self.form)

    def _polished(self, compact: Compact, bound: Relaxed, tol: float, clock: "_Clock") -> Training:
        """Rounded neurons with the best output weights, and more neurons as long as a search finds ones that help."""
        small = compact.problem
        search = RidgeSearch(small.X, starts=self.starts, seed=self.seed)
        factors = tuple(rows @ compact.basis for rows in bound.factors)
        enough = bound.dual / (1 - 0.3 * tol)
        best, start = None, RandomisedRounding(seed=self.seed)(small, factors, clock.left, enough)
        for _ in range(0, self.rounds, _LOOK_EVERY):
            done = ColumnGeneration().train(
                small, search, tol=0.3 * tol, max_rounds=_LOOK_EVERY, max_time=clock.left, start=start
            )
            before, best, start = best, done if best is None else done.after(best), done.neurons
            primal = best.solution.certificate.primal
            gained = inf if before is None else before.solution.certificate.primal - primal
            found_all = done.solution.status is Status.SEARCHED
            if found_all or primal - bound.dual <= tol * primal or gained <= 0.1 * tol * primal or clock.over:
                break
        assert best is not None
        return best


@dataclass(frozen=True)
class _Clock:
    began: float
    max_time: float | None

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began

    @property
    def over(self) -> bool:
        return self.max_time is not None and self.seconds > self.max_time

    @property
    def left(self) -> float | None:
        return None if self.max_time is None else max(self.max_time - self.seconds, 0.1)


def _merged(problem: ReluProblem, done: Training) -> tuple[Neurons, Float[Tensor, "m c"]]:
    """Neurons that point one way as one, as coarsely as costs nothing: draws often end at the same neuron."""
    neurons, weights = done.neurons, done.solution.Z[:, 0]
    most = done.solution.certificate.primal * (1 + _MERGING)
    for tol in _ANGLES:
        fewer, sums = merge(neurons, weights, tol)
        if problem.restricted_to(fewer).primal(sums[:, None]) <= most:
            return fewer, sums
    return neurons, weights


def _judged(
    compact: Compact, bound: Relaxed, polished: Training, clock: _Clock, tol: float, callback: Callback | None
) -> Training:
    """The network in the coordinates of the given problem, with its certificate."""
    given = compact.relaxed(bound)
    neurons, weights = _merged(compact.problem, polished)
    master, Z = compact.given.restricted_to(compact.neurons(neurons)), compact.in_outputs(weights)[:, None]
    polar = bound_near(compact.given.X, given.V, given.polar)
    certificate = judge(master, Z, given.V, polar, Scope.ALL_PATTERNS)
    gap = certificate.relative_gap
    record = Record(NAME, 1, clock.seconds, certificate.primal, certificate.dual, gap)
    if callback is not None:
        callback(record)
    status = Status.CERTIFIED if gap <= tol else Status.STALLED
    steps = bound.steps + polished.solution.n_steps
    solution = Solution(Z, certificate, status, steps, record.seconds, (record,), NAME)
    return Training(master, solution, torch.as_tensor(given.V), gap)
