"""Which way to train a ReLU network, and how to prove how good it is."""

from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.operators.patches import Patches
from bidual.patterns.spike_free import is_spike_free
from bidual.polar import Faces, LocalSearch, NeuronOracle, oracle_for
from bidual.polar.base import Make
from bidual.polar.oracle_costs import HIGHEST_RANK, affordable, cuttable, slow, sphere_for
from bidual.polar.relaxations.diagonal import DiagonalBound
from bidual.polar.search import RidgeSearch
from bidual.problems.relu import ReluProblem
from bidual.problems.solution import Limits, Solution
from bidual.solvers.driver import Solver
from bidual.solvers.plan import Plan, Stage
from bidual.training.copositive import Copositive
from bidual.training.plan import MOMENT, NeuronPlan
from bidual.training.relu import closed_form, cone_program, cutting_planes
from bidual.training.relu.column_generation import ColumnGeneration
from bidual.training.relu.frank_wolfe import FrankWolfe
from bidual.training.relu.lower_bounds import DualPoints, JointBound, steps_of_joint_bound
from bidual.types import Matrix

RELU_SOLVERS = ("column_generation", "cone_program", "frank_wolfe", "closed_form", "cutting_planes", "copositive")
_BY_COLUMNS = ("auto", "column_generation")
_ROUGH = 3e-3  # the search gap at which exact questions begin to pay
_STARTS, _RIDGE_STARTS = 256, 64
_MANY_NUMBERS, _SEARCH_TOL = 20_000, 1e-3
_MOST_CUTS = 6  # of the sphere, when there is time
_WHITE_SAMPLES = 200  # up to so many, the relaxation of spike-free data is a matter of seconds
_TIGHTER = 0.3  # of the tolerance, what the oracle on the sphere may leave open

Stages = Generator[Stage, Solution, Solution]


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
        if self.exact:
            return self._for_rows(Faces)
        return self._for_rows(lambda X: RidgeSearch(X, starts=_RIDGE_STARTS, seed=self.seed))

    def _for_rows(self, make: Make) -> NeuronOracle:
        return oracle_for(self.X, self.readout, make)

    @cached_property
    def _n_rows(self) -> int:
        """Distinct ones, where patches may repeat."""
        return len(self.X) if self.readout is None else len(self.readout.distinct[0])

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
            return cone_program.refusal(problem)
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
        self, problem: ReluProblem, limits: Limits, solver: str, prove: bool, candidates: tuple[Matrix, ...]
    ) -> Plan:
        if solver in _BY_COLUMNS:
            found = yield from self._found(problem, limits, solver, prove)
        else:
            found = yield Stage(self._solver(problem, limits, solver), limits)
        if prove and not found.solver.endswith(Copositive.name):  # a relaxation brings its own proof
            yield from self._proofs(problem, limits, solver, candidates, found)

    def _solver(self, problem: ReluProblem, limits: Limits, name: str) -> Solver:
        if name == "closed_form":
            return closed_form.closed_form(problem)
        if name == "copositive":
            return Copositive(seed=self.seed)
        if name == "cone_program":
            return cone_program.ConeProgram(self.neuron_oracle)
        if name == "frank_wolfe":
            return FrankWolfe(self.neuron_oracle)
        exact = self.exact or not self._cuttable(limits.max_time)
        return cutting_planes.CuttingPlanes(self.neuron_oracle if exact else self._sphere(limits.tol, limits.max_time))

    def _found(self, problem: ReluProblem, limits: Limits, solver: str, prove: bool) -> Stages:
        """On white data CP Theorem 2, or CP (20) where nothing exact is at hand; elsewhere by columns."""
        if solver == "auto" and self.readout is None and len(self.X) <= self.X.shape[1]:
            form = closed_form.closed_form(problem)
            if form.applies:
                yield Stage(form, limits)
            if prove and self._has_one_cone(problem):
                return (yield Stage(Copositive(seed=self.seed), limits))
        return (yield from self._by_columns(limits))

    def _has_one_cone(self, problem: ReluProblem) -> bool:
        """Whether all patterns share a cone, and its semidefinite program is affordable but their list is not."""
        small = len(self.X) <= _WHITE_SAMPLES and problem.datafit.loss.half_square and not self.exact
        return small and is_spike_free(self.X).holds is True

    def _by_columns(self, limits: Limits) -> Stages:
        """By columns; where a question to the oracle is slow, a search finds most of the neurons first."""
        if not self.exact:
            # where many numbers meet a search that nothing will prove, its last digits take most of the time
            many = self.X.numel() > _MANY_NUMBERS and self.rank > HIGHEST_RANK
            first = limits = replace(limits, tol=max(limits.tol, _SEARCH_TOL)) if many else limits
        elif slow(self._n_rows, self.rank):
            first = replace(limits, tol=max(limits.tol, _ROUGH))
        else:
            return (yield Stage(ColumnGeneration(self.neuron_oracle), limits))
        found = yield Stage(ColumnGeneration(self._search()), first)
        return (yield Stage(ColumnGeneration(self.neuron_oracle), limits.after(found.seconds, least=MOMENT)))

    def _search(self) -> NeuronOracle:
        starts = _STARTS if isinstance(self.n_starts, str) else self.n_starts
        return self._for_rows(lambda X: LocalSearch(X, starts=starts, seed=self.seed))

    def _proofs(
        self, problem: ReluProblem, limits: Limits, solver: str, candidates: tuple[Matrix, ...], found: Solution
    ) -> Plan:
        """The sphere where the rank is low, then relaxations: a cheap one for any n, a tighter one for small n."""
        if self.exact:
            yield Stage(DualPoints(self.neuron_oracle, candidates), Limits(limits.tol))
            return
        left = limits.after(found.seconds, least=MOMENT)
        half = None if left.max_time is None else left.max_time / 2
        if self._cuttable(half):
            sphere = self._sphere(limits.tol, half)
            by_columns = ColumnGeneration(sphere) if solver in _BY_COLUMNS else DualPoints(sphere, (found.dual_point,))
            found = yield Stage(by_columns, left)
        diagonal = problem.oracle(lambda X: DiagonalBound(X, steps=40))
        left = limits.after(found.seconds, least=MOMENT)  # the joint bound has what training has left
        yield Stage(DualPoints(diagonal, (found.dual_point, *candidates)), Limits(limits.tol))
        if steps_of_joint_bound(problem, left.max_time):
            yield Stage(JointBound(0 if left.max_time is None else _MOST_CUTS), replace(left, max_steps=None))

    def _sphere(self, tol: float, max_time: float | None) -> NeuronOracle:
        """An oracle that proves what a search found."""
        return self._for_rows(lambda X: sphere_for(X, _TIGHTER * tol, max_time))

    def _cuttable(self, max_time: float | None) -> bool:
        return cuttable(self._n_rows, self.rank, max_time)
