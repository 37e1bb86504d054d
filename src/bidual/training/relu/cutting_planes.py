r"""The cutting-plane method of CP A.5: analytic centres on the dual of two-layer ReLU training with squared loss.

In units in which sample weights and intercepts are gone, R = -V / sqrt(w) and a_k = sqrt(w) (X u_k)_+ / beta, the dual
of squared loss over the neurons at hand is max D(R) = <R, Y> - 1/2 |R|^2 subject to |R^T a_k| <= 1. The analytic centre
of { R : D(R) >= level, |R^T a_k| <= 1 } maximises q log(D(R) - level) + sum_k log(1 - |R^T a_k|^2) for some weight q of
the level; with mu = (D(R) - level) / q it is where

    Y - R = sum_k a_k 2 y_k (R^T a_k)^T,    y_k (1 - |R^T a_k|^2) = mu.

The first equation says that R is the residual of the network with output weights 2 y_k R^T a_k; its primal value is
then above D(R) by sum_k 2 mu |R^T a_k| / (1 + |R^T a_k|) < mu K, whatever the cuts are.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from time import perf_counter
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.numerics.linear_algebra import robust_cholesky
from bidual.numerics.norms import L2
from bidual.polar import NeuronOracle, Neurons, SteepestNeurons
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits, Status, Verdict
from bidual.solvers.driver import NeuronSolver
from bidual.training.relu.column_generation import judged_by_oracle, spread_out
from bidual.types import Matrix

_LOOSE = 0.3  # how far from mu the products y_k s_k of a centre may be
_SHARE = 0.1  # of mu K, what an unsolved first equation may add to the primal value
_FALL = 0.1  # the most that a step lets the weight fall
_BORDER = 0.99  # of the way to the border, the most that a step goes
_BACK = 0.9  # how far a centre is drawn back to be strictly inside new cuts
_SMALL = (*(10.0**-k for k in range(2, 13)), 0.0)  # shares of the network's price below which neurons may go
_LIMITS = Limits(1e-6)


@dataclass(frozen=True, eq=False)
class Centre:
    """A point R strictly inside all cuts, and a multiplier y_k > 0 of every cut."""

    point: Matrix
    multipliers: Float[Tensor, " K"]

    def moved(self, step: "Centre", length: float) -> "Centre":
        return Centre(self.point + length * step.point, self.multipliers + length * step.multipliers)


@dataclass(frozen=True, eq=False)
class _Equations:
    """What is left of the two equations of a centre: T = A^T R, s_k = 1 - |T_k|^2, and both residuals."""

    T: Float[Tensor, "K c"]
    slack: Float[Tensor, " K"]
    stationarity: Matrix
    complementarity: Float[Tensor, " K"]


@dataclass(frozen=True, eq=False)
class Cuts:
    """The set { R : |R^T a_k| <= 1 for all k }, in which max D(R) = <R, Y> - 1/2 |R|^2 is looked for.

    Attributes:
        targets: Y.
        features: the columns a_k.
    """

    targets: Matrix
    features: Float[Tensor, "n K"]

    def slack(self, R: Matrix) -> Float[Tensor, " K"]:
        """1 - |R^T a_k|^2 of every cut."""
        return 1 - (self.features.T @ R).square().sum(1)

    def centre(self, start: Centre, mu: float, stop: Callable[[], bool], max_steps: int = 60) -> Centre:
        """The centre of weight ``mu`` from a point inside, by Newton's method on both equations, damped to stay there.

        Newton's method on the barrier alone has the same centres, but is lost in rounding as soon as a step comes near
        a cut; and asking every step to solve the equations better costs more steps than it saves.
        """
        n, cuts = self.features.shape
        if n <= cuts:
            return self._centre(start, mu, stop, max_steps)
        Q, coefficients = torch.linalg.qr(self.features)  # R differs from Y in the span of the a_k only
        inner = Cuts(Q.T @ self.targets, coefficients)
        found = inner._centre(Centre(Q.T @ start.point, start.multipliers), mu, stop, max_steps)
        return Centre(self.targets + Q @ (found.point - inner.targets), found.multipliers)

    def _centre(self, now: Centre, mu: float, stop: Callable[[], bool], max_steps: int) -> Centre:
        for _ in range(max_steps):
            left = self._equations(now, max(mu, _FALL * self._weight(now)))
            if self._is_centre(left, mu) or stop():
                break
            try:
                step = self._newton(now, left)
            except FloatingPointError:  # no more digits
                break
            new = now.moved(step, self._length(now, left, step))
            if not bool((self.slack(new.point) > 0).all()):  # by rounding; false for NaN, too
                break
            now = new
        return now

    def _weight(self, at: Centre) -> float:
        """The mean of y_k s_k."""
        return float((at.multipliers * self.slack(at.point)).mean()) if len(at.multipliers) else 0.0

    def _equations(self, at: Centre, mu: float) -> _Equations:
        R, y = at.point, at.multipliers
        T = self.features.T @ R
        slack = 1 - T.square().sum(1)
        return _Equations(T, slack, self.targets - R - self.features @ (2 * y[:, None] * T), mu - y * slack)

    def _is_centre(self, left: _Equations, mu: float) -> bool:
        unsolved = float(torch.linalg.vector_norm(left.stationarity)) * float(torch.linalg.vector_norm(self.targets))
        loose = float(left.complementarity.abs().amax()) if len(left.slack) else 0.0
        return unsolved <= _SHARE * mu * len(left.slack) and loose <= _LOOSE * mu

    def _newton(self, at: Centre, left: _Equations) -> Centre:
        """The step that solves both equations, linearised; the multipliers are eliminated."""
        A, T, y, s = self.features, left.T, at.multipliers, left.slack
        L = robust_cholesky(self._hessian(T, y, s))
        right = left.stationarity - A @ (2 * (left.complementarity / s)[:, None] * T)
        dR = torch.cholesky_solve(right.reshape(-1, 1), L).reshape(right.shape)
        dy = (left.complementarity + 2 * y * (T * (A.T @ dR)).sum(1)) / s
        return Centre(dR, dy)

    def _hessian(self, T: Tensor, y: Tensor, s: Tensor) -> Tensor:
        """I + sum_k a_k a_k^T (x) (2 y_k I + 4 y_k / s_k T_k T_k^T), outputs counted fastest."""
        A, (n, c) = self.features, self.targets.shape
        H = torch.eye(n * c, dtype=A.dtype, device=A.device)
        blocks = H.view(n, c, n, c)
        for p in range(c):
            for q in range(p + 1):
                curvature = 4 * y / s * T[:, p] * T[:, q] + 2 * y * (p == q)
                block = (A * curvature) @ A.T
                blocks[:, p, :, q] += block
                if p != q:
                    blocks[:, q, :, p] += block
        return H

    def _length(self, at: Centre, left: _Equations, step: Centre) -> float:
        """A step length, at most 1, that keeps slacks and multipliers positive."""
        dT = self.features.T @ step.point
        square, cross = dT.square().sum(1), (left.T * dT).sum(1)
        ends = left.slack / (cross + (cross.square() + square * left.slack).sqrt()).clamp(min=1e-300)
        shrinking = step.multipliers < 0
        ends = torch.cat([ends, (-at.multipliers / step.multipliers)[shrinking]])
        return min(1.0, _BORDER * float(ends.amin())) if len(ends) else 1.0


@dataclass
class _State:
    """The cuts so far and their centre, in the units above."""

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
    multipliers an upper one, so that both bounds come from the method itself.

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
        return f"the cutting-plane method is for the squared loss, CP eq. (73); got {loss.name}, so set loss='squared'."
    problem.check_plain("the cutting-plane method")
    if n * c > most:
        return (
            f"the cutting-plane method factors a matrix with one row per number of the dual point, at most "
            f"{most}; got {n} samples x {c} outputs = {n * c}."
        )
    return None


class _Units:
    """The problem in units in which sample weights and intercepts are gone."""

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
