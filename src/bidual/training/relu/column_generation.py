r"""Exact training of ReLU networks by columns: solve over the neurons at hand, ask the oracle for better ones, repeat.

The master problem is a group lasso over a dictionary of neurons (:meth:`ReluProblem.over`); its dual point V is
optimal for the network as soon as no neuron anywhere has |V^T (X u)_+| > beta (CP eq. 11). The papers' own method,
Frank-Wolfe, adds one neuron a step and never re-optimises the others; see :mod:`bidual.training.relu.frank_wolfe`.
"""

import time
from dataclasses import dataclass, replace
from math import inf

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.numerics.norms import L2
from bidual.operators import NeuronOperator
from bidual.polar import NeuronOracle, Neurons, SteepestNeurons
from bidual.problems.certificate import Certificate, Scope, judge
from bidual.problems.neuron_problem import NeuronProblem
from bidual.problems.problem import Problem
from bidual.problems.solution import Callback, Limits, Record, Solution, Status
from bidual.runtime.threads import one_thread
from bidual.solvers import EtaInteriorPoint, InteriorPoint, PrimalDual
from bidual.solvers.driver import solve
from bidual.solvers.plan import solve_auto
from bidual.types import Matrix

NAME = "column_generation"
_SMALL_MASTER = 300_000  # numbers in the design of a master problem that an interior point takes within a second


@dataclass(frozen=True, eq=False)
class Training:
    """A trained network: the program over its neurons, and a solution whose certificate is about all patterns.

    Attributes:
        problem: the master problem over the neurons that are left.
        solution: Z (m, a, c), the output weights of every neuron of length one, with its certificate; a is 1 without
            a readout.
        dual_point: V of the last master problem, feasible for its neurons.
        search_gap: what the relative gap would be if the steepest neuron that was found were the steepest of all; the
            certified gap, if the oracle proves it.
    """

    problem: Problem
    solution: Solution
    dual_point: Matrix
    search_gap: float

    @property
    def neurons(self) -> Neurons:
        return neurons_of(self.problem)

    def since(self, seconds: float) -> "Training":
        """This training, begun by something that took so long."""
        history = tuple(replace(record, seconds=record.seconds + seconds) for record in self.solution.history)
        return replace(self, solution=replace(self.solution, seconds=self.solution.seconds + seconds, history=history))

    def after(self, first: "Training") -> "Training":
        """This training with the steps and seconds of the one that it started from, and the better network of both."""
        one, two = first.solution, self.solution
        history = one.history + tuple(_later(record, first) for record in two.history)
        steps, seconds = one.n_steps + two.n_steps, one.seconds + two.seconds
        solution = replace(two, n_steps=steps, seconds=seconds, history=history)
        if two.certificate.primal <= one.certificate.primal:
            return replace(self, solution=solution)
        certificate = one.certificate.with_dual_of(two.certificate)
        return replace(self, problem=first.problem, solution=replace(solution, Z=one.Z, certificate=certificate))


def _later(record: Record, first: Training) -> Record:
    """A record of a training that started from another one."""
    before = first.solution
    return replace(record, step=record.step + before.n_steps, seconds=record.seconds + before.seconds)


def continued(callback: Callback, first: Training) -> Callback:
    """The callback for a training that starts from another one."""
    return lambda record: callback(_later(record, first))


def neurons_of(problem: Problem) -> Neurons:
    """The dictionary of a master problem."""
    assert isinstance(problem.operator, NeuronOperator)
    return problem.operator.neurons


@dataclass(frozen=True)
class ColumnGeneration:
    """How to choose neurons.

    Attributes:
        add: the most neurons to add a round.
        apart: the least 1 - cosine between the ones added, because near-copies make the master ill-conditioned.
        steepest: how many of the steepest are added without regard to that.
        master_share: of the current gap, what the master problem may leave.
    """

    add: int = 60
    apart: float = 1e-3
    steepest: int = 20
    master_share: float = 0.03

    def train(
        self,
        problem: NeuronProblem,
        oracle: NeuronOracle,
        *,
        tol: float = 1e-6,
        max_rounds: int = 200,
        max_time: float | None = None,
        start: Neurons | None = None,
        callback: Callback | None = None,
    ) -> Training:
        """Add neurons until the relative gap is at most ``tol``, or no neuron that helps is found."""
        problem.check_oracle(oracle)
        run = _Run(self, problem, oracle, tol, max_time, callback)
        with one_thread():
            return run.until(max_rounds, start)

    def choose(self, peaks: SteepestNeurons, beta: float) -> Neurons:
        """Violated neurons that are spread out, and the very steepest of all."""
        steep = peaks.neurons[peaks.values > beta * (1 + 1e-12)][: 50 * self.add]
        if not len(steep):
            return steep
        chosen, unit = [0], L2.unit(steep)
        near = unit @ unit[0] > 1 - self.apart
        while len(chosen) < self.add and not bool(near.all()):
            chosen.append(int(torch.argmin(near.to(torch.int8))))
            near |= unit @ unit[chosen[-1]] > 1 - self.apart
        return steep[sorted({*chosen, *range(min(self.steepest, len(steep)))})]


class _Run:
    """One training run."""

    def __init__(
        self,
        settings: ColumnGeneration,
        problem: NeuronProblem,
        oracle: NeuronOracle,
        tol: float,
        max_time: float | None,
        callback: Callback | None,
    ) -> None:
        self.settings, self.problem, self.oracle = settings, problem, oracle
        self.tol, self.max_time, self.callback = tol, max_time, callback
        self.began = time.perf_counter()
        self.history: list[Record] = []
        self.best: Certificate | None = None
        self.gap, self.done = 1.0, False
        self.strictness = 1.0  # how much better than usual the master is solved
        self.solved_to = inf  # the tolerance of the last master
        self.primal = inf  # the value of the last master from which neurons were dropped

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began

    def until(self, max_rounds: int, start: Neurons | None) -> Training:
        X = self.problem.X
        master = self.problem.restricted_to(X.new_zeros(0, self.problem.neuron_size) if start is None else start.to(X))
        Z, rounds, status = master.operator.zeros(), 0, None
        while status is None:
            rounds += 1
            master, Z, V = self._solved(master, Z)
            peaks = self._look(rounds, master, Z, V)
            status = self._status(rounds, max_rounds)
            if status is None:
                master, Z, status = self._extended(master, Z, peaks)
        assert self.best is not None
        solution = Solution(master, Z, self.best, status, rounds, self.seconds, tuple(self.history), NAME, V)
        return Training(master, solution, V, self.gap)

    def _solved(self, master: Problem, Z: Tensor) -> tuple[Problem, Tensor, Tensor]:
        """The master problem without idle neurons, its solution, and its dual point.

        Idle neurons stay until the value falls: with a kinked loss duals are not unique, and rounds could repeat.
        """
        limit = None if self.max_time is None else max(self.max_time - self.seconds, 1.0)
        self.solved_to = self._inner_tol
        certificate = solve_master(master, self.solved_to, Z, limit).certificate
        falls = certificate.primal < self.primal * (1 - 1e-9)
        self.primal = certificate.primal if falls else self.primal
        used = (certificate.point.abs().amax((1, 2)) > 0) | (not falls)
        kept = self.problem.restricted_to(neurons_of(master)[used])
        return kept, certificate.point[used], certificate.dual_point

    @property
    def _inner_tol(self) -> float:
        return max(min(self.strictness * self.settings.master_share * self.gap, 1e-3), 0.1 * self.tol)

    def _look(self, rounds: int, master: Problem, Z: Tensor, V: Tensor) -> SteepestNeurons:
        """Ask the oracle, and keep the certificate that follows."""
        asked: list[SteepestNeurons] = []

        def upper(W: Tensor) -> float:
            asked.append(self.oracle.steepest(W, self.problem.beta, neurons_of(master)))
            return asked[0].bracket.upper

        certificate = judge(master, Z, V, upper, Scope.ALL_PATTERNS)
        self.best = certificate if self.best is None else certificate.with_dual_of(self.best)
        steepest = max(asked[0].bracket.lower, self.problem.beta)
        guess = judge(master, Z, V, lambda W: steepest, Scope.BLOCKS)
        known = self.best if self.oracle.proves else guess
        self.gap, self.done = known.relative_gap, known.within(self.tol)
        self._record(rounds, self.best)
        return asked[0]

    def _record(self, rounds: int, certificate: Certificate) -> None:
        values = (certificate.primal, certificate.dual, certificate.relative_gap)
        self.history.append(Record(NAME, rounds, self.seconds, *values))
        if self.callback is not None:
            self.callback(self.history[-1])

    def _status(self, rounds: int, max_rounds: int) -> Status | None:
        if self.done:
            return Status.CERTIFIED if self.oracle.proves else Status.SEARCHED
        if self.max_time is not None and self.seconds > self.max_time and rounds > 1:  # the first has no neurons yet
            return Status.MAX_TIME
        return Status.MAX_STEPS if rounds >= max_rounds else None

    def _extended(self, master: Problem, Z: Tensor, peaks: SteepestNeurons) -> tuple[Problem, Tensor, Status | None]:
        """The master with new neurons at weight zero; stalled if there are none and it cannot be solved any better."""
        chosen = self.settings.choose(peaks, self.problem.beta)
        known = neurons_of(master)
        if len(known):
            chosen = chosen[(L2.unit(chosen) @ L2.unit(known).T).amax(1) < 1 - 1e-13]
        stalled = not len(chosen) and self.solved_to <= 0.1 * self.tol
        self.strictness = 1.0 if len(chosen) else self.strictness / 10  # nothing to add: solve the master better
        Z = torch.cat([Z, Z.new_zeros(len(chosen), *Z.shape[1:])])
        return self.problem.restricted_to(torch.cat([known, chosen])), Z, Status.STALLED if stalled else None


def solve_master(
    problem: Problem, tol: float, start: Float[Tensor, "m a c"] | None = None, max_time: float | None = None
) -> Solution:
    """The group lasso over a dictionary, by interior points: in one variable per neuron, or on the conic form."""
    if problem.operator.block_shape[0] == 0:
        return solve(problem, PrimalDual(), Limits(inf))  # takes every gauge, and has nothing to do
    start = None if start is None or not bool(start.any()) else start
    n, m = problem.operator.output_shape[0], problem.operator.block_shape[0]
    stages = ([EtaInteriorPoint()] if problem.datafit.loss.half_square else []) + (
        [InteriorPoint()] if n * m <= _SMALL_MASTER else []
    )
    best: Solution | None = None
    for solver in stages:
        if solver.refusal(problem) is None:
            done = solve(problem, solver, Limits(tol, 100, max_time=max_time), start=start)
            if done.certificate.within(tol):
                return done
            start, best = done.Z, done
    try:
        return solve_auto(problem, Limits(tol, max_time=max_time), start=start)
    except FloatingPointError:  # its kernel is singular to rounding; the interior point's answer is what there is
        if best is None:
            raise
        return best
