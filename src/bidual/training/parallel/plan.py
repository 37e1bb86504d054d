"""How parallel networks are trained: two layers first, then search, then proof."""

from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt

from jaxtyping import Float
from torch import Tensor

from bidual.operators.parallel import Widths, as_widths
from bidual.polar.subnetworks.base import ParallelOracle, copies
from bidual.polar.subnetworks.bound import RelaxedBound
from bidual.polar.subnetworks.outputs import AllOutputs
from bidual.polar.subnetworks.pricing import ExactParallel, exact_pricing_cost
from bidual.polar.subnetworks.search import ParallelSearch
from bidual.problems.parallel import ParallelProblem
from bidual.problems.relu import ReluProblem
from bidual.problems.solution import Limits, Solution
from bidual.solvers.plan import Plan, Stage
from bidual.training.parallel.relaxation import relaxed_dual
from bidual.training.relu.column_generation import ColumnGeneration
from bidual.training.relu.lower_bounds import DualPoints
from bidual.training.relu.plan import MOMENT, NeuronPlan, ReluPlan
from bidual.types import Matrix

PARALLEL_SOLVERS = ("column_generation",)
_ROUGH = 1e-3  # the search gap at which exact questions begin to pay
_ASKED = 60  # questions to a quick bound about several outputs
_SEEDS = 64  # two-layer neurons whose copies a search starts from
_HIGHER_RANK, _QUESTIONS = 30, 50  # what a question costs more beyond the plane, and how many several outputs need
_AFFORDABLE = 1e6  # networks to look at without being asked: seconds to a minute
_STEPS = 200  # of column generation


@dataclass(frozen=True, eq=False)
class ParallelPlan(NeuronPlan):
    """Trains parallel networks.

    It starts from the two-layer network at beta / sqrt(m_1 m_2 ...), whose copies are a parallel network of the same
    value and often the optimum, and adds sub-networks that a search finds. Then exact pricing finds the rest and proves
    the answer, where it is affordable; elsewhere a bound says how good the answer is at least.

    Attributes:
        widths: m_1, or (m_1, ..., m_(L-2)) for L layers.
    """

    X: Float[Tensor, "n d"]
    widths: Widths
    oracle: str = "auto"
    n_starts: int | str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "widths", as_widths(self.widths))
        if self.oracle == "exact":
            self._check_exact()

    def _check_exact(self) -> None:
        """Refuse before any work where exact pricing would look at too much."""
        widths = as_widths(self.widths)
        if len(widths) > 1:
            raise ValueError(f"oracle='exact' is for three layers, one width, got {widths}; use 'auto', a search.")
        exact_pricing_cost(len(self.X), self.rank, widths[0], refuse=True)

    def exact(self, n_outputs: int = 1) -> bool:
        """Whether all patterns are looked at: for several outputs many times, and less quickly beyond the plane."""
        widths = as_widths(self.widths)
        if self.oracle != "auto" or len(widths) > 1:
            return self.oracle == "exact"
        slower = (1 if self.rank <= 2 else _HIGHER_RANK) * (1 if n_outputs == 1 else _QUESTIONS)
        return slower * exact_pricing_cost(len(self.X), self.rank, widths[0]) <= _AFFORDABLE

    @cached_property
    def _priced(self) -> ExactParallel:
        return ExactParallel(self.X, self.widths)

    @cached_property
    def _relaxed(self) -> RelaxedBound:
        return RelaxedBound(self.X, self.widths)

    @cached_property
    def _plain(self) -> ReluPlan:
        return ReluPlan(self.X, seed=self.seed)

    def parallel_oracle(self, n_outputs: int) -> ParallelOracle:
        """The oracle that proves: exact pricing, or a bound."""
        if self.exact(n_outputs):
            return self._priced if n_outputs == 1 else AllOutputs(self._priced)
        if n_outputs == 1:
            return self._relaxed
        questions = _ASKED if self._relaxed.quick else n_outputs
        return AllOutputs(RelaxedBound(self.X, self.widths, nodes=0), max_queries=questions)

    def _search(self) -> ParallelSearch:
        more = {} if isinstance(self.n_starts, str) else {"starts": self.n_starts}
        return ParallelSearch(self.X, self.widths, seed=self.seed, **more)

    def steepest(self, V: Matrix) -> float:
        """Attained by a sub-network: the steepest, or the best of a search and of two layers' copies."""
        if self.exact(V.shape[1]):
            return self.parallel_oracle(V.shape[1]).steepest(V).bracket.lower
        two = self._plain.neuron_oracle.steepest(V).neurons[:_SEEDS]
        return self._search().steepest(V, seeds=copies(two, self.widths)).bracket.lower

    def check(self, problem: ParallelProblem, solver: str, max_time: float | None = None) -> None:
        if solver not in ("auto", *PARALLEL_SOLVERS):
            raise ValueError(f"solver must be 'auto' or one of {sorted(PARALLEL_SOLVERS)}, got {solver!r}.")

    def stages(
        self, problem: ParallelProblem, limits: Limits, solver: str, prove: bool, candidates: tuple[Matrix, ...]
    ) -> Plan:
        outputs = problem.datafit.targets.shape[1]
        exact, steps = self.exact(outputs), _STEPS if limits.max_steps is None else limits.max_steps
        two = self._two_layers(problem, limits)
        left = replace(limits.after(two.seconds, least=MOMENT), max_steps=steps)
        search = ColumnGeneration(self._search().within(left.max_time), copies(two.neurons, self.widths))
        found = yield Stage(search, replace(left, tol=max(limits.tol, _ROUGH) if exact else limits.tol))
        left = replace(limits.after(found.seconds, least=MOMENT), max_steps=steps)
        if exact:
            yield Stage(ColumnGeneration(self.parallel_oracle(outputs).within(left.max_time)), left)
        elif prove:
            yield from self._proofs(problem, left, found, two, candidates)

    def _two_layers(self, problem: ParallelProblem, limits: Limits) -> Solution:
        """The two-layer network at beta / sqrt(m_1 m_2 ...), another problem whose copies are the first neurons."""
        plain = ReluProblem(self.X, problem.datafit, problem.beta / sqrt(problem.units))
        share = None if limits.max_time is None else limits.max_time / 3
        return self._plain.train(plain, Limits(limits.tol, max_time=share), prove=False)

    def _proofs(
        self, problem: ParallelProblem, left: Limits, found: Solution, two: Solution, candidates: tuple[Matrix, ...]
    ) -> Plan:
        """The bound at the last dual point; where it is quick, also at those of two layers and of its relaxation."""
        oracle, left = (
            self.parallel_oracle(problem.datafit.targets.shape[1]).within(left.max_time),
            replace(left, max_steps=None),
        )
        before = found.seconds
        found = yield Stage(DualPoints(oracle, (found.dual_point, *candidates), problem.beta), left)
        left = left.after(found.seconds - before)
        if self._relaxed.quick and (left.max_time is None or left.max_time > MOMENT):
            best = relaxed_dual(problem, self._plain.neuron_oracle, two.neurons)
            points = (two.dual_point,) if best is None else (two.dual_point, best)
            yield Stage(DualPoints(oracle, points, problem.beta), left)
