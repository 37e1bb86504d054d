"""Which way to train a ReLU network, and how to prove how good it is."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.operators.patches import Patches
from bidual.patterns.reduction import reduce_rank
from bidual.patterns.spike_free import is_spike_free
from bidual.polar import Faces, LocalSearch, NeuronOracle, Neurons, oracle_for
from bidual.polar.oracle_costs import HIGHEST_RANK, affordable, cuttable, slow, sphere_for
from bidual.polar.pooled import Make
from bidual.polar.search.ridges import RidgeSearch
from bidual.problems.relu import ReluProblem
from bidual.runtime.threads import one_thread
from bidual.solvers.driver import Callback, Status
from bidual.training.copositive.training import NAME as COPOSITIVE
from bidual.training.relu.column_generation import ColumnGeneration, Training, continued
from bidual.training.relu.lower_bounds import prove as bound_below
from bidual.training.relu.lower_bounds import with_dual
from bidual.training.relu.methods import METHODS, Limits, Task, by_relaxation, formula
from bidual.types import Matrix

RELU_SOLVERS = ("column_generation", *METHODS)
ORACLES = ("auto", "exact", "search")
_ROUGH = 3e-3  # the search gap at which exact questions begin to pay
_STARTS, _RIDGE_STARTS = 256, 64
_MANY_NUMBERS, _SEARCH_TOL = 20_000, 1e-3
_MOST_CUTS = 6  # of the sphere, when there is time
_WHITE_SAMPLES = 200  # up to so many, the relaxation of spike-free data is a matter of seconds
_TIGHTER = 0.3  # of the tolerance, what the oracle on the sphere may leave open


@dataclass(frozen=True, eq=False)
class ReluTrainer:
    """Trains on fixed samples X, for any targets and beta.

    Attributes:
        X: the samples, with a constant column if neurons have a bias.
        oracle: how the steepest neuron is found: "exact" (over all patterns, or a refusal), "search", or "auto" (exact
            if that is affordable). A proof follows a search.
        n_starts: of the local search for neurons.
        seed: of the search's starts.
        readout: for networks on patches, what X are the rows of.
    """

    X: Float[Tensor, "n d"]
    oracle: str = "auto"
    n_starts: int | str = "auto"
    seed: int = 0
    readout: Patches | None = None

    def __post_init__(self) -> None:
        if self.readout is not None and self.X.shape != (self.readout.n_rows, self.readout.width):
            raise ValueError(f"X must be readout.rows(), got shape {tuple(self.X.shape)}.")
        if self.X.dtype is not torch.float64:  # oracles prove in double precision
            object.__setattr__(self, "X", self.X.double())
            object.__setattr__(self, "readout", None if self.readout is None else self.readout.to(torch.float64))

    @cached_property
    def neuron_oracle(self) -> NeuronOracle:
        """The exact oracle where it is required or affordable, a search elsewhere."""
        if self.oracle == "exact" or (self.oracle == "auto" and affordable(self._n_rows, self._rank)):
            return self._for_rows(Faces)
        return self._for_rows(lambda X: RidgeSearch(X, starts=_RIDGE_STARTS, seed=self.seed))

    def _for_rows(self, make: Make) -> NeuronOracle:
        return oracle_for(self.X, self.readout, make)

    @cached_property
    def _n_rows(self) -> int:
        """Distinct ones, where patches may repeat."""
        return len(self.X) if self.readout is None else len(self.readout.distinct[0])

    @cached_property
    def _rank(self) -> int:
        return reduce_rank(self.X.detach().to("cpu", torch.float64).numpy()).rank

    def _search(self) -> NeuronOracle:
        starts = _STARTS if isinstance(self.n_starts, str) else self.n_starts
        return self._for_rows(lambda X: LocalSearch(X, starts=starts, seed=self.seed))

    def beta_max(self, problem: ReluProblem) -> float:
        """The steepest neuron at the zero network; if it was only searched for, a lower bound of that."""
        problem = problem.to(torch.float64)
        V = problem.datafit.into_domain(problem.datafit.grad(torch.zeros_like(problem.datafit.targets)))
        with one_thread():
            peak = self.neuron_oracle.steepest(V).bracket.lower
        return 0.0 if peak <= problem.restricted_to(self.X[:0]).likely_rounding_of_polar(V) else peak

    def check(self, problem: ReluProblem, solver: str, max_time: float | None = None) -> None:
        """Refuse before any work what the named method is not for."""
        if solver != "auto" and solver not in RELU_SOLVERS:
            raise ValueError(f"solver must be 'auto' or one of {sorted(RELU_SOLVERS)}, got {solver!r}.")
        problem.check_weight_decay("ReluTrainer")
        if self.readout is not None and solver not in ("auto", "column_generation"):
            raise ValueError(f"solver must be 'auto' or 'column_generation' for networks on patches, got {solver!r}.")
        if solver not in METHODS:
            return
        with one_thread():
            METHODS[solver].check(self._task(problem, solver, Limits(1e-4, None, max_time)))

    def train(
        self,
        problem: ReluProblem,
        *,
        solver: str = "auto",
        tol: float = 1e-4,
        max_steps: int | None = None,
        max_time: float | None = None,
        start: Neurons | None = None,
        callback: Callback | None = None,
        prove: bool = True,
        candidates: tuple[Matrix, ...] = (),
    ) -> Training:
        """Train with a named method, or the best one for this problem, and certify over all patterns.

        Without ``prove`` nothing is done for the certificate that training does not need. ``candidates`` are further
        dual points to try.
        """
        check_training(tol, max_time, self.oracle, self.n_starts)
        problem = problem.to(torch.float64)
        self.check(problem, solver, max_time)
        with one_thread():  # many small products: threads would only wait for each other
            return self._train(problem, solver, Limits(tol, max_steps, max_time), start, callback, prove, candidates)

    def _train(
        self,
        problem: ReluProblem,
        solver: str,
        limits: Limits,
        start: Neurons | None,
        callback: Callback | None,
        prove: bool,
        candidates: tuple[Matrix, ...],
    ) -> Training:
        done = self._found(problem, solver, limits, start, callback, prove)
        if not prove or done.solution.certificate.within(limits.tol) or done.solution.solver == COPOSITIVE:
            return done  # a relaxation brings its own proof
        if self.neuron_oracle.proves:
            for V in candidates:
                done = with_dual(done, V, self._upper, limits.tol)
            return done
        done = self._on_the_sphere(problem, solver, limits, done, callback)
        left = limits.left(done)
        branch = 0 if left is None else _MOST_CUTS
        return bound_below(problem, done, tol=limits.tol, max_time=left, branch=branch, candidates=candidates)

    def _on_the_sphere(
        self, problem: ReluProblem, solver: str, limits: Limits, found: Training, callback: Callback | None
    ) -> Training:
        """Train on with an oracle that proves what a search found, where the rank is low; another method's network is
        only judged by it."""
        left = limits.left(found)
        time_for = None if left is None else left / 2
        if not self._cuttable(time_for):
            return found
        sphere = self._for_rows(lambda X: sphere_for(X, _TIGHTER * limits.tol, time_for))
        if solver not in ("auto", "column_generation"):
            return with_dual(found, found.dual_point, lambda V: sphere.steepest(V).bracket.upper, limits.tol)
        return self._more(problem, sphere, limits, found, callback)

    def _cuttable(self, max_time: float | None) -> bool:
        return cuttable(self._n_rows, self._rank, max_time)

    def _found(
        self,
        problem: ReluProblem,
        solver: str,
        limits: Limits,
        start: Neurons | None,
        callback: Callback | None,
        prove: bool,
    ) -> Training:
        """The best network by the method asked for."""
        task = self._task(problem, solver, limits, callback)
        if solver in METHODS:
            return METHODS[solver].train(task)
        done = self._on_white_data(task, prove) if solver == "auto" else None
        return self._by_columns(problem, limits, start, callback) if done is None else done

    def _task(self, problem: ReluProblem, solver: str, limits: Limits, callback: Callback | None = None) -> Task:
        return Task(problem, lambda: self._separating(solver, limits), limits, self.seed, callback)

    def _separating(self, solver: str, limits: Limits) -> NeuronOracle:
        """The oracle; for cutting planes, which need a proof at every step, on the sphere where it only searches."""
        if solver != "cutting_planes" or self.neuron_oracle.proves or not self._cuttable(limits.max_time):
            return self.neuron_oracle
        return self._for_rows(lambda X: sphere_for(X, _TIGHTER * limits.tol, limits.max_time))

    def _on_white_data(self, task: Task, prove: bool) -> Training | None:
        """CP Theorem 2 where it applies; else CP (20), where X is spike-free and nothing exact is at hand."""
        if self.readout is not None or len(self.X) > self.X.shape[1]:
            return None
        done = formula(task)
        if not isinstance(done, str) and done.solution.status is Status.CERTIFIED:
            return done
        return by_relaxation(task) if prove and self._has_one_cone(task.problem) else None

    def _has_one_cone(self, problem: ReluProblem) -> bool:
        """Whether all patterns share a cone, and its semidefinite program is affordable but their list is not."""
        small = self.X.shape[0] <= _WHITE_SAMPLES and problem.datafit.loss.half_square and not self.neuron_oracle.proves
        return small and is_spike_free(self.X).holds is True

    def _by_columns(
        self, problem: ReluProblem, limits: Limits, start: Neurons | None, callback: Callback | None
    ) -> Training:
        """By columns; where a question to the oracle is slow, a search finds most of the neurons first."""
        if not self.neuron_oracle.proves:
            limits = self._worthwhile(limits)
            found = self._more(problem, self._search(), limits, start, callback)
        elif slow(self._n_rows, self._rank):
            rough = limits._replace(tol=max(limits.tol, _ROUGH))
            found = self._more(problem, self._search(), rough, start, callback)
        else:
            return self._more(problem, self.neuron_oracle, limits, start, callback)
        return self._more(problem, self.neuron_oracle, limits, found, callback)

    def _worthwhile(self, limits: Limits) -> Limits:
        """Where many numbers meet a search that nothing will prove, its last digits take most of the time."""
        many = self.X.numel() > _MANY_NUMBERS and self._rank > HIGHEST_RANK
        return limits._replace(tol=max(limits.tol, _SEARCH_TOL)) if many else limits

    def _more(
        self,
        problem: ReluProblem,
        oracle: NeuronOracle,
        limits: Limits,
        start: Training | Neurons | None,
        callback: Callback | None,
    ) -> Training:
        """Columns by one oracle, from the neurons of a training or of anybody."""
        before = start if isinstance(start, Training) else None
        done = ColumnGeneration().train(
            problem,
            oracle,
            tol=limits.tol,
            max_rounds=500 if limits.max_steps is None else limits.max_steps,
            max_time=limits.max_time if before is None else limits.left(before),
            start=start.neurons if isinstance(start, Training) else start,
            callback=callback if before is None or callback is None else continued(callback, before),
        )
        return done if before is None else done.after(before)

    def _upper(self, V: Matrix) -> float:
        return self.neuron_oracle.steepest(V).bracket.upper


def check_training(tol: float, max_time: float | None, oracle: str, n_starts: int | str) -> None:
    """Refuse settings that make no sense."""
    if not 0 < tol < 1:
        raise ValueError(f"tol must be between 0 and 1, got {tol!r}. It is a relative duality gap, like 1e-4.")
    if max_time is not None and not max_time > 0:
        raise ValueError(f"max_time must be None or positive, got {max_time!r}.")
    if oracle not in ORACLES:
        raise ValueError(f"oracle must be one of {list(ORACLES)}, got {oracle!r}.")
    whole = isinstance(n_starts, int) and not isinstance(n_starts, bool) and n_starts > 0
    if not whole and n_starts != "auto":
        raise ValueError(f"n_starts must be 'auto' or a positive whole number, got {n_starts!r}.")
