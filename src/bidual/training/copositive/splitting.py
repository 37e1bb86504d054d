"""Relaxations by splitting: pattern-free with cuts by the signs of rows, and CP (20) on spike-free data."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

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
from bidual.problems.relu import ReluProblem
from bidual.training.copositive.relaxed import PolarProof, Relaxed
from bidual.types import Matrix

ProofOf = Callable[[MomentSplitting], PolarProof]
_STEPS_BETWEEN_CUTS = 400


@dataclass(frozen=True)
class SplittingLimits:
    """A splitting ends at ``deadline``, after ``max_steps``, or when its bound stalls to ``tol`` near the optimum."""

    deadline: float
    tol: float
    max_steps: int


def splitting_of(problem: ReluProblem, regions: list[SignRegion], size: float) -> MomentSplitting:
    """The splitting over regions of x = X / size, at its start."""
    data, beta = problem.datafit, problem.beta / size
    largest = float(data.targets.abs().max()) or 1.0
    return MomentSplitting(regions, data.targets.shape[1], beta, _Proximal(data), penalty=5 * beta / largest)


def improve(
    problem: ReluProblem, scaled: Scaled, splitting: MomentSplitting, form: str, prove: ProofOf, limits: SplittingLimits
) -> Relaxed:
    """The best bound of a splitting that runs until it stalls."""
    best = _judged(problem, scaled, splitting, form, prove)
    duals: list[float] = []  # without the first, which a cut inherits and only beats after some steps
    for _ in range(0, limits.max_steps, ROUND):
        splitting.run(ROUND, limits.deadline)
        found = _judged(problem, scaled, splitting, form, prove)
        best = found if found.dual > best.dual else best
        duals.append(max([found.dual, *duals[-1:]]))
        if time.perf_counter() > limits.deadline or _done(found, duals, limits.tol):
            break
    return best


def _done(found: Relaxed, duals: list[float], tol: float) -> bool:
    """Whether bound and optimum agree to rounding, or are close and the last evaluations gained nothing."""
    distance = abs(found.value - found.dual)
    close = distance <= 10 * tol * abs(found.value)
    return distance <= 1e-12 * abs(found.value) or (close and stalled(duals, tol))


def _judged(problem: ReluProblem, scaled: Scaled, splitting: MomentSplitting, form: str, prove: ProofOf) -> Relaxed:
    V = problem.datafit.into_domain(torch.from_numpy(splitting.V).to(problem.X))
    value = problem.datafit.value(torch.from_numpy(splitting.P).to(V)) + float(splitting.prices.sum())
    factors = tuple(scaled.directions(rows).to(V) for rows in splitting.factors())
    return Relaxed.proved(problem, form, V, prove(splitting), value, factors, splitting.steps)


@dataclass(eq=False)
class _Proximal:
    """The proximal map of F on numpy arrays; with an intercept b, a few Newton steps on b for each call."""

    data: Datafit
    b: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.b = self.data.targets.new_zeros(self.data.targets.shape[1])

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
        return regions_bound(X, V, self.regions)


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
    splitting, found = splitting_of(problem, [SignRegion.whole(scaled.x)], scaled.size), []
    for depth in range(branch + 1):
        if depth:
            splitting = splitting.split(splitting.rows_to_cut())
        steps = max_steps if depth == branch else min(max_steps, _STEPS_BETWEEN_CUTS)
        limits = SplittingLimits(deadline, tol, steps)
        found.append(improve(problem, scaled, splitting, "joint", _proofs, limits))
        if time.perf_counter() > deadline:
            break
    return max(found, key=lambda bound: bound.dual)


def regions_bound(X: Float[Tensor, "n d"], V: Matrix, regions: tuple[RegionProof, ...]) -> float:
    """The largest of the bounds of |V^T (X u)_+| that the proofs give on their regions."""
    scaled, V = Scaled.of(X), V.detach().to("cpu", torch.float64)
    norm = length(V)
    if norm == 0:
        return 0.0
    W = V / norm
    with np.errstate(over="ignore"):
        worst = max(SignRegion(scaled.x, proof.signs).bound(W.numpy(), proof.N / norm / norm) for proof in regions)
    return scaled.bound(scaled.in_units(worst, norm, W), norm)


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
    V = problem.datafit.into_domain(problem.datafit.grad(torch.zeros_like(problem.datafit.targets)))
    n = len(V)
    proof = RegionProofs((RegionProof(np.zeros(n, dtype=np.int64), np.zeros((2 * n, 2 * n))),))
    return Relaxed.proved(problem, "joint", V, proof)


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
    region = SignRegion(scaled.x, np.ones(len(problem.X), dtype=np.int64))
    splitting, limits = splitting_of(problem, [region], scaled.size), SplittingLimits(deadline, tol, max_steps)
    return improve(problem, scaled, splitting, "spike_free", lambda s: SpikeFreeProof(s.multipliers()[0]), limits)
