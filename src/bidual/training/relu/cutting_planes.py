"""The cutting-plane method of CP A.5: analytic centres on the dual of two-layer ReLU training with squared loss."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from time import perf_counter
from typing import Self

import torch
from torch import Tensor

from bidual.numerics.norms import L2
from bidual.polar import NeuronOracle, Neurons, SteepestNeurons
from bidual.problems.relu import ReluProblem
from bidual.problems.solution import Limits, Status, Verdict
from bidual.training.neuron_solver import NeuronSolver, judged_by_oracle
from bidual.training.relu.analytic_centre import Centre, Cuts
from bidual.training.relu.column_generation import spread_out
from bidual.types import Matrix

_BACK = 0.9  # how far a centre is drawn back to be strictly inside new cuts
_SMALL = (*(10.0**-k for k in range(2, 13)), 0.0)  # shares of the network's price below which neurons may go
_LIMITS = Limits(1e-6)


@dataclass
class _State:
    """The cuts so far and their centre, in the units of :mod:`bidual.training.relu.analytic_centre`."""

    units: "_Units"
    neurons: Neurons
    cuts: Cuts
    centre: Centre
    began: float
    peaks: SteepestNeurons | None = None
    verdict: Verdict | None = None
    best: Verdict | None = None
    stalled: bool = False


@dataclass(frozen=True, eq=False)
class CuttingPlanes(NeuronSolver):
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
        oracle: finds violated neurons; it must prove what it finds.
        share: of the gap so far, what the barrier may leave.
        most: the largest size n c of a dual point; a matrix of so many rows is factored some fifty times.
        limits: of the run.
    """

    oracle: NeuronOracle
    share: float = 0.1
    most: int = 4000
    limits: Limits = _LIMITS

    name = "cutting_planes"
    max_steps = 200
    untimed_steps = 2  # the first round has no neurons yet

    def check(self, problem: ReluProblem) -> None:
        super().check(problem)
        problem.check_oracle(self.oracle)
        if not self.oracle.proves:
            raise ValueError(
                f"the cutting-plane method needs exact separation; {type(self.oracle).__name__} only searches. "
                "Use the oracle Faces or Sphere, or column_generation."
            )

    def _refusal(self, problem: ReluProblem) -> str | None:
        return refusal(problem, self.most)

    def within(self, limits: Limits) -> Self:
        return replace(self, limits=limits)

    def init(self, problem: ReluProblem, start: Neurons | None, dual: Tensor | None) -> _State:
        units = _Units(problem.to(torch.float64))
        neurons = units.problem.X[:0]
        centre = Centre(units.targets, units.targets.new_zeros(0))  # no cuts: R = Y
        return _State(units, neurons, units.cuts(neurons), centre, perf_counter())

    def step(self, problem: ReluProblem, state: _State) -> _State:
        neurons, cuts, centre, units = state.neurons, state.cuts, state.centre, state.units
        if state.best is not None and state.peaks is not None:
            cuts, mu = units.cuts(neurons), self.share * state.best.certificate.gap / max(len(neurons), 1)
            centre = cuts.centre(units.start(cuts, centre, state.peaks, mu), mu, self._late(state))
        Z, V = units.weights(neurons, cuts, centre), -units.root * centre.point
        used = Z.abs().amax((1, 2)) > 0
        program = units.problem.restricted_to(neurons[used])
        certificate, peaks = judged_by_oracle(program, Z[used], V, self.oracle, neurons)
        found = Verdict(program, certificate, V, certificate.relative_gap)
        best = found if state.best is None else found.improving(state.best)
        found = replace(found, search_gap=best.certificate.relative_gap)
        before = inf if state.best is None else state.best.certificate.gap
        new = spread_out(peaks, problem.beta, neurons)
        stalled = not len(new) and best.certificate.gap > 0.9 * before  # not relative: the primal value falls too
        joined = torch.cat([neurons, new])
        return _State(units, joined, cuts, centre, state.began, peaks, found, best, stalled)

    def _late(self, state: _State) -> Callable[[], bool]:
        """Whether the time is over; the first network is worth its time."""
        longest = inf if self.limits.max_time is None or not state.cuts.features.numel() else self.limits.max_time
        return lambda: perf_counter() - state.began > longest

    def finished(self, state: _State) -> Status | None:
        return Status.STALLED if state.stalled else None


def refusal(problem: ReluProblem, most: int = CuttingPlanes.most) -> str | None:
    """Why the method is not for a problem."""
    loss, (n, c) = problem.datafit.loss, problem.datafit.targets.shape
    if not loss.half_square:
        return f"the cutting-plane method is for the squared loss, CP eq. (73); got {loss.name}."
    problem.check_plain("the cutting-plane method")
    if n * c > most:
        return (
            f"the cutting-plane method factors a matrix with one row per number of the dual point, at most "
            f"{most}; got {n} samples x {c} outputs = {n * c}."
        )
    return None


class _Units:
    """The problem in the units of :mod:`bidual.training.relu.analytic_centre`."""

    def __init__(self, problem: ReluProblem) -> None:
        self.problem, self.root = problem, problem.datafit.weights.sqrt()
        self.targets = self._centred(self.root * problem.datafit.targets)

    def _centred(self, columns: Tensor) -> Tensor:
        """With an intercept, without their part along sqrt(w): balanced V, 1^T V = 0, are blind to it."""
        if not self.problem.datafit.intercept:
            return columns
        direction = L2.unit(self.root.T).T
        return columns - direction @ (direction.T @ columns)

    def cuts(self, neurons: Neurons) -> Cuts:
        H = (self.problem.X @ neurons.T).clamp(min=0)
        return Cuts(self.targets, self._centred(self.root * H) / self.problem.beta)

    def start(self, cuts: Cuts, centre: Centre, peaks: SteepestNeurons, mu: float) -> Centre:
        """The last centre, drawn back to be strictly inside the new cuts, and multipliers for those."""
        R = _BACK * min(1.0, self.problem.beta / max(peaks.bracket.upper, 1e-300)) * centre.point
        old = centre.multipliers
        return Centre(R, torch.cat([old, mu / cuts.slack(R)[len(old) :]]))

    def weights(self, neurons: Neurons, cuts: Cuts, centre: Centre) -> Matrix:
        """The output weights 2 y_k R^T a_k / beta, without as many of the smallest as can go at no cost."""
        W = 2 * centre.multipliers[:, None] * (cuts.features.T @ centre.point) / self.problem.beta
        master, size = self.problem.restricted_to(neurons), torch.linalg.vector_norm(W, dim=1)
        options = [(W * (size > share * size.sum())[:, None])[:, None] for share in _SMALL]
        whole = master.primal(options[-1])
        return next((Z for Z in options if master.primal(Z) <= whole), options[-1])
