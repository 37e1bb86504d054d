"""Relaxations by splitting: pattern-free with cuts by the signs of rows, and CP (20) on spike-free data."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from bidual.losses.datafit import Datafit
from bidual.numerics.rounding import gamma, length, rounded_up
from bidual.patterns.spike_free import is_spike_free
from bidual.polar.relaxations.moments import ROUND, MomentSplitting, stalled
from bidual.polar.relaxations.reduction import Scaled
from bidual.polar.relaxations.sign_regions import SignRegion, clipped, size_of
from bidual.problems.problem import ReluProblem
from bidual.training.copositive.relaxed import PolarProof, Relaxed
from bidual.types import Matrix

_STEPS_BETWEEN_CUTS = 400


@dataclass(frozen=True, eq=False)
class _Relaxation:
    """A problem in the coordinates of ``scaled``, whose splittings run until their bounds stall to ``tol`` near the
    optimum, or until ``deadline``."""

    problem: ReluProblem
    scaled: Scaled
    form: str
    prove: Callable[[MomentSplitting], PolarProof]
    deadline: float
    tol: float

    def start(self, region: SignRegion) -> MomentSplitting:
        """The splitting over one region of x = X / size."""
        data, beta = self.problem.datafit, self.problem.beta / self.scaled.size
        largest = float(data.targets.abs().max()) or 1.0
        return MomentSplitting([region], data.targets.shape[1], beta, _Proximal(data), penalty=5 * beta / largest)

    def best(self, splitting: MomentSplitting, max_steps: int) -> Relaxed:
        """The best bound of a splitting."""
        best = self._judged(splitting)
        duals: list[float] = []  # without the first, which a cut inherits and only beats after some steps
        for _ in range(0, max_steps, ROUND):
            splitting.run(ROUND, self.deadline)
            found = self._judged(splitting)
            best = found if found.dual > best.dual else best
            duals.append(max([found.dual, *duals[-1:]]))
            if time.perf_counter() > self.deadline or _done(found, duals, self.tol):
                break
        return best

    def _judged(self, splitting: MomentSplitting) -> Relaxed:
        data = self.problem.datafit
        V = data.into_domain(torch.from_numpy(splitting.V).to(self.problem.X))
        value = data.value(torch.from_numpy(splitting.P).to(V)) + float(splitting.prices.sum())
        factors = tuple(self.scaled.directions(rows).to(V) for rows in splitting.factors())
        return Relaxed.proved(self.problem, self.form, V, self.prove(splitting), value, factors, splitting.steps)


def _done(found: Relaxed, duals: list[float], tol: float) -> bool:
    """Whether bound and optimum agree to rounding, or are close and the last evaluations gained nothing."""
    distance = abs(found.value - found.dual)
    close = distance <= 10 * tol * abs(found.value)
    return distance <= 1e-12 * abs(found.value) or (close and stalled(duals, tol))


class _Proximal:
    """The proximal map of F on numpy arrays; with an intercept b, a few Newton steps on b for each call."""

    def __init__(self, data: Datafit) -> None:
        self.data, self.b = data, data.targets.new_zeros(data.targets.shape[1])

    def __call__(self, P: Float[ndarray, "n c"], step: float) -> Float[ndarray, "n c"]:
        point = torch.from_numpy(P)
        if not self.data.intercept:
            return self.data.prox(point, step).numpy()
        for _ in range(3):
            shifted = point + self.b
            new = self.data.prox(shifted, step)
            bend = step * self.data.weights * self.data.loss.curvature(new, self.data.targets)
            slope = (bend / (1 + bend)).mean(0)
            self.b = self.b - (shifted - new).mean(0) / torch.where(slope > 1e-2, slope, torch.ones_like(slope))
        return (self.data.prox(point + self.b, step) - self.b).numpy()


@dataclass(frozen=True, eq=False)
class RegionProof:
    """The signs that make a region, and the multipliers N that bound |V^T (X u)_+| on it (:meth:`SignRegion.bound`)."""

    signs: Int[ndarray, " n"]
    N: Float[ndarray, "m m"]


@dataclass(frozen=True, eq=False)
class RegionProofs(PolarProof):
    """One proof per region; the regions must cover the sphere."""

    regions: tuple[RegionProof, ...]

    def polar(self, X: Float[Tensor, "n d"], V: Matrix) -> float:
        if not self.regions or not covers(np.stack([proof.signs for proof in self.regions])):
            return math.inf
        scaled, V = Scaled.of(X), V.detach().to("cpu", torch.float64)
        norm = length(V)
        if norm == 0:
            return 0.0
        W = V / norm
        with np.errstate(over="ignore"):
            bounds = [SignRegion(scaled.x, one.signs).bound(W.numpy(), one.N / norm / norm) for one in self.regions]
        return scaled.bound(scaled.in_units(max(bounds), norm, W), norm)


def joint_bound(
    problem: ReluProblem, branch: int = 0, max_time: float | None = None, tol: float = 1e-3, max_steps: int = 3000
) -> Relaxed:
    r"""max -F*(V) over all V whose polar the semidefinite relaxation can bound by beta (notes on CP eq. 17-20).

    With ``branch`` = k the sphere is cut k times: every region that carries weight is halved by the sign of the row
    that matters most in it, so there are at most 2^k regions, one V for all. It ends when 200 steps gain less than
    ``tol`` relatively near the relaxation's value, after ``max_steps`` steps per cut, or after ``max_time`` seconds;
    the bound is sound in each case.
    """
    problem.check_plain("the joint program")
    problem = problem.to(torch.float64)
    deadline = math.inf if max_time is None else time.perf_counter() + max_time
    scaled = Scaled.of(problem.X)
    if not scaled.x.shape[1]:
        return _without_data(problem)
    relaxation = _Relaxation(problem, scaled, "joint", _proofs, deadline, tol)
    splitting, found = relaxation.start(SignRegion.whole(scaled.x)), []
    for depth in range(branch + 1):
        if depth:
            splitting = splitting.split(splitting.rows_to_cut())
        steps = max_steps if depth == branch else min(max_steps, _STEPS_BETWEEN_CUTS)
        found.append(relaxation.best(splitting, steps))
        if time.perf_counter() > deadline:
            break
    return max(found, key=lambda bound: bound.dual)


def covers(signs: Int[ndarray, "k n"]) -> bool:
    """Whether regions with these signs cover all sign vectors: some row splits them into two covers, or one is free."""
    if not len(signs):
        return False
    if not signs.any(1).all():
        return True
    row = int(np.argmax((signs != 0).sum(0)))
    rest = signs.copy()
    rest[:, row] = 0
    return all(covers(rest[signs[:, row] * sign >= 0]) for sign in (1, -1))


def _proofs(splitting: MomentSplitting) -> RegionProofs:
    pairs = zip(splitting.regions, splitting.multipliers(), strict=True)
    return RegionProofs(tuple(RegionProof(region.signs, N) for region, N in pairs))


def _without_data(problem: ReluProblem) -> Relaxed:
    n = len(problem.X)
    proof = RegionProofs((RegionProof(np.zeros(n, dtype=np.int64), np.zeros((2 * n, 2 * n))),))
    return Relaxed.proved(problem, "joint", problem.dual_at_zero, proof)


@dataclass(frozen=True, eq=False)
class SpikeFreeProof(PolarProof):
    r"""Multipliers N >= 0 of the one cone X u >= 0.

    Every (X u)_+ with |u| <= 1 is X w with X w >= 0 and |w| <= spike, 1 for spike-free X (CP eq. 7), so the polar is at
    most spike * max { |V^T X u| : X u >= 0, |u| <= 1 }. An X that is white up to rounding has a spike just above 1.
    Where rows are parallel up to rounding only, that is the spike of an X' with |x'_i - x_i| <= moved |x_i|.

    In reduced coordinates h = x z is X' u / size >= 0 up to some e, |e| <= (leftover + |X - X'|_F) / size, so that
    h^T N h >= -|N| |e| (2 |h| + 3 |e|): the bound allows for that, and for |X - X'|_F |V|_F in (X u)_+ and in X w.
    """

    N: Float[ndarray, "m m"]

    def polar(self, X: Float[Tensor, "n d"], V: Matrix) -> float:
        free = is_spike_free(X)
        V, scaled = V.detach().to("cpu", torch.float64), Scaled.of(X)
        norm = length(V)
        if not free.holds or not np.isfinite(self.N).all() or not math.isfinite(norm):
            return math.inf
        if norm == 0 or not scaled.x.size:
            return scaled.bound(0.0, norm)
        moved = free.moved and rounded_up(free.moved * length(X.detach().to("cpu", torch.float64)))
        with np.errstate(over="ignore"):
            W, N = V / norm, self.N / norm / norm
        lost = rounded_up((scaled.leftover + moved) / scaled.size)
        bound = SignRegion(scaled.x, np.ones(len(X), dtype=np.int64)).bound(W.numpy(), N)
        paid = size_of(clipped(N)) * lost * (2.001 * size_of(scaled.x) + 3 * lost)
        reduced = scaled.in_units(math.sqrt(rounded_up(bound * bound + paid)) * (1 + gamma(4)), norm, W)
        return rounded_up(free.spike.upper * (scaled.bound(reduced, norm) + moved * norm) + moved * norm)


def spike_free_bound(
    problem: ReluProblem, max_time: float | None = None, tol: float = 1e-6, max_steps: int = 3000
) -> Relaxed:
    r"""The relaxation (20) of training on spike-free X, for any loss, by splitting: its dual is

        max -F*(V)   subject to   X^T V V^T X + X^T N X <= beta^2 I,   N >= 0.

    For squared loss the primal is min 1/2 tr Y^T (I + 2 X U X^T)^-1 Y + beta^2 tr U over U >= 0 (semidefinite) with
    X U X^T >= 0 (in every entry). It is tight for four distinct directions of rows or fewer (:func:`tightness`).
    """
    problem.check_plain("the spike-free relaxation")
    spike = is_spike_free(problem.X)
    if not math.isfinite(spike.spike.upper) or not spike.holds:
        raise ValueError(f"CP (20) is for spike-free data, and X is not: {spike.reason} Use the form 'joint' instead.")
    problem = problem.to(torch.float64)
    deadline = math.inf if max_time is None else time.perf_counter() + max_time
    scaled = Scaled.of(problem.X)
    relaxation = _Relaxation(problem, scaled, "spike_free", _spike_free_proof, deadline, tol)
    return relaxation.best(relaxation.start(SignRegion(scaled.x, np.ones(len(problem.X), dtype=np.int64))), max_steps)


def _spike_free_proof(splitting: MomentSplitting) -> SpikeFreeProof:
    return SpikeFreeProof(splitting.multipliers()[0])
