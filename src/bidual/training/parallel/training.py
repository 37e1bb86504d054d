"""How parallel networks are trained: two layers first, then search, then proof."""

from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from time import perf_counter

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.operators.parallel import Widths, as_widths
from bidual.patterns.reduction import reduce_rank
from bidual.polar import Neurons
from bidual.polar.subnetworks.base import ParallelOracle, copies
from bidual.polar.subnetworks.bound import RelaxedBound
from bidual.polar.subnetworks.outputs import AllOutputs
from bidual.polar.subnetworks.pricing import ExactParallel, exact_pricing_cost
from bidual.polar.subnetworks.search import ParallelSearch
from bidual.problems.parallel import ParallelProblem
from bidual.problems.relu import ReluProblem
from bidual.runtime.threads import one_thread
from bidual.solvers.driver import Callback
from bidual.training.parallel.relaxation import relaxed_dual
from bidual.training.relu.column_generation import ColumnGeneration, Training, continued
from bidual.training.relu.lower_bounds import with_dual
from bidual.training.relu.trainer import Limits, ReluTrainer, check_training
from bidual.types import Matrix

PARALLEL_SOLVERS = ("column_generation",)
_ROUGH = 1e-3  # the search gap at which exact questions begin to pay
_ASKED = 60  # questions to a quick bound about several outputs
_SEEDS = 64  # two-layer neurons whose copies a search starts from
_HIGHER_RANK, _QUESTIONS = 30, 50  # what a question costs more beyond the plane, and how many several outputs need
_AFFORDABLE = 1e6  # networks to look at without being asked: seconds to a minute


@dataclass(frozen=True, eq=False)
class ParallelTrainer:
    """Trains parallel networks on fixed samples, for any targets and beta.

    It starts from the two-layer network at beta / sqrt(m_1 m_2 ...), whose copies are a parallel network of the same
    value and often the optimum, and adds sub-networks that a search finds. Then exact pricing finds the rest and proves
    the answer, where it is affordable; elsewhere a bound says how good the answer is at least.

    Attributes:
        X: the samples, with a constant column if first-layer units have a bias.
        widths: m_1, or (m_1, ..., m_(L-2)) for L layers.
        oracle: how the steepest sub-network is found: "exact" (over all patterns of both layers, or a refusal),
            "search", or "auto" (exact if that is affordable).
        n_starts: of the search.
        seed: of the search's starts.
    """

    X: Float[Tensor, "n d"]
    widths: Widths
    oracle: str = "auto"
    n_starts: int | str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", as_widths(self.widths))
        if self.oracle == "exact":
            self._check_exact()

    def _check_exact(self) -> None:
        """Say before any work that exact pricing would look at too much."""
        widths = as_widths(self.widths)
        if len(widths) > 1:
            raise ValueError(f"oracle='exact' is for three layers, one width, got {widths}; use 'auto', a search.")
        exact_pricing_cost(len(self.X), self._rank, widths[0], refuse=True)

    def exact(self, n_outputs: int = 1) -> bool:
        """Whether all patterns are looked at: for several outputs many times, and less quickly beyond the plane."""
        widths = as_widths(self.widths)
        if self.oracle != "auto" or len(widths) > 1:
            return self.oracle == "exact"
        slower = (1 if self._rank <= 2 else _HIGHER_RANK) * (1 if n_outputs == 1 else _QUESTIONS)
        return slower * exact_pricing_cost(len(self.X), self._rank, widths[0]) <= _AFFORDABLE

    @cached_property
    def _rank(self) -> int:
        return reduce_rank(self.X.detach().to("cpu", torch.float64).numpy()).rank

    @cached_property
    def _priced(self) -> ExactParallel:
        return ExactParallel(self.X, self.widths)

    @cached_property
    def _relaxed(self) -> RelaxedBound:
        return RelaxedBound(self.X, self.widths)

    def parallel_oracle(self, n_outputs: int) -> ParallelOracle:
        """What proves: exact pricing, or a bound."""
        if not self.exact(n_outputs):
            return self._bound(n_outputs)
        return self._priced if n_outputs == 1 else AllOutputs(self._priced)

    def _bound(self, n_outputs: int) -> ParallelOracle:
        if n_outputs == 1:
            return self._relaxed
        asked = _ASKED if self._relaxed.quick else n_outputs
        return AllOutputs(RelaxedBound(self.X, self.widths, nodes=0), max_queries=asked)

    def _search(self) -> ParallelSearch:
        more = {} if isinstance(self.n_starts, str) else {"starts": self.n_starts}
        return ParallelSearch(self.X, self.widths, seed=self.seed, **more)

    def beta_max(self, problem: ParallelProblem) -> float:
        """The steepest sub-network at the zero network; if it was only searched for, a lower bound of that."""
        V = problem.datafit.into_domain(problem.datafit.grad(torch.zeros_like(problem.datafit.targets)))
        with one_thread():
            peak = self._steepest(V)
        noise = problem.restricted_to(self.X.new_zeros(0, problem.neuron_size)).likely_rounding_of_polar(V)
        return 0.0 if peak <= noise else peak

    def _steepest(self, V: Matrix) -> float:
        """What is attained by a sub-network: the steepest, or the best of a search and of two layers' copies."""
        if self.exact(V.shape[1]):
            return self.parallel_oracle(V.shape[1]).steepest(V).bracket.lower
        two = self._plain.neuron_oracle.steepest(V).neurons[:_SEEDS]
        return self._search().steepest(V, seeds=copies(two, self.widths)).bracket.lower

    @cached_property
    def _plain(self) -> ReluTrainer:
        return ReluTrainer(self.X, seed=self.seed)

    def train(
        self,
        problem: ParallelProblem,
        *,
        solver: str = "auto",
        tol: float = 1e-4,
        max_steps: int | None = None,
        max_time: float | None = None,
        start: Neurons | None = None,
        callback: Callback | None = None,
        prove: bool = True,
    ) -> Training:
        """Train to a certified relative gap of ``tol``, from given sub-networks if there are any.

        Without ``prove`` nothing is done for the certificate that training does not need.
        """
        check_training(tol, max_time, self.oracle, self.n_starts)
        if solver not in ("auto", *PARALLEL_SOLVERS):
            raise ValueError(f"solver must be 'auto' or one of {sorted(PARALLEL_SOLVERS)}, got {solver!r}.")
        with one_thread():
            return self._train(problem, Limits(tol, max_steps, max_time), start, callback, prove)

    def _train(
        self, problem: ParallelProblem, limits: Limits, start: Neurons | None, callback: Callback | None, prove: bool
    ) -> Training:
        two = self._two_layers(problem, limits)
        first = copies(two.neurons, self.widths)
        start = first if start is None else torch.cat([start.to(first), first])
        search = self._search().within(limits.left(two))
        found = self._columns(problem, search, limits, start, two, callback).since(two.solution.seconds)
        outputs = problem.datafit.targets.shape[1]
        if found.solution.certificate.within(limits.tol) or not (prove or self.exact(outputs)):
            return found
        if not self.exact(outputs):
            return self._proved(problem, found, two, limits)
        oracle = self.parallel_oracle(outputs).within(limits.left(found))
        return self._columns(problem, oracle, limits, found.neurons, found, callback).after(found)

    def _proved(self, problem: ParallelProblem, found: Training, two: Training, limits: Limits) -> Training:
        """The training with the best certificate that the bound gives in the time that is left."""
        left, candidates, began = limits.left(found), [found.dual_point], perf_counter()
        oracle = self._bound(problem.datafit.targets.shape[1]).within(left)
        if self._relaxed.quick:
            best = relaxed_dual(problem, self._plain.neuron_oracle, two.neurons)
            candidates += [two.dual_point] if best is None else [two.dual_point, best]
        for V in candidates:
            late = left is not None and perf_counter() - began > left and V is not candidates[0]
            if not found.solution.certificate.within(limits.tol) and not late:
                found = with_dual(found, V, lambda W: oracle.steepest(W, problem.beta).bracket.upper, limits.tol)
        return found.since(perf_counter() - began)

    def _columns(
        self,
        problem: ParallelProblem,
        oracle: ParallelOracle,
        limits: Limits,
        start: Neurons,
        before: Training,
        callback: Callback | None = None,
    ) -> Training:
        """Columns by one oracle, on from a training."""
        return ColumnGeneration().train(
            problem,
            oracle,
            tol=max(limits.tol, _ROUGH) if self._exactly(problem) and not oracle.proves else limits.tol,
            max_rounds=200 if limits.max_steps is None else limits.max_steps,
            max_time=limits.left(before),
            start=start,
            callback=None if callback is None else continued(callback, before),
        )

    def _exactly(self, problem: ParallelProblem) -> bool:
        return self.exact(problem.datafit.targets.shape[1])

    def _two_layers(self, problem: ParallelProblem, limits: Limits) -> Training:
        """The two-layer network at beta / sqrt(m_1 m_2 ...)."""
        plain = ReluProblem(self.X, problem.datafit, problem.beta / sqrt(problem.units))
        share = None if limits.max_time is None else limits.max_time / 3
        return self._plain.train(plain, tol=limits.tol, max_time=share, prove=False)
