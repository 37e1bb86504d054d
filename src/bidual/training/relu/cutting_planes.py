"""The cutting-plane method of CP A.5: analytic centres on the dual of two-layer ReLU training with squared loss."""

import time
from dataclasses import dataclass, field, replace
from math import inf

import torch
from torch import Tensor

from bidual.numerics.norms import L2
from bidual.polar import NeuronOracle, Neurons, SteepestNeurons
from bidual.problems.certificate import Certificate, Scope, judge
from bidual.problems.problem import Problem
from bidual.problems.relu import ReluProblem
from bidual.runtime.threads import one_thread
from bidual.solvers.driver import Callback, Record, Solution, Status
from bidual.training.relu.analytic_centre import Centre, Cuts
from bidual.training.relu.column_generation import ColumnGeneration, Training

NAME = "cutting_planes"
_BACK = 0.9  # how far a centre is drawn back to be strictly inside new cuts
_SMALL = (*(10.0**-k for k in range(2, 13)), 0.0)  # shares of the network's price below which neurons may go


@dataclass(frozen=True)
class CuttingPlanes:
    r"""Analytic centres for max -F*(V) subject to |V^T (X u)_+| <= beta for all |u| <= 1 (CP eq. 73-75).

    A round asks the oracle at the analytic centre of what is left of the dual: { V : -F*(V) >= level, |V^T (X u_k)_+|
    <= beta for the neurons u_k so far }. Violated neurons become cuts, second-order cones, each worth the linear cuts
    of all output weights. The centre scaled into the dual's feasible set is a lower bound, the network of the barrier's
    multipliers an upper one (:mod:`bidual.training.relu.analytic_centre`), so that both bounds come from the method
    itself.

    The paper leaves the level open. Here it is the one for which the centre's own network is within ``share`` of the
    gap so far: a long step. Where no neuron is violated, the gap falls by that factor. Cuts stay: to drop idle ones
    takes more rounds and no less time. Nor is a master problem over the cuts solved at the end: it takes longer than
    the rounds that it saves.

    Attributes:
        share: of the gap so far, what the barrier may leave.
        neurons: how to choose violated neurons of a round.
        most: the largest size n c of a dual point; a matrix of so many rows is factored some fifty times.
    """

    share: float = 0.1
    neurons: ColumnGeneration = field(default_factory=ColumnGeneration)
    most: int = 4000

    def train(
        self,
        problem: ReluProblem,
        oracle: NeuronOracle,
        *,
        tol: float = 1e-6,
        max_steps: int = 200,
        max_time: float | None = None,
        callback: Callback | None = None,
    ) -> Training:
        """Cut until the relative gap is at most ``tol``, or neither a cut nor the centre improves it."""
        self.check(problem)
        _check_oracle(problem, oracle)
        double = replace(problem, X=problem.X.to(torch.float64), datafit=problem.datafit.to(torch.float64))
        with one_thread():
            return _Run(self, double, oracle, tol, max_time, callback).until(max_steps)

    def check(self, problem: ReluProblem) -> None:
        """Refuse before any work what the method is not for."""
        loss, (n, c) = problem.datafit.loss, problem.datafit.targets.shape
        if not loss.half_square:
            raise ValueError(
                f"the cutting-plane method is for the squared loss, CP eq. (73); got {loss.name}. "
                "Use solver='auto' or column_generation."
            )
        problem.check_plain("the cutting-plane method")
        if n * c > self.most:
            raise ValueError(
                f"the cutting-plane method factors a matrix with one row per number of the dual point, at most "
                f"{self.most}; got {n} samples x {c} outputs = {n * c}. Use column_generation."
            )


def _check_oracle(problem: ReluProblem, oracle: NeuronOracle) -> None:
    problem.check_oracle(oracle)
    if not oracle.proves:
        raise ValueError(
            f"the cutting-plane method needs exact separation; {type(oracle).__name__} only searches. "
            "Use the oracle Faces or Sphere, or column_generation."
        )


class _Run:
    """One training run, in the units of :mod:`bidual.training.relu.analytic_centre`."""

    best: Certificate
    master: Problem  # that the best network is about

    def __init__(
        self,
        settings: CuttingPlanes,
        problem: ReluProblem,
        oracle: NeuronOracle,
        tol: float,
        max_time: float | None,
        callback: Callback | None,
    ) -> None:
        self.settings, self.problem, self.oracle = settings, problem, oracle
        self.tol, self.max_time, self.callback = tol, max_time, callback
        self.began = time.perf_counter()
        self.history: list[Record] = []
        self.root = problem.datafit.weights.sqrt()
        self.targets = self._centred(self.root * problem.datafit.targets)
        self.before = inf  # the gap of the round before

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began

    def until(self, max_steps: int) -> Training:
        neurons, step, status = self.problem.X[:0], 0, None
        cuts, centre = self._cuts(neurons), Centre(self.targets, self.targets.new_zeros(0))  # no cuts: R = Y
        while status is None:
            step += 1
            V = -self.root * centre.point
            peaks = self._look(step, neurons, self._weights(neurons, cuts, centre), V)
            new = _unknown(self.settings.neurons.choose(peaks, self.problem.beta), neurons)
            status = self._status(step, max_steps, bool(len(new)))
            if status is None:
                neurons = torch.cat([neurons, new])
                cuts, mu = self._cuts(neurons), self.settings.share * self.best.gap / max(len(neurons), 1)
                stop = self._late if step > 1 else lambda: False  # the first network is worth its time
                centre = cuts.centre(self._start(cuts, centre, peaks, mu), mu, stop)
        solution = Solution(self.best.point, self.best, status, step, self.seconds, tuple(self.history), NAME)
        return Training(self.master, solution, V, self.best.relative_gap)

    def _centred(self, columns: Tensor) -> Tensor:
        """With an intercept, without their part along sqrt(w): balanced V, 1^T V = 0, are blind to it."""
        if not self.problem.datafit.intercept:
            return columns
        direction = L2.unit(self.root.T).T
        return columns - direction @ (direction.T @ columns)

    def _cuts(self, neurons: Neurons) -> Cuts:
        H = (self.problem.X @ neurons.T).clamp(min=0)
        return Cuts(self.targets, self._centred(self.root * H) / self.problem.beta)

    def _start(self, cuts: Cuts, centre: Centre, peaks: SteepestNeurons, mu: float) -> Centre:
        """The last centre, drawn back to be strictly inside the new cuts, and multipliers for those."""
        R = _BACK * min(1.0, self.problem.beta / max(peaks.bracket.upper, 1e-300)) * centre.point
        old = centre.multipliers
        return Centre(R, torch.cat([old, mu / cuts.slack(R)[len(old) :]]))

    def _weights(self, neurons: Neurons, cuts: Cuts, centre: Centre) -> Tensor:
        """The output weights 2 y_k R^T a_k / beta, without as many of the smallest as can go at no cost."""
        W = 2 * centre.multipliers[:, None] * (cuts.features.T @ centre.point) / self.problem.beta
        master, size = self.problem.restricted_to(neurons), torch.linalg.vector_norm(W, dim=1)
        options = [(W * (size > share * size.sum())[:, None])[:, None] for share in _SMALL]
        whole = master.primal(options[-1])
        return next((Z for Z in options if master.primal(Z) <= whole), options[-1])

    def _look(self, step: int, neurons: Neurons, Z: Tensor, V: Tensor) -> SteepestNeurons:
        """Ask the oracle at the centre, and keep the better bounds."""
        asked: list[SteepestNeurons] = []

        def upper(W: Tensor) -> float:
            asked.append(self.oracle.steepest(W, self.problem.beta, neurons))
            return asked[0].bracket.upper

        used = Z.abs().amax((1, 2)) > 0
        master = self.problem.restricted_to(neurons[used])
        self._keep(master, judge(master, Z[used], V, upper, Scope.ALL_PATTERNS))
        self._record(step)
        return asked[0]

    def _keep(self, master: Problem, found: Certificate) -> None:
        if not self.history:
            self.best, self.master = found, master
            return
        self.before = self.best.gap
        if found.primal < self.best.primal:
            self.best, self.master = found.with_dual_of(self.best), master
        else:
            self.best = self.best.with_dual_of(found)

    def _record(self, step: int) -> None:
        values = (self.best.primal, self.best.dual, self.best.relative_gap)
        self.history.append(Record(NAME, step, self.seconds, *values))
        if self.callback is not None:
            self.callback(self.history[-1])

    def _late(self) -> bool:
        return self.max_time is not None and self.seconds > self.max_time

    def _status(self, step: int, max_steps: int, cuts: bool) -> Status | None:
        if self.best.within(self.tol):
            return Status.CERTIFIED
        if self._late() and step > 1:  # the first has no neurons yet
            return Status.MAX_TIME
        if not cuts and self.best.gap > 0.9 * self.before:  # not relative: the primal value falls too
            return Status.STALLED
        return Status.MAX_STEPS if step >= max_steps else None


def _unknown(found: Neurons, known: Neurons) -> Neurons:
    """Neurons that are no cuts yet."""
    if not len(found) or not len(known):
        return found
    return found[(L2.unit(found) @ L2.unit(known).T).amax(1) < 1 - 1e-13]
