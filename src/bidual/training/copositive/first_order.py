"""Relaxations by splitting, run until the proved bound stalls."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from bidual.losses.datafit import Datafit
from bidual.polar.relaxations.moments import ROUND, MomentSplitting, stalled
from bidual.polar.relaxations.reduction import Scaled
from bidual.polar.relaxations.sign_regions import SignRegion
from bidual.problems.relu import ReluProblem
from bidual.training.copositive.relaxed import PolarProof, Relaxed

ProofOf = Callable[[MomentSplitting], PolarProof]


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
