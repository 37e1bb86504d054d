"""The exact convex program of a ReLU network with one output, over given activation patterns (CP eq. 9 and 10)."""

import math
from dataclasses import dataclass, replace
from time import monotonic

import clarabel
import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from scipy import sparse
from torch import Tensor

from bidual.gauges import Blocks, Group
from bidual.losses.base import Matrix
from bidual.memory import available_bytes, human_bytes
from bidual.operators import GatedOperator
from bidual.patterns.facets import needed_rows
from bidual.problem import Problem
from bidual.pruning import merge, prune
from bidual.relu import ReluProblem
from bidual.solvers.conic import conic_program
from bidual.solvers.interior_point import Attempt, attempts, clarabel_settings

_TOL = 1e-12  # what Clarabel is asked for
_GOOD = 1e-9  # the relative gap with which no other scaling is tried
_MERGES = (1.0, 1e-4, 1e-6, 1e-8)  # how coarsely a solution may be simplified ...
_COARSENING = 1e-10  # ... if its objective rises by no more than this, relatively
_BYTES = 100  # per entry of the constraint matrix, in Clarabel's copies and its factor


@dataclass(frozen=True, eq=False)
class ConeSolution:
    """A network sum_j (X u_j)_+ w_j^T, and a dual candidate.

    Attributes:
        neurons: u (m, d).
        weights: w (m, 1), +1 for the w_p of CP (9) and -1 for its v_p.
        dual: the multiplier V of the predictions; feasible up to the solver's accuracy.
        objective: what the network costs, with its features evaluated as (X u)_+.
    """

    neurons: Float[Tensor, "m d"]
    weights: Float[Tensor, "m c"]
    dual: Matrix
    objective: float

    @property
    def lifted(self) -> Blocks:
        """|u_j| w_j^T, the variable of :meth:`ReluProblem.over` at ``neurons``."""
        return (torch.linalg.vector_norm(self.neurons, dim=1, keepdim=True) * self.weights)[:, None]


def solve_cone_program(
    problem: ReluProblem,
    patterns: Bool[Tensor, "p n"],
    *,
    complete: bool = False,
    time_limit: float | None = None,
) -> ConeSolution:
    r"""CP eq. (9): min F(sum_p D_p X (w_p - v_p)) + beta sum_p (|w_p| + |v_p|) over w_p, v_p in the cones
    (2 D_p - I) X u >= 0.

    With all patterns it is the training problem; with the one pattern of ones it is CP (10), which is the training
    problem of spike-free X (CP eq. 7). What comes back is a network whatever the solver's accuracy, because its
    features are evaluated as (X u)_+ and not as D_p X u. Let the caller reduce X to its rank first.

    Args:
        patterns: D_p as rows.
        complete: the patterns are all that X has, as :func:`bidual.patterns.enumerate` lists them; then only the
            inequalities that bound a cone are used, which for many patterns is a matter of seconds or minutes.
        time_limit: in seconds; the best point so far is returned.
    """
    problem = replace(problem, X=problem.X.to(torch.float64), datafit=problem.datafit.to(torch.float64))
    _check(problem, patterns)
    X, active = problem.X, patterns[patterns.any(1)]
    needed = needed_rows(_numpy(X), _numpy(patterns), complete=complete)[_numpy(patterns).any(1)]
    if not len(active):
        return _evaluated(problem, X[:0], X[:0, :1], problem.datafit.grad(torch.zeros_like(problem.datafit.targets)))
    _check_memory(X, len(active), int(needed.sum()))
    D = active.to(X)
    lifted = Problem(GatedOperator(X, torch.cat([D, -D]), 1), problem.datafit, Group(), problem.beta)
    H = _halfspaces(_numpy(X), _numpy(active), needed)
    return _solve(problem, lifted, H, None if time_limit is None else monotonic() + time_limit)


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
    """The rows of (2 D_p - I) X w_p >= 0 and (2 D_p - I) X v_p >= 0 that are needed, at unit length."""
    (p, i), d = np.nonzero(needed), X.shape[1]
    rows = np.where(active[p, i], 1.0, -1.0)[:, None] * X[i] / np.linalg.norm(X[i], axis=1, keepdims=True)
    columns = p[:, None] * d + np.arange(d)
    half = sparse.csr_array((rows.ravel(), columns.ravel(), d * np.arange(len(p) + 1)), shape=(len(p), len(active) * d))
    return sparse.csr_array(sparse.block_diag([half, half]))


def _solve(problem: ReluProblem, lifted: Problem, H: sparse.csr_array, deadline: float | None) -> ConeSolution:
    """The best of at most three runs, each with another scaling."""
    best, least = None, math.inf
    for attempt in attempts(lifted):
        if best is not None and (least <= _GOOD or (deadline is not None and monotonic() >= deadline)):
            break
        answer = _network(problem, *_run(lifted, H, attempt, deadline))
        gap = _gap(problem, answer)
        if best is None or gap < least:
            best, least = answer, gap
    assert best is not None
    return best


def _run(lifted: Problem, H: sparse.csr_array, attempt: Attempt, deadline: float | None) -> tuple[Tensor, Tensor]:
    """(w_p; v_p) as rows and V where Clarabel stops, zero where it is lost."""
    program = conic_program(lifted, attempt.balance, H)
    left = None if deadline is None else deadline - monotonic()
    settings = clarabel_settings(_TOL, attempt, small=False, time_limit=left)
    answer = clarabel.DefaultSolver(program.P, program.q, program.G, program.h, program.cones, settings).solve()
    Z = program.lifted(np.nan_to_num(answer.x)).reshape(lifted.operator.block_shape[:2])
    V = program.dual(np.nan_to_num(answer.z), len(lifted.datafit.targets))[:, None]
    return torch.from_numpy(Z).to(lifted.operator.like), torch.from_numpy(V).to(lifted.operator.like)


def _network(problem: ReluProblem, both: Tensor, V: Tensor) -> ConeSolution:
    """The network of (w_p; v_p), without dust and with neurons that neighbouring cones share counted once.

    Interior points never reach the boundary, and split a neuron on it between the cones that meet there.
    """
    sign = torch.ones_like(both[:, :1])
    sign[len(both) // 2 :] = -1
    raw = _evaluated(problem, both, sign, V)
    for tol in _MERGES:
        clean = _evaluated(problem, *_simplified(both, sign, tol), V)
        if clean.objective <= raw.objective * (1 + _COARSENING):
            return clean
    return _evaluated(problem, *prune(problem.X, *_without_dust(both, sign)), V)


def _without_dust(neurons: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """All but the shortest neurons, which are together shorter than a tiny share of all."""
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
    solution = ConeSolution(neurons, weights, V, 0.0)
    return replace(solution, objective=problem.over(neurons).primal(solution.lifted))


def _gap(problem: ReluProblem, solution: ConeSolution) -> float:
    """How far the network and the multiplier are apart, relatively; an estimate that only chooses between attempts."""
    dual = -problem.datafit.conjugate(problem.datafit.into_domain(solution.dual))
    return abs(solution.objective - dual) / max(solution.objective, 1e-300)


def _numpy(tensor: Tensor) -> ndarray:
    return tensor.detach().cpu().numpy()
