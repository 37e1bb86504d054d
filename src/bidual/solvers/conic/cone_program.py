"""The exact convex program of a ReLU network with one output, over given activation patterns (CP eq. 9 and 10)."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from time import monotonic

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from scipy import sparse
from torch import Tensor

from bidual.gauges import Group
from bidual.numerics.caratheodory import merge, prune
from bidual.operators import GatedOperator
from bidual.patterns.cones import needed_rows
from bidual.problems.problem import Problem, ReluProblem
from bidual.runtime.memory import available_bytes, human_bytes
from bidual.solvers.conic.cone_interior_point import SquaredCones
from bidual.solvers.conic.interior_point import attempts, constrained_answer
from bidual.types import Blocks, Matrix

_TOL = 1e-12  # the tightest tolerance of Clarabel
_GOOD = 1e-9  # the relative gap with which no other scaling is tried
_OWN = 1e-8  # the tightest tolerance for which the package's own interior point is tried
_MERGES = (1.0, 1e-4, 1e-6, 1e-8)  # how coarsely a solution may be simplified ...
_COARSENING = 1e-10  # ... if its objective rises by no more than this, or a tenth of the tolerance, relatively
_BYTES = 100  # per entry of the constraint matrix, in Clarabel's copies and its factor


@dataclass(frozen=True, eq=False)
class ConeSolution:
    """A network sum_j (X u_j)_+ w_j^T, and a dual candidate.

    Attributes:
        neurons: u (m, d).
        weights: w (m, 1), +1 for the w_p of CP (9) and -1 for its v_p.
        dual: the multiplier V of the predictions, scaled until multipliers of the cones prove it feasible.
        objective: of the network, with its features evaluated as (X u)_+.
        gap: |objective - dual value| / objective.
    """

    neurons: Float[Tensor, "m d"]
    weights: Float[Tensor, "m c"]
    dual: Matrix
    objective: float
    gap: float

    @property
    def lifted(self) -> Blocks:
        """|u_j| w_j^T, the variable of :meth:`ReluProblem.restricted_to` at ``neurons``."""
        return (torch.linalg.vector_norm(self.neurons, dim=1, keepdim=True) * self.weights)[:, None]


def solve_cone_program(
    problem: ReluProblem,
    patterns: Bool[Tensor, "p n"],
    *,
    complete: bool = False,
    tol: float = 0.0,
    time_limit: float | None = None,
) -> ConeSolution:
    r"""CP eq. (9): min F(sum_p D_p X (w_p - v_p)) + beta sum_p (|w_p| + |v_p|) over w_p, v_p in the cones
    (2 D_p - I) X u >= 0.

    With all patterns it is the training problem; with the one pattern of ones it is CP (10), which is the training
    problem of spike-free X (CP eq. 7). The result is a network at any accuracy of the solver, because its features are
    evaluated as (X u)_+ and not as D_p X u. X should be reduced to its rank first.

    Args:
        patterns: D_p as rows.
        complete: the patterns are all of X, as :func:`bidual.patterns.enumerate` lists them; then only the inequalities
            that bound a cone are used, which for many patterns is a matter of seconds or minutes.
        tol: the relative gap to reach. With squared loss and at least 1e-8 a specialised interior point is tried first,
            which is several times faster than Clarabel. By default all digits are computed.
        time_limit: in seconds; the best point so far is returned.
    """
    problem = problem.to(torch.float64)
    _check(problem, patterns)
    X, active = problem.X, patterns[patterns.any(1)]
    needed = needed_rows(_numpy(X), _numpy(patterns), complete=complete)[_numpy(patterns).any(1)]
    if not len(active):
        V = problem.datafit.grad(torch.zeros_like(problem.datafit.targets))
        return _evaluated(problem, X[:0], X[:0, :1], V)
    _check_memory(X, len(active), int(needed.sum()))
    lifted = Problem(GatedOperator(X, torch.cat([active, active]), 1), problem.datafit, Group(), problem.beta)
    run = _Setting(problem, lifted, tol, None if time_limit is None else monotonic() + time_limit)
    first = _by_own_interior_point(run, active, needed) if tol >= _OWN and problem.datafit.loss.half_square else None
    if first is not None and (first.gap <= tol or run.late):
        return first
    return _by_clarabel(run, _halfspaces(_numpy(X), _numpy(active), needed), first)


def _check(problem: ReluProblem, patterns: Tensor) -> None:
    problem.check_plain("the cone program")
    outputs = problem.datafit.targets.shape[1]
    if outputs != 1:
        raise ValueError(f"the cone program CP (9) is for one output, got {outputs}. Use column generation.")
    if patterns.shape[1] != len(problem.X):
        raise ValueError(f"patterns must have one column per sample ({len(problem.X)}), got {patterns.shape[1]}.")


def _check_memory(X: Tensor, patterns: int, inequalities: int) -> None:
    n, d = X.shape
    need = 2 * d * (patterns * (n + d) + inequalities) * _BYTES
    there = available_bytes(torch.device("cpu"))
    if need > there:
        raise ValueError(
            f"{patterns:,} patterns make a cone program of {2 * d * patterns:,} variables and {2 * inequalities:,} "
            f"inequalities, which needs about {human_bytes(need)}, and {human_bytes(there)} are free. "
            "Use column generation, or fewer patterns."
        )


def _halfspaces(X: ndarray, active: ndarray, needed: ndarray) -> sparse.csr_array:
    """H for the blocks (w_p; -v_p): the rows of (2 D_p - I) X that are needed, at unit length, and their negatives."""
    (p, i), d = np.nonzero(needed), X.shape[1]
    rows = np.where(active[p, i], 1.0, -1.0)[:, None] * X[i] / np.linalg.norm(X[i], axis=1, keepdims=True)
    columns = p[:, None] * d + np.arange(d)
    half = sparse.csr_array((rows.ravel(), columns.ravel(), d * np.arange(len(p) + 1)), shape=(len(p), len(active) * d))
    return sparse.csr_array(sparse.block_diag([half, -half]))


@dataclass(frozen=True, eq=False)
class _Setting:
    """A program, ``lifted`` without its inequalities, with blocks (w_1 .. w_P, -v_1 .. -v_P), and its limits."""

    problem: ReluProblem
    lifted: Problem
    tol: float
    deadline: float | None

    @property
    def left(self) -> float | None:
        return None if self.deadline is None else self.deadline - monotonic()

    @property
    def late(self) -> bool:
        return self.left is not None and self.left <= 0

    @cached_property
    def signs(self) -> Float[Tensor, "g 1"]:
        """+1 for w_p, -1 for v_p."""
        ones = self.problem.X.new_ones(self.lifted.operator.block_shape[0] // 2, 1)
        return torch.cat([ones, -ones])


def _by_own_interior_point(run: _Setting, active: Tensor, needed: ndarray) -> ConeSolution | None:
    """The first point that is good enough, or the last one; samples that no cone needs are left out."""
    X, D = _numpy(run.problem.X), _numpy(active)
    used, answer = np.logical_or.reduce(needed), None
    cones = SquaredCones.of(X, run.problem.datafit, D, used, run.problem.beta)
    for point in cones.iterates():
        late = run.late
        if point.gap <= run.tol or late:
            Z, normals = (
                run.signs * torch.from_numpy(rows).to(run.signs) for rows in (point.u, cones.normals(point.multipliers))
            )
            answer = _network(run, Z, run.lifted.residual(Z[:, :, None]), normals)
            if answer.gap <= run.tol or late:
                break
    return answer


def _by_clarabel(run: _Setting, H: sparse.csr_array, best: ConeSolution | None) -> ConeSolution:
    """The best of ``best`` and at most three runs, each with another scaling."""
    for attempt in attempts(run.lifted):
        if best is not None and (best.gap <= max(run.tol, _GOOD) or run.late):
            break
        Z, V, multipliers = constrained_answer(run.lifted, H, attempt, max(_TOL, 0.01 * run.tol), run.left)
        normals = torch.from_numpy(H.T @ multipliers.cpu().numpy()).to(Z).reshape(Z.shape[:2])
        answer = _network(run, Z[:, :, 0], V, normals)
        best = answer if best is None or answer.gap < best.gap else best
    assert best is not None
    return best


def _network(run: _Setting, Z: Tensor, V: Matrix, normals: Float[Tensor, "g d"]) -> ConeSolution:
    """The network of (w_p; -v_p), without dust and with neurons that neighbouring cones share counted once.

    Interior points never reach the boundary, and split a neuron on it between the cones that meet there.
    """
    problem, both, V = run.problem, run.signs * Z, _feasible(run.lifted, V, normals)
    most = _evaluated(problem, both, run.signs, V).objective * (1 + max(_COARSENING, 0.1 * run.tol))
    for tol in _MERGES:
        clean = _evaluated(problem, *_simplified(both, run.signs, tol), V)
        if clean.objective <= most:
            return clean
    return _evaluated(problem, *prune(problem.X, *_without_dust(both, run.signs)), V)


def _feasible(lifted: Problem, V: Matrix, normals: Float[Tensor, "g d"]) -> Matrix:
    r"""c V in the domain of F* with the largest c <= 1 that multipliers l_g >= 0 of H_g Z_g >= 0 prove feasible.

    ``normals`` has H_g^T l_g as rows. For Z in the cone <A_g^T V, Z> >= <A_g^T V - H_g^T l_g, Z>, so that
    |A_g^T V - H_g^T l_g| <= beta is enough, and c l belongs to c V.
    """
    V = lifted.datafit.into_domain(V)
    peak = float(torch.linalg.vector_norm(lifted.operator.adjoint(V)[:, :, 0] - normals, dim=1).max())
    return (min(1.0, lifted.beta / max(peak, 1e-300)) if math.isfinite(peak) else 0.0) * V


def _without_dust(neurons: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """All neurons but the shortest, whose lengths sum to a tiny share of all."""
    length, order = torch.linalg.vector_norm(neurons, dim=1).sort()
    kept = order[length.cumsum(0) > 1e-12 * length.sum()]
    return neurons[kept], weights[kept]


def _simplified(neurons: Tensor, weights: Tensor, tol: float) -> tuple[Tensor, Tensor]:
    """Neurons shorter than ``tol`` times the longest dropped, directions closer than ``tol`` merged, weights +-1."""
    length = torch.linalg.vector_norm(neurons, dim=1)
    large = length > tol * length.max() if len(length) else length > 0
    unit, scaled = merge(neurons[large], weights[large], tol)
    return unit * scaled.abs(), scaled.sign()


def _evaluated(problem: ReluProblem, neurons: Tensor, weights: Tensor, V: Tensor) -> ConeSolution:
    solution = ConeSolution(neurons, weights, V, 0.0, 0.0)
    objective = problem.restricted_to(neurons).primal(solution.lifted)
    gap = abs(objective + problem.datafit.conjugate(V)) / max(objective, 1e-300)
    return replace(solution, objective=objective, gap=gap)


def _numpy(tensor: Tensor) -> ndarray:
    return tensor.detach().cpu().numpy()
