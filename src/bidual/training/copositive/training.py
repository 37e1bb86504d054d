"""Training by relaxation: a lower bound in one of three forms, a network from it, and the gap between them."""

from dataclasses import dataclass, replace
from math import inf
from time import perf_counter
from typing import Self

from jaxtyping import Float
from torch import Tensor

from bidual.numerics.caratheodory import merge
from bidual.patterns import count_bound
from bidual.patterns.spike_free import is_spike_free
from bidual.polar import bound_near
from bidual.polar.base import Neurons
from bidual.polar.ridges import RidgeSearch
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import DEFAULT_LIMITS, Limits, Solution, Status, Verdict
from bidual.runtime.threads import one_thread
from bidual.solvers.driver import NeuronSolver, solve
from bidual.training.copositive.pattern_program import check_squared, pattern_bound
from bidual.training.copositive.randomised_rounding import rounded_neurons
from bidual.training.copositive.relaxed import Compact, Relaxed
from bidual.training.copositive.splitting import joint_bound, spike_free_bound
from bidual.training.relu.closed_form import judged
from bidual.training.relu.column_generation import ColumnGeneration

FORMS = ("patterns", "spike_free", "joint")
_QUICK_PATTERNS, _MOST_PATTERNS = 2_500, 50_000
_LARGEST_LIFT = 1_500  # numbers of V in a conic program
_LARGEST_SIDE = {"spike_free": 1_500, "joint": 500}  # of a semidefinite matrix, of which every step takes eigenvalues
_ANGLES, _MERGING = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6), 1e-9  # angles between neurons, and what merging may cost
_ROUNDS = 3  # of polishing in a step


def relax(
    problem: ReluProblem, form: str = "auto", *, max_time: float | None = None, tol: float = 1e-6, branch: int = 0
) -> Relaxed:
    r"""A lower bound of ReLU training over all activation patterns, by a relaxation of the copositive program (17).

    Args:
        problem: weight decay on both layers.
        form: "patterns" is CP (19), one cone per pattern, for squared loss; "spike_free" is CP (20), one cone in all,
            for spike-free X; "joint" needs neither patterns nor spike-free data and is the loosest. "auto" takes (20)
            where it holds, then (19) where the patterns are few, then the joint one.
        max_time: in seconds; the bound is sound at any end.
        tol: relative accuracy to which the relaxation is solved.
        branch: cuts of the sphere, for the joint form only.
    """
    problem.check_plain("the copositive program")
    if not 0 < tol < 1:
        raise ValueError(f"tol must be between 0 and 1, got {tol!r}. It is a relative accuracy, like 1e-6.")
    if max_time is not None and not max_time > 0:
        raise ValueError(f"max_time must be None or positive, got {max_time!r}.")
    if not isinstance(branch, int) or isinstance(branch, bool) or branch < 0:
        raise ValueError(f"branch must be a whole number of cuts, 0 or more, got {branch!r}.")
    with one_thread():  # many small matrices, for which threads cost more than they gain
        compact = Compact.of(problem)
        return compact.relaxed(relax_compact(compact, form, max_time=max_time, tol=tol, branch=branch))


def relax_compact(compact: Compact, form: str, *, max_time: float | None, tol: float, branch: int = 0) -> Relaxed:
    """The same for the problem with rotated outputs."""
    problem, form = compact.rotated, checked_form(compact, form)
    if form == "patterns":
        return pattern_bound(problem, max_time, tol)
    if form == "spike_free":
        return spike_free_bound(problem, max_time, tol)
    return joint_bound(problem, branch, max_time, tol)


def checked_form(compact: Compact, form: str) -> str:
    """The form to use; refused if it is unknown or too large."""
    if form not in (*FORMS, "auto"):
        raise ValueError(f"form must be 'auto' or one of {sorted(FORMS)}, got {form!r}.")
    form = form_for(compact) if form == "auto" else form
    check_size(compact.problem, form)
    return form


def form_for(compact: Compact) -> str:
    """The tightest relaxation that is quick."""
    (n, rank), data = compact.problem.X.shape, compact.problem.datafit
    if rank and is_spike_free(compact.given.X).holds:
        return "spike_free"
    few = count_bound(n, rank) <= _QUICK_PATTERNS and data.targets.numel() <= _LARGEST_LIFT
    return "patterns" if few and data.loss.half_square else "joint"


def check_size(problem: ReluProblem, form: str) -> None:
    """Refuse problems that are too large before any work; ``problem`` is compact."""
    n, rank, c = *problem.X.shape, problem.datafit.targets.shape[1]
    if form == "patterns":
        check_squared(problem, "the copositive program over patterns, CP (19),", "the form 'joint'")
        if count_bound(n, rank) > _MOST_PATTERNS or n * c > _LARGEST_LIFT:
            raise ValueError(
                f"CP (19) for {n} samples of rank {rank} and {c} outputs has up to {count_bound(n, rank):,} cones and "
                f"{n * c:,} dual numbers, more than {_MOST_PATTERNS:,} or {_LARGEST_LIFT:,}; use the form 'joint', or "
                "solver='column_generation'."
            )
        return
    side = rank + c + (0 if form == "spike_free" else n)
    if side > _LARGEST_SIDE[form]:
        raise ValueError(
            f"the {form} relaxation of {n} samples of rank {rank} with {c} outputs is a semidefinite program of size "
            f"{side:,}, more than {_LARGEST_SIDE[form]:,}; use solver='column_generation', or fewer samples."
        )


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
        left = self._left(state)
        return bound, rounded_neurons(compact.problem, factors, seed=self.seed, max_time=left, enough=enough)

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
    polar = bound_near(compact.given.X, given.V, given.polar)
    return judged(compact.given, compact.neurons(neurons), compact.in_outputs(weights), given.V, polar)
