"""Plans for networks over all neurons, and which way to train a ReLU network and to prove how good it is."""

from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.operators.patches import Patches
from bidual.patterns.reduction import reduce_rank
from bidual.patterns.spike_free import is_spike_free
from bidual.polar import DiagonalBound, Faces, LocalSearch, NeuronOracle, RidgeSearch, Sphere, oracle_for
from bidual.polar.base import Make, distinct_count
from bidual.polar.exact.faces import affordable, slow
from bidual.problems.problem import NeuronProblem, ReluProblem
from bidual.problems.solution import DEFAULT_LIMITS, Callback, Limits, Solution
from bidual.runtime.crossovers import PROOFS
from bidual.runtime.memory import available_bytes
from bidual.runtime.numerical_errors import NUMERICAL
from bidual.runtime.threads import one_thread
from bidual.solvers.driver import Plan, Solver, Stage, run
from bidual.training.copositive import Copositive
from bidual.training.relu import closed_form, cutting_planes, frank_wolfe
from bidual.training.relu.column_generation import ColumnGeneration
from bidual.training.relu.lower_bounds import DualPoints, SpikeFreeBound, affordable_steps
from bidual.training.relu.product_bound import JointProductBound, bytes_needed
from bidual.training.relu.start import NetworkStart
from bidual.types import Blocks, Matrix

ORACLES = ("auto", "exact", "search")
RELU_SOLVERS = ("column_generation", "cone_program", "frank_wolfe", "closed_form", "cutting_planes", "copositive")
_BY_COLUMNS = ("auto", "column_generation")
MOMENT = 0.1  # seconds that a stage has at least
# where one way overtakes another; the limits of the exact oracle are in polar/exact/faces.py
_ROUGH = 3e-3  # the search gap at which exact questions begin to pay
_STARTS, _RIDGE_STARTS = 256, 48
_SEARCH_TOL = 1e-3  # of a search beyond the ranks of the sphere, where a proof seldom has more digits
_SEARCH_SHARE = 0.5  # of the time, that a search may take beyond that gap where a proof follows
_WHITE_SAMPLES = 200  # up to so many, the relaxation of spike-free data is a matter of seconds
_TIGHTER = 0.3  # of the tolerance, what the oracle on the sphere may leave open
_QUICK_RANK, _HIGHEST_RANK = 5, 6  # that cutting the sphere copes with, without and with a limit of time
_QUICK_SIMPLICES, _MOST_SIMPLICES = 250_000, 2_000_000  # likewise, of a query; about twenty thousand a second
_NEAR = 1e-2  # a gap on the sphere that the product bound does not improve within a default fit's seconds
_SPHERE_SAMPLES = 20_000  # beyond, the first simplices, which see all samples, take too long

Stages = Generator[Stage, Solution, Solution]


def _usual(limits: Limits) -> bool:
    """Whether no more is asked for than by default; with less, training goes on until it is there."""
    return limits.tol >= DEFAULT_LIMITS.tol


class NeuronPlan(ABC):
    """How networks on fixed samples are trained, for any targets and beta.

    Attributes:
        X: the samples, with a constant column if neurons have a bias.
        oracle: "exact" (all patterns, or a refusal), "auto" (all of them if that is affordable), or "search". Where not
            all patterns are looked at, a proof follows the search.
        n_starts: of the search, "auto" for a number that suits it.
        seed: of the search's starts.
    """

    X: Float[Tensor, "n d"]
    oracle: str
    n_starts: int | str
    seed: int

    def __post_init__(self) -> None:
        if self.oracle not in ORACLES:
            raise ValueError(f"oracle must be one of {list(ORACLES)}, got {self.oracle!r}.")
        if self.n_starts != "auto" and not (type(self.n_starts) is int and self.n_starts > 0):
            raise ValueError(f"n_starts must be 'auto' or a positive whole number, got {self.n_starts!r}.")

    @cached_property
    def rank(self) -> int:
        """Of the samples."""
        return reduce_rank(self.X.detach().to("cpu", torch.float64).numpy()).rank

    @abstractmethod
    def check(self, problem: Any, solver: str, max_time: float | None = None) -> None:
        """Refuse before any work what the named solver is not for."""

    @abstractmethod
    def stages(
        self,
        problem: Any,
        limits: Limits,
        solver: str,
        prove: bool,
        candidates: tuple[Matrix, ...],
        start: NetworkStart | None,
    ) -> Plan:
        """The solvers to run one after another; see :meth:`train`."""

    @abstractmethod
    def steepest(self, V: Matrix) -> float:
        """How steep the steepest neuron at V is that the plan's oracle finds."""

    def beta_max(self, problem: NeuronProblem) -> float:
        """The steepest neuron at the zero network; if it was only searched for, a lower bound of that."""
        problem = problem.to(torch.float64)
        V = problem.dual_at_zero
        with one_thread():
            peak = self.steepest(V)
        nothing = problem.restricted_to(problem.X.new_zeros(0, problem.neuron_size))
        return 0.0 if peak <= nothing.likely_rounding_of_polar(V) else peak

    def train(
        self,
        problem: NeuronProblem,
        limits: Limits = DEFAULT_LIMITS,
        *,
        solver: str = "auto",
        start: NetworkStart | None = None,
        callback: Callback | None = None,
        prove: bool = True,
        candidates: tuple[Matrix, ...] = (),
    ) -> Solution:
        """Train with a named solver, or the best ones for this problem, and certify over all patterns.

        Without ``prove`` nothing is done for the certificate that training does not need. ``candidates`` are further
        dual points to try. Of the ``start`` is used what has the problem's shapes.
        """
        problem = problem.to(torch.float64)
        self.check(problem, solver, limits.max_time)
        start = None if start is None else start.fitting(problem)
        with one_thread(spare=True):  # many small products: threads would only wait for each other
            stages = self.stages(problem, limits, solver, prove, candidates, start)
            neurons = None if start is None else start.neurons
            return run(problem, stages, limits.tol, start=neurons, callback=callback)


@dataclass(frozen=True, eq=False)
class ReluPlan(NeuronPlan):
    """Trains two-layer ReLU networks: by formula on white data, else by columns, with proofs where a search was needed.

    Attributes:
        readout: for networks on patches, what X are the rows of.
    """

    X: Float[Tensor, "n d"]
    oracle: str = "auto"
    n_starts: int | str = "auto"
    seed: int = 0
    readout: Patches | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.readout is not None and self.X.shape != (self.readout.n_rows, self.readout.width):
            raise ValueError(f"X must be readout.rows(), got shape {tuple(self.X.shape)}.")
        if self.X.dtype is not torch.float64:  # oracles prove in double precision
            object.__setattr__(self, "X", self.X.double())
            object.__setattr__(self, "readout", None if self.readout is None else self.readout.to(torch.float64))

    @cached_property
    def exact(self) -> bool:
        """Whether all patterns are looked at."""
        return self.oracle == "exact" or (self.oracle == "auto" and affordable(self._n_rows, self.rank))

    @cached_property
    def neuron_oracle(self) -> NeuronOracle:
        """The exact oracle where it is wanted or affordable, a search elsewhere."""
        return self._for_rows(Faces) if self.exact else self._ridges()

    def _ridges(self, again: int = 0) -> NeuronOracle:
        starts = _RIDGE_STARTS if isinstance(self.n_starts, str) else self.n_starts
        return self._for_rows(lambda X: RidgeSearch(X, starts=starts, seed=self.seed + again))

    def _for_rows(self, make: Make) -> NeuronOracle:
        return oracle_for(self.X, self.readout, make)

    @cached_property
    def _n_rows(self) -> int:
        """Distinct ones."""
        return distinct_count(self.X) if self.readout is None else len(self.readout.distinct[0])

    def steepest(self, V: Matrix) -> float:
        return self.neuron_oracle.steepest(V).bracket.lower

    def check(self, problem: ReluProblem, solver: str, max_time: float | None = None) -> None:
        if solver not in ("auto", *RELU_SOLVERS):
            raise ValueError(f"solver must be 'auto' or one of {sorted(RELU_SOLVERS)}, got {solver!r}.")
        problem.check_weight_decay("ReluPlan")
        if self.readout is not None and solver not in _BY_COLUMNS:
            raise ValueError(f"solver must be 'auto' or 'column_generation' for networks on patches, got {solver!r}.")
        if solver == "copositive":
            Copositive().check(problem)
        elif reason := self._refusal(problem, solver, max_time):
            raise ValueError(f"{reason} Use solver='auto' or 'column_generation'.")

    def _refusal(self, problem: ReluProblem, solver: str, max_time: float | None) -> str | None:
        """What a solver would refuse, without the oracle that it needs."""
        if solver == "closed_form":
            return closed_form.refusal(problem)
        if solver == "cone_program":
            return closed_form.cone_program_refusal(problem)
        if solver == "frank_wolfe":
            return frank_wolfe.refusal(problem)
        if solver != "cutting_planes":
            return None
        n, d = problem.X.shape
        many = (
            f"solver='cutting_planes' asks for the steepest neuron exactly, which {n} samples of {d} features are too "
            "many for."
        )
        provable = self.exact or self._cuttable(max_time)
        return cutting_planes.refusal(problem) or (None if provable else many)

    def stages(
        self,
        problem: ReluProblem,
        limits: Limits,
        solver: str,
        prove: bool,
        candidates: tuple[Matrix, ...],
        start: NetworkStart | None,
    ) -> Plan:
        if solver in _BY_COLUMNS:
            found = yield from self._found(problem, limits, solver, prove, start)
        else:
            found = yield Stage(self._solver(problem, limits, solver), limits)
        if prove and not found.solver.endswith(Copositive.name):  # a relaxation brings its own proof
            yield from self._proofs(problem, limits, solver, candidates, found, start)

    def _solver(self, problem: ReluProblem, limits: Limits, name: str) -> Solver:
        if name == "closed_form":
            return closed_form.closed_form(problem)
        if name == "copositive":
            return Copositive(seed=self.seed)
        if name == "cone_program":
            return closed_form.ConeProgram(self.neuron_oracle)
        if name == "frank_wolfe":
            return frank_wolfe.FrankWolfe(self.neuron_oracle)
        exact = self.exact or not self._cuttable(limits.max_time)
        return cutting_planes.CuttingPlanes(self.neuron_oracle if exact else self._sphere(limits.tol, limits.max_time))

    def _found(
        self, problem: ReluProblem, limits: Limits, solver: str, prove: bool, start: NetworkStart | None
    ) -> Stages:
        """On white data CP Theorem 2, or CP (20) where nothing exact is at hand; elsewhere by columns."""
        if solver == "auto" and self.readout is None and len(self.X) <= self.X.shape[1]:
            form = closed_form.closed_form(problem)
            if form.applies:
                yield Stage(form, limits)
            if prove and self._has_one_cone(problem):
                return (yield Stage(Copositive(seed=self.seed), limits))
        return (yield from self._by_columns(problem, limits, prove, None if start is None else start.Z))

    def _has_one_cone(self, problem: ReluProblem) -> bool:
        """Whether all patterns share a cone, and its semidefinite program is affordable but their list is not."""
        return len(self.X) <= _WHITE_SAMPLES and problem.datafit.loss.half_square and not self.exact and self._white

    @cached_property
    def _white(self) -> bool:
        """Whether the samples are few and spike-free, so that CP (20) applies."""
        return self.readout is None and len(self.X) <= self.X.shape[1] and is_spike_free(self.X).holds is True

    def _by_columns(self, problem: ReluProblem, limits: Limits, prove: bool, weights: Blocks | None) -> Stages:
        """By columns; where a question to the oracle is slow, a search finds most of the neurons first."""
        if self.exact and not slow(self._n_rows, self.rank):
            return (yield Stage(ColumnGeneration(self.neuron_oracle, weights=weights), limits))
        search, first = replace(self._search(problem), weights=weights), limits
        if self.exact:
            first = replace(limits, tol=max(limits.tol, _ROUGH))
        elif self.rank > _HIGHEST_RANK and _usual(limits):  # last digits take most of the time, proofs seldom have them
            first = limits = replace(limits, tol=max(limits.tol, _SEARCH_TOL))
        if prove and not self.exact and limits.max_time is not None:
            return (yield from self._before_proof(search, limits, limits.max_time))
        found = yield Stage(search, first)
        if search.moving is not None and not self.exact:
            return found  # it ended with the thorough search already
        return (yield Stage(self._thorough(search), limits.after(found.seconds, least=MOMENT)))

    def _before_proof(self, search: ColumnGeneration, limits: Limits, max_time: float) -> Stages:
        """By search; the last digits, which a proof seldom has, leave it time."""
        found = yield Stage(search, replace(limits, tol=max(limits.tol, _SEARCH_TOL)))
        limits = replace(limits, max_time=_SEARCH_SHARE * max_time)
        return (yield Stage(self._thorough(search), limits.after(found.seconds, least=MOMENT)))

    def _search(self, problem: ReluProblem) -> ColumnGeneration:
        """With neurons that move where the loss is smooth, elsewhere by the quickest search."""
        if problem.datafit.loss.smooth:
            return ColumnGeneration(self._ridges(again=1), moving=self.seed)
        starts = _STARTS if isinstance(self.n_starts, str) else self.n_starts
        return ColumnGeneration(self._for_rows(lambda X: LocalSearch(X, starts=starts, seed=self.seed)))

    def _thorough(self, search: ColumnGeneration) -> ColumnGeneration:
        return replace(search, oracle=self.neuron_oracle, moving=None if self.exact else search.moving)

    def _proofs(
        self,
        problem: ReluProblem,
        limits: Limits,
        solver: str,
        candidates: tuple[Matrix, ...],
        found: Solution,
        start: NetworkStart | None,
    ) -> Plan:
        """The sphere where the rank is low, then CP (20) on white data, elsewhere products of rows."""
        if self.exact:
            yield Stage(DualPoints(self.neuron_oracle, candidates), Limits(limits.tol))
            return
        trained = found.seconds
        found = yield from self._on_the_sphere(problem, limits, solver, found)
        left = replace(limits.after(found.seconds, least=MOMENT), max_steps=None)
        if self._white and affordable_steps(problem, left.max_time):
            yield Stage(SpikeFreeBound(), left)
            return
        seconds = None
        if limits.max_time is None:
            if found.certificate.within(_NEAR):
                return
            seconds = max(PROOFS.seconds_after(trained) - (found.seconds - trained), PROOFS.least)
        with suppress(*NUMERICAL):  # the network keeps the bound that it has
            yield Stage(self._general_bound(problem, found, seconds, start), left)

    def _on_the_sphere(self, problem: ReluProblem, limits: Limits, solver: str, found: Solution) -> Stages:
        """Where the rank is low; without a limit of time longer queries only after a short one that promises much."""
        left = limits.after(found.seconds, least=MOMENT)
        half = None if left.max_time is None else left.max_time / 2
        if not self._cuttable(half):
            return found
        if half is None:
            left = replace(left, max_time=PROOFS.sphere)
            quick = self._sphere(limits.tol, None, PROOFS.tried)
            found = yield Stage(DualPoints(quick, (found.dual_point,), problem.beta), left)
            if not found.certificate.within(PROOFS.promising):
                return found
        sphere = self._sphere(limits.tol, half)
        by_columns = ColumnGeneration(sphere) if solver in _BY_COLUMNS else DualPoints(sphere, (found.dual_point,))
        return (yield Stage(by_columns, left))

    def _general_bound(
        self, problem: ReluProblem, found: Solution, seconds: float | None, start: NetworkStart | None
    ) -> Solver:
        """Products of rows, which are for the processor; on other devices and beyond memory one multiplier per row."""
        on_cpu = problem.X.device.type == "cpu"
        if on_cpu and bytes_needed(problem) <= available_bytes(problem.X.device) / 2:
            return JointProductBound(seconds, near=start)
        return DualPoints(problem.oracle(lambda X: DiagonalBound(X, steps=40)), (found.dual_point,))

    def _sphere(self, tol: float, max_time: float | None, most: int | None = None) -> NeuronOracle:
        """An oracle that proves what a search found. Without ``max_time`` a query ends after about ten seconds, always
        at the same simplex; earlier at the ``most`` simplices that are given."""
        most = most or (_QUICK_SIMPLICES if max_time is None else _MOST_SIMPLICES)
        tol = max(_TIGHTER * tol, 1e-9)
        return self._for_rows(lambda X: Sphere(X, tol=tol, max_time=max_time, max_simplices=most))

    def _cuttable(self, max_time: float | None) -> bool:
        """Whether branch and bound on the sphere copes with these samples."""
        rank = _QUICK_RANK if max_time is None else _HIGHEST_RANK
        return self.rank <= rank and self._n_rows <= _SPHERE_SAMPLES
