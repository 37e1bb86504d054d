"""Lower bounds of ReLU training over all patterns, by optimising the dual point and its proof together."""

import math
import time
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from bidual.certificate import Scope, judge
from bidual.datafit import Datafit
from bidual.losses.base import Matrix
from bidual.polar.base import Neurons, bound_near
from bidual.polar.cells import Cell
from bidual.polar.moments import MomentSplitting
from bidual.polar.reduction import Scaled
from bidual.polar.semidefinite import ROUND, stalled
from bidual.relu import ReluProblem

_STEPS_BETWEEN_CUTS = 400


@dataclass(frozen=True, eq=False)
class CellProof:
    """The signs that make a cell, and the multipliers N that bound |V^T (X u)_+| on it (:meth:`Cell.bound`)."""

    signs: Int[ndarray, " n"]
    N: Float[ndarray, "m m"]


@dataclass(frozen=True, eq=False)
class JointBound:
    """A dual point with the proof of its feasibility.

    Attributes:
        V: a point of dom F*, not yet scaled.
        polar: a proved upper bound of max { |V^T (X u)_+| : |u| <= 1 }.
        dual: -F*(s V) at the best s <= beta / polar; a lower bound of the training optimum.
        relaxation: about the best value of ``dual`` for these cells; an estimate, not a bound.
        witness: one proof per cell; the cells cover the sphere.
        neurons: unit directions that the relaxation points at; good starts for a search of violated neurons.
        steps: how many alternating steps it took.
    """

    V: Matrix
    polar: float
    dual: float
    relaxation: float
    witness: tuple[CellProof, ...]
    neurons: Neurons
    steps: int

    def recheck(self, X: Float[Tensor, "n d"]) -> bool:
        """Recompute the polar's bound from the witness alone, and that the cells cover the sphere."""
        polar = polar_bound(Scaled.of(X), self.V, self.witness)
        return covers(np.stack([proof.signs for proof in self.witness])) and polar <= self.polar * (1 + 1e-9)


def joint_bound(
    problem: ReluProblem, branch: int = 0, max_time: float | None = None, tol: float = 1e-3, max_steps: int = 3000
) -> JointBound:
    r"""max -F*(V) over all V whose polar the semidefinite relaxation can bound by beta (notes on CP eq. 17-20).

    With ``branch`` = k the sphere is cut k times: every cell that carries weight is halved by the sign of the row that
    matters most in it, so there are at most 2^k cells, one V for all. The answer is sound whenever it stops: when
    200 steps gain less than ``tol`` relatively near the relaxation's value, after ``max_steps`` steps per cut, or after
    ``max_time`` seconds (looked at every 50 steps).
    """
    problem.check_plain("the joint program")
    problem = ReluProblem(problem.X.to(torch.float64), problem.datafit.to(torch.float64), problem.beta)
    deadline = math.inf if max_time is None else time.perf_counter() + max_time
    scaled = Scaled.of(problem.X)
    if not scaled.x.shape[1]:
        return _without_data(problem)
    splitting, found = _start(problem, scaled), []
    for depth in range(branch + 1):
        if depth:
            splitting = splitting.split(splitting.rows_to_cut())
        steps = max_steps if depth == branch else min(max_steps, _STEPS_BETWEEN_CUTS)
        found.append(_improve(problem, scaled, splitting, _Limits(deadline, tol, steps)))
        if time.perf_counter() > deadline:
            break
    return max(found, key=lambda bound: bound.dual)


def polar_bound(scaled: Scaled, V: Matrix, witness: tuple[CellProof, ...]) -> float:
    """The polar's upper bound that the proofs of all cells give."""
    values = V.detach().to("cpu", torch.float64).numpy()
    norm = float(np.linalg.norm(values))
    if norm == 0:
        return 0.0
    worst = max(Cell(scaled.x, proof.signs).bound(values / norm, proof.N / norm**2) for proof in witness)
    return scaled.bound(norm * worst, norm)


def covers(signs: Int[ndarray, "k n"]) -> bool:
    """Whether cells with these signs cover all sign vectors: some row splits them into two covers, or one is free."""
    if not len(signs):
        return False
    if not signs.any(1).all():
        return True
    row = int(np.argmax((signs != 0).sum(0)))
    rest = signs.copy()
    rest[:, row] = 0
    return all(covers(rest[signs[:, row] * sign >= 0]) for sign in (1, -1))


@dataclass(frozen=True)
class _Limits:
    deadline: float
    tol: float
    max_steps: int


def _start(problem: ReluProblem, scaled: Scaled) -> MomentSplitting:
    data, beta = problem.datafit, problem.beta / scaled.size
    size = float(data.targets.abs().max()) or 1.0
    cells, c = [Cell.whole(scaled.x)], data.targets.shape[1]
    return MomentSplitting(cells, c, beta, _Proximal(data), penalty=5 * beta / size)


def _improve(problem: ReluProblem, scaled: Scaled, splitting: MomentSplitting, limits: _Limits) -> JointBound:
    """The best bound met while the splitting runs until it stalls."""
    best = _judged(problem, scaled, splitting)
    duals: list[float] = []  # without the first, which a cut inherits and only beats after some steps
    for _ in range(0, limits.max_steps, ROUND):
        splitting.run(ROUND)
        bound = _judged(problem, scaled, splitting)
        best = bound if bound.dual > best.dual else best
        duals.append(max([bound.dual, *duals[-1:]]))
        close = abs(bound.relaxation - bound.dual) <= 10 * limits.tol * abs(bound.relaxation)
        if time.perf_counter() > limits.deadline or (close and stalled(duals, limits.tol)):
            break
    return best


def _judged(problem: ReluProblem, scaled: Scaled, splitting: MomentSplitting) -> JointBound:
    V = problem.datafit.into_domain(torch.from_numpy(splitting.V).to(problem.X))
    pairs = zip(splitting.cells, splitting.multipliers(), strict=True)
    witness = tuple(CellProof(cell.signs, N) for cell, N in pairs)
    polar = polar_bound(scaled, V, witness)
    relaxation = problem.datafit.value(torch.from_numpy(splitting.P).to(V)) + float(splitting.prices.sum())
    neurons = torch.nn.functional.normalize(scaled.directions(splitting.directions()).to(V))
    return JointBound(V, polar, _dual_value(problem, V, polar), relaxation, witness, neurons, splitting.steps)


def _dual_value(problem: ReluProblem, V: Tensor, polar: float) -> float:
    nothing = problem.over(problem.X.new_zeros(1, problem.X.shape[1]))
    bound = bound_near(problem.X, V, polar)
    return judge(nothing, nothing.operator.zeros(), V, bound, Scope.ALL_PATTERNS).dual


def _without_data(problem: ReluProblem) -> JointBound:
    V = problem.datafit.into_domain(problem.datafit.grad(torch.zeros_like(problem.datafit.targets)))
    n, dual = len(V), _dual_value(problem, V, 0.0)
    proof = CellProof(np.zeros(n, dtype=np.int64), np.zeros((2 * n, 2 * n)))
    return JointBound(V, 0.0, dual, dual, (proof,), problem.X.new_zeros(0, problem.X.shape[1]), 0)


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
