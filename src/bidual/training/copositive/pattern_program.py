"""CP (19): the copositive program with every pattern's cone relaxed, as a conic program over a working set."""

import math
import time
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import clarabel
import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy import sparse
from torch import Tensor

from bidual.numerics.clarabel import clarabel_answer
from bidual.polar import LocalSearch
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits
from bidual.solvers.conic.interior_point import Attempt, clarabel_settings
from bidual.solvers.driver import solve
from bidual.training.copositive.cones import Multipliers, PatternCones, likely_levels
from bidual.training.copositive.multipliers import feasible_multipliers
from bidual.training.copositive.relaxed import PolarProof, Relaxed
from bidual.training.relu.column_generation import ColumnGeneration
from bidual.types import Matrix

_LOOSER = (1.0, 1e2, 1e4)  # multiples of the tolerance that are tried in turn where Clarabel fails
_ADD = 150  # patterns to begin with, and to add in a round
_STARTS = 64  # of the search for patterns that bind
_ACCURACY = 1e-10  # of Clarabel


class ConicAnswer(NamedTuple):
    """V, the multipliers N_p and the moment matrices U_p = E u u^T of the given patterns."""

    V: Float[ndarray, "n c"]
    N: Multipliers
    U: Float[ndarray, "p r r"]
    value: float
    steps: int


@dataclass(frozen=True, eq=False)
class ConicDual:
    r"""max -1/2 sum v^2 / w - <V, Y> over V and N_p >= 0 such that, for every pattern p,

        [ beta I - K_p^T N_p K_p   x^T D_p V ]
        [ V^T D_p x                beta I    ]   is positive semidefinite,

    that is, x^T D_p V V^T D_p x + beta K_p^T N_p K_p <= beta^2 I (notes on CP (17)-(20)). N_p has no diagonal, since
    squares are non-negative. Its multipliers are the moment matrices of (u, w). With an intercept 1^T V = 0.

    Cones may be very thin. So each has its own frame T_p, in which K_p T_p has orthonormal columns up to one factor:
    the corner becomes beta T^T T - (K T)^T N (K T), and no N is large only because its cone is thin.

    Attributes:
        cones: of the patterns in question.
        targets, weights: Y and the sample weights, of squared loss.
    """

    cones: PatternCones
    targets: Float[ndarray, "n c"]
    weights: Float[ndarray, " n"]
    intercept: bool
    beta: float

    def solve(self, tol: float, time_limit: float | None = None) -> ConicAnswer:
        """By interior points; the point where Clarabel stops, accurate or not."""
        size = float(np.abs(self.targets).max()) or 1.0  # V in units of Y
        n, c = self.targets.shape
        G, cones, h = self._constraints(self.beta / size)
        others = np.zeros(len(self._pairs[0]))
        P = sparse.diags_array(np.concatenate([np.repeat(1 / self.weights, c), others])).tocsc()
        q = np.concatenate([self.targets.ravel() / size, others])
        for looser in _LOOSER:
            settings = clarabel_settings(looser * tol, Attempt(1.0, 1e-8), small=False, time_limit=time_limit)
            answer = clarabel_answer(P, q, G, h, cones, settings)
            if not answer.lost:
                break
        found, z = np.nan_to_num(answer.x), np.nan_to_num(answer.z)
        U = self._moments(z[len(z) - len(self.cones) * self._triangle :])
        V, N = size * found[: n * c].reshape(n, c), size * self.beta * self._multipliers(found[n * c :])
        return ConicAnswer(V, N, U, -(size**2) * answer.value, answer.iterations)

    @cached_property
    def _pairs(self) -> tuple[Int[ndarray, " k"], Int[ndarray, " k"], Int[ndarray, " k"]]:
        """Pattern and facets i < j of every multiplier."""
        there = np.asarray(self.cones.facets.any(2))
        pattern, i, j = np.nonzero(there[:, :, None] & there[:, None, :])
        upper = i < j
        return pattern[upper], i[upper], j[upper]

    def _multipliers(self, values: Float[ndarray, " k"]) -> Multipliers:
        pattern, i, j = self._pairs
        p, f, _ = self.cones.facets.shape
        N = np.zeros((p, f, f))
        N[pattern, i, j] = N[pattern, j, i] = values / self.cones.thinness[pattern] ** 2
        return N

    @property
    def _side(self) -> int:
        return self.cones.scaled.x.shape[1] + self.targets.shape[1]

    @property
    def _triangle(self) -> int:
        return self._side * (self._side + 1) // 2

    def _constraints(self, beta: float) -> tuple[sparse.csc_array, list[object], Float[ndarray, " m"]]:
        """G and h of h - G (V, N) in the cones: balance, N >= 0, one triangle per pattern."""
        (n, c), p, k = self.targets.shape, len(self.cones), len(self._pairs[0])
        balance = sparse.hstack([sparse.kron(np.ones((1, n)), sparse.eye_array(c)), sparse.csr_array((c, k))])
        signs = sparse.hstack([sparse.csr_array((k, n * c)), -sparse.eye_array(k)])
        parts = [*([balance] if self.intercept else []), signs, sparse.hstack([self._of_V(), self._of_N()])]
        cones: list[object] = [clarabel.ZeroConeT(c)] if self.intercept else []
        cones += [clarabel.NonnegativeConeT(k), *[clarabel.PSDTriangleConeT(self._side)] * p]
        level = np.zeros((p, self._triangle))
        squares = np.concatenate([(self.cones.frames**2).sum(1), np.ones((p, c))], axis=1)
        level[:, _place(np.arange(self._side), np.arange(self._side))] = beta * squares
        free = np.zeros(k + (c if self.intercept else 0))
        return sparse.csc_array(sparse.vstack(parts)), cones, np.concatenate([free, level.ravel()])

    def _of_V(self) -> sparse.csr_array:
        """T^T x^T D_p V in the upper right corners, entry (i, r + l) of pattern p from V[k, l]."""
        (n, r), c = self.cones.scaled.x.shape, self.targets.shape[1]
        pattern, sample = np.nonzero(self.cones.active)
        i, column = np.arange(r)[None, :, None], np.arange(c)[None, None, :]
        row = pattern[:, None, None] * self._triangle + _place(i, r + column)
        entry = sample[:, None, None] * c + column + 0 * i
        turned = np.einsum("ki,kij->kj", self.cones.scaled.x[sample], self.cones.frames[pattern])
        value = -np.sqrt(2) * turned[:, :, None] + 0.0 * column
        shape = (len(self.cones) * self._triangle, n * c)
        return sparse.csr_array((value.ravel(), (row.ravel(), entry.ravel())), shape=shape)

    def _of_N(self) -> sparse.csr_array:
        """(K T)^T N (K T) in the upper left corners: k_i k_j^T + k_j k_i^T for every pair."""
        pattern, first, second = self._pairs
        turned = self.cones.facets @ self.cones.frames / self.cones.thinness[:, None, None]
        one, other = turned[pattern, first], turned[pattern, second]
        i, j = np.triu_indices(one.shape[1])
        value = np.where(i == j, 1.0, np.sqrt(2)) * (one[:, i] * other[:, j] + one[:, j] * other[:, i])
        row = pattern[:, None] * self._triangle + _place(i, j)
        entry = np.arange(len(pattern))[:, None] + 0 * row
        shape = (len(self.cones) * self._triangle, len(pattern))
        return sparse.csr_array((value.ravel(), (row.ravel(), entry.ravel())), shape=shape)

    def _moments(self, z: Float[ndarray, " m"]) -> Float[ndarray, "p r r"]:
        """The upper left corners of the multipliers of the matrix inequalities, out of their frames."""
        p, r = len(self.cones), self.cones.scaled.x.shape[1]
        triangles, (i, j) = z.reshape(p, self._triangle), np.triu_indices(r)
        U = np.zeros((p, r, r))
        U[:, i, j] = triangles[:, _place(i, j)] * np.where(i == j, 1.0, np.sqrt(0.5))
        U = U + np.triu(U, 1).transpose(0, 2, 1)
        return np.asarray(self.cones.frames @ U @ self.cones.frames.transpose(0, 2, 1))


def _place(i: ndarray, j: ndarray) -> ndarray:
    """Where Clarabel keeps entry (i, j), i <= j, of a symmetric matrix."""
    return j * (j + 1) // 2 + i


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
        name = problem.datafit.loss.name
        raise ValueError(f"{what} is for the squared loss, got {name}; use {instead}, or loss='squared'.")


def _at_zero(problem: ReluProblem, cones: PatternCones) -> Relaxed:
    """The bound at the gradient of the zero network, without multipliers."""
    V = problem.dual_at_zero
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
        V, value = problem.dual_at_zero, problem.datafit.scale
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
        data = self.problem.datafit
        targets, weights = data.targets.cpu().numpy(), data.weights[:, 0].cpu().numpy()
        program = ConicDual(self.cones.subset(self.kept), targets, weights, data.intercept, self.beta)
        left = None if math.isinf(deadline) else max(deadline - time.perf_counter(), 0.1)
        answer = program.solve(_ACCURACY, left)
        self.steps += answer.steps
        self.N[self.kept] = answer.N
        V = torch.from_numpy(answer.V).to(self.problem.X)
        return self._judged(V, answer.value, self._factors(answer))

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
