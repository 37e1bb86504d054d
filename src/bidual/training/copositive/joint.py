"""The pattern-free relaxation, with cuts by the signs of rows: a lower bound for any data and any loss."""

import math
import time
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from bidual.numerics.rounding import length
from bidual.polar.relaxations.moments import MomentSplitting
from bidual.polar.relaxations.reduction import Scaled
from bidual.polar.relaxations.sign_regions import SignRegion
from bidual.problems.relu import ReluProblem
from bidual.training.copositive.first_order import SplittingLimits, improve, splitting_of
from bidual.training.copositive.relaxed import PolarProof, Relaxed
from bidual.types import Matrix

_STEPS_BETWEEN_CUTS = 400


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
