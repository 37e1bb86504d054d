"""Training by relaxation: a lower bound, a network from it, and the gap between them."""

import time
from dataclasses import dataclass

import torch

from bidual.certificate import Scope, judge
from bidual.column_generation import ColumnGeneration, Training
from bidual.copositive.compact import Compact
from bidual.copositive.pattern_program import check_squared
from bidual.copositive.relaxed import Relaxed
from bidual.copositive.relaxing import relax_compact
from bidual.copositive.rounding import Rounding
from bidual.driver import Callback, Record, Solution, Status
from bidual.polar import LocalSearch, bound_near
from bidual.relu import ReluProblem
from bidual.threads import one_thread

NAME = "copositive"


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
    rounds: int = 20
    starts: int = 16
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
        check_squared(problem, "solver='copositive'")
        clock = _Clock(time.perf_counter(), max_time)
        compact = Compact.of(problem)
        with one_thread():
            bound = relax_compact(compact, self.form, max_time=clock.left, tol=0.03 * tol)
            polished = self._polished(compact, bound, tol, clock)
            return _judged(compact, bound, polished, clock, tol, callback)

    def _polished(self, compact: Compact, bound: Relaxed, tol: float, clock: "_Clock") -> Training:
        """Rounded neurons with the best output weights, and some more neurons where a search finds steep ones."""
        small = compact.problem
        neurons = Rounding(seed=self.seed)(small, bound, clock.left)
        search = LocalSearch(small.X, starts=self.starts, seed=self.seed)
        return ColumnGeneration().train(
            small, search, tol=0.3 * tol, max_rounds=self.rounds, max_time=clock.left, start=neurons
        )


@dataclass(frozen=True)
class _Clock:
    began: float
    max_time: float | None

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began

    @property
    def left(self) -> float | None:
        return None if self.max_time is None else max(self.max_time - self.seconds, 0.1)


def _judged(
    compact: Compact, bound: Relaxed, polished: Training, clock: _Clock, tol: float, callback: Callback | None
) -> Training:
    """The network in the coordinates of the given problem, with its certificate."""
    given = compact.relaxed(bound)
    master = compact.given.over(compact.neurons(polished.neurons))
    Z = compact.in_outputs(polished.solution.Z)
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
