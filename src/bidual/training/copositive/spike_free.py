"""CP (20): one cone for all patterns, where the data are spike-free."""

import math
import time
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from bidual.numerics.rounding import gamma, length, rounded_up
from bidual.patterns.spike_free import is_spike_free
from bidual.polar.relaxations.reduction import Scaled
from bidual.polar.relaxations.sign_regions import SignRegion, clipped, size_of
from bidual.problems.relu import ReluProblem
from bidual.training.copositive.first_order import SplittingLimits, improve, splitting_of
from bidual.training.copositive.relaxed import PolarProof, Relaxed
from bidual.types import Matrix


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
