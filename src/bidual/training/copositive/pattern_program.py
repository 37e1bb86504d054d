"""CP (19): the copositive program with every pattern's cone relaxed, over a working set of patterns."""

import math
import time
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from bidual.polar import LocalSearch
from bidual.problems.relu import ReluProblem
from bidual.problems.solution import Limits
from bidual.solvers.driver import solve
from bidual.training.copositive.cones import Multipliers, PatternCones, likely_levels
from bidual.training.copositive.conic import ConicAnswer, ConicDual
from bidual.training.copositive.multipliers import feasible_multipliers
from bidual.training.copositive.relaxed import PolarProof, Relaxed
from bidual.training.relu.column_generation import ColumnGeneration
from bidual.types import Matrix

_ADD = 150  # patterns to begin with, and to add in a round
_STARTS = 64  # of the search for patterns that bind
_ACCURACY = 1e-10  # of Clarabel


@dataclass(frozen=True, eq=False)
class ConeProofs(PolarProof):
    """Multipliers N_p of the patterns in ``active``; patterns that are not listed have zero multipliers."""

    active: Bool[ndarray, "p n"]
    N: Multipliers
    beta: float

    def polar(self, X: Float[Tensor, "n d"], V: Matrix) -> float:
        cones = PatternCones.of(X)
        known = {pattern.tobytes(): N for pattern, N in zip(self.active, self.N, strict=True)}
        none = np.zeros((cones.facets.shape[1],) * 2)
        found = [known.get(pattern.tobytes(), none) for pattern in cones.active]
        if any(N.shape != none.shape for N in found):
            return math.inf
        return cones.polar(V, np.stack(found) if found else np.zeros((0, *none.shape)), self.beta)


def pattern_bound(
    problem: ReluProblem, max_time: float | None = None, tol: float = 1e-6, max_rounds: int = 100
) -> Relaxed:
    r"""The relaxation (19) of training with squared loss: its dual is

        max -F*(V)   subject to   X^T D_p V V^T D_p X + K_p^T N_p K_p <= beta^2 I,   N_p >= 0,   for every pattern p,

    and its primal min 1/2 tr Y^T (I + 2 sum_p D_p X U_p X^T D_p)^-1 Y + beta^2 sum_p tr U_p over semidefinite U_p with
    K_p U_p K_p^T >= 0, K_p the facets of a cone. Where every cone has at most four it is exact (:func:`tightness`).

    Few patterns bind. Interior points solve it over a working set, Newton's method finds multipliers of the others, and
    patterns without such multipliers join. The bound covers all patterns at any end.
    """
    check_squared(problem, "the copositive program over patterns, CP (19),", "the form 'joint'")
    problem = problem.to(torch.float64)
    cones = PatternCones.of(problem.X)
    zero = _at_zero(problem, cones)
    if zero.polar <= problem.beta:  # no pattern binds, or there is none
        return zero
    run = _WorkingSet(problem, cones)
    deadline = math.inf if max_time is None else time.perf_counter() + max_time
    found = [run.start(max_time)]
    for _ in range(max_rounds):
        if not run.violated(tol) or time.perf_counter() > deadline:
            break
        found.append(run.round(deadline))
    return max(found, key=lambda bound: bound.dual)


def check_squared(problem: ReluProblem, what: str, instead: str) -> None:
    """Refuse other losses, norms and readouts."""
    problem.check_plain(what)
    if not problem.datafit.loss.half_square:
        raise ValueError(f"{what} is for the squared loss, got {problem.datafit.loss.name}; use {instead}.")


def _at_zero(problem: ReluProblem, cones: PatternCones) -> Relaxed:
    """The bound at the gradient of the zero network, without multipliers."""
    V = problem.datafit.into_domain(problem.datafit.grad(torch.zeros_like(problem.datafit.targets)))
    p, f, _ = cones.facets.shape
    proof = ConeProofs(cones.active, np.zeros((p, f, f)), problem.beta)
    return Relaxed.proved(problem, "patterns", V, proof, polar=cones.polar(V, proof.N, problem.beta))


class _WorkingSet:
    """The patterns in the conic program, and multipliers of all."""

    def __init__(self, problem: ReluProblem, cones: PatternCones) -> None:
        self.problem, self.cones, self.steps = problem, cones, 0
        self.beta = min(problem.beta / cones.scaled.size, 1e150)  # its square is a number
        self.N = np.zeros((len(cones), cones.facets.shape[1], cones.facets.shape[1]))
        self.kept: Int[ndarray, " k"] = np.zeros(0, dtype=np.int64)
        self.levels = np.zeros(len(cones))

    def start(self, max_time: float | None) -> Relaxed:
        """The bound at the dual point of a quick search's network, whose binding patterns start the working set; with
        few patterns, which all join, at that of the zero network."""
        problem = self.problem
        V, value = problem.datafit.grad(torch.zeros_like(problem.datafit.targets)), problem.datafit.scale
        if len(self.cones) > _ADD:
            search = LocalSearch(problem.X, starts=_STARTS)
            found = solve(problem, ColumnGeneration(search), Limits(1e-4, 30, max_time))
            V, value = found.dual_point, found.certificate.primal
        return self._judged(V, value, ())

    def violated(self, tol: float) -> bool:
        """Whether a pattern outside the program may still bind; then the worst of them join."""
        rest = np.setdiff1d(np.arange(len(self.cones)), self.kept)
        if len(self.kept):
            rest = rest[self.levels[rest] > self.beta**2 * (1 + tol)]
        worst = rest[np.argsort(-self.levels[rest])][:_ADD]
        self.kept = np.concatenate([self.kept, worst])
        return bool(len(worst))

    def round(self, deadline: float) -> Relaxed:
        answer = self._solved(None if math.isinf(deadline) else max(deadline - time.perf_counter(), 0.1))
        self.steps += answer.steps
        self.N[self.kept] = answer.N
        V = torch.from_numpy(answer.V).to(self.problem.X)
        return self._judged(V, answer.value, self._factors(answer))

    def _solved(self, time_limit: float | None) -> ConicAnswer:
        data, cones = self.problem.datafit, self.cones
        targets, weights = data.targets.cpu().numpy(), data.weights[:, 0].cpu().numpy()
        program = ConicDual(cones.subset(self.kept), targets, weights, data.intercept, self.beta)
        return program.solve(_ACCURACY, time_limit)

    def _judged(self, V: Tensor, value: float, factors: tuple[Tensor, ...]) -> Relaxed:
        """The bound that V proves with the best multipliers of the patterns outside the program."""
        V = self.problem.datafit.into_domain(V)
        forms = self.cones.forms(V.cpu().numpy())
        rest = np.setdiff1d(np.arange(len(self.cones)), self.kept)
        self.N[rest] = feasible_multipliers(
            forms[rest], self.cones.facets[rest], self.cones.inside[rest], 0.999 * self.beta**2
        )
        self.N = self.cones.capped(V.cpu().numpy(), self.N, self.problem.beta)
        self.levels = likely_levels(forms, self.cones.facets, self.N)
        polar = self.cones.polar(V, self.N, self.problem.beta)
        proof = ConeProofs(self.cones.active, self.N.copy(), self.problem.beta)
        return Relaxed.proved(self.problem, "patterns", V, proof, value, factors, self.steps, polar)

    def _factors(self, answer: ConicAnswer) -> tuple[Tensor, ...]:
        """Rows whose squares sum to U_p, of the patterns that carry weight."""
        heavy = np.trace(answer.U, axis1=1, axis2=2)
        values, axes = np.linalg.eigh(answer.U[heavy >= 1e-6 * heavy.sum()])
        rows = (axes * np.sqrt(np.maximum(values, 0))[:, None, :]).transpose(0, 2, 1)
        return tuple(self.cones.scaled.directions(one).to(self.problem.X) for one in rows)
