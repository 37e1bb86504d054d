"""Networks in one step: by formula on whitened data (CP Theorem 2 and its class basis), or by one cone program."""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Tensor

from bidual import patterns as activation_patterns
from bidual.patterns.reduction import reduce_rank
from bidual.patterns.row_directions import direction_groups, representatives, unit_rows
from bidual.polar import NeuronOracle, Neurons, bound_near
from bidual.polar.exact.orthogonal_rows import polar_bound_orthogonal_rows
from bidual.problems.certificate import PolarBound, Scope, judge
from bidual.problems.problem import NeuronProblem, ReluProblem
from bidual.problems.solution import DEFAULT_LIMITS, Limits, Status, Verdict
from bidual.solvers.conic.cone_program import solve_cone_program
from bidual.solvers.driver import NeuronSolver
from bidual.types import Matrix

_CONES = 1e-6  # cone programs are solved at least so far: looser points split neurons over neighbouring cones


class OneStep(NeuronSolver):
    """A method whose network comes all at once. Its state is the verdict, None before."""

    def init(self, problem: NeuronProblem, start: Tensor | None, dual: Tensor | None) -> Verdict | None:
        return None

    @abstractmethod
    def answer(self, problem: Any) -> Verdict:
        """The network, judged."""

    def step(self, problem: NeuronProblem, state: Verdict | None) -> Verdict:
        return self.answer(problem)

    def certified(self, problem: NeuronProblem, state: Verdict) -> Verdict:
        return state

    def finished(self, state: Verdict | None) -> Status | None:
        return None if state is None else Status.STALLED


def judged(
    problem: NeuronProblem, neurons: Neurons, weights: Float[Tensor, "m c"], V: Matrix, polar: PolarBound
) -> Verdict:
    """A network of any scaling, judged over all patterns by one dual point."""
    program = problem.restricted_to(neurons)
    Z = (torch.linalg.vector_norm(neurons, dim=1, keepdim=True) * weights)[:, None]
    certificate = judge(program, Z, V, polar, Scope.ALL_PATTERNS)
    return Verdict(program, certificate, V, certificate.relative_gap)


@dataclass(frozen=True, eq=False)
class ConeProgram(OneStep):
    """CP (9) in the coordinates of the row space of X; ``oracle`` proves how good its network is."""

    oracle: NeuronOracle
    limits: Limits = DEFAULT_LIMITS

    name = "cone_program"

    def _refusal(self, problem: ReluProblem) -> str | None:
        return cone_program_refusal(problem)

    def within(self, limits: Limits) -> Self:
        return replace(self, limits=limits)

    def answer(self, problem: ReluProblem) -> Verdict:
        active = activation_patterns.enumerate(problem.X).active
        reduced = reduce_rank(problem.X.detach().to("cpu", torch.float64).numpy())
        small = replace(problem, X=torch.from_numpy(reduced.samples).to(problem.X))
        tol, seconds = min(0.5 * self.limits.tol, _CONES), self.limits.max_time
        found = solve_cone_program(small, active, complete=True, tol=tol, time_limit=seconds)
        neurons = found.neurons @ torch.from_numpy(reduced.basis.T).to(problem.X)
        return judged(problem, neurons, found.weights, found.dual, lambda V: self.oracle.steepest(V).bracket.upper)


def cone_program_refusal(problem: ReluProblem) -> str | None:
    """Why CP (9) is not for a problem."""
    outputs = problem.datafit.targets.shape[1]
    return None if outputs == 1 else f"solver='cone_program' is CP (9), for one output, got {outputs}."


@dataclass(frozen=True, eq=False)
class ClosedForm(OneStep):
    r"""A network by formula, or why there is none. As a solver it has only to be judged.

    Attributes:
        applies: whether the hypotheses hold; if not, there are no neurons and ``objective`` is NaN.
        reason: which form was used, or which hypothesis fails.
        neurons: hidden weights u_j (m, d), balanced: |u_j| = |w_j|.
        weights: output weights w_j (m, c).
        objective: the optimum of the training problem, by formula.
        dual_point: the residual V (n, c) at the optimum, the gradient of F.
        polar: a proved upper bound of max { |V^T (X u)_+| : |u| <= 1 }, at most beta up to rounding and the defect of
            X X^T. Scaled by min(1, beta / polar), V is dual feasible.
    """

    applies: bool
    reason: str
    neurons: Float[Tensor, "m d"]
    weights: Float[Tensor, "m c"]
    objective: float
    dual_point: Matrix
    polar: float

    name = "closed_form"
    instead = "auto"

    def _refusal(self, problem: ReluProblem) -> str | None:
        return None if self.applies else self.reason

    def answer(self, problem: ReluProblem) -> Verdict:
        polar = bound_near(problem.X, self.dual_point, self.polar)
        return judged(problem, self.neurons, self.weights, self.dual_point, polar)


def closed_form(problem: ReluProblem, tol: float = 1e-8) -> ClosedForm:
    r"""The optimum on whitened data, X X^T = s^2 I, squared loss (CP Theorem 2).

    Write X = s Q. Then (X u)_+ = s (Q u)_+, so the gauge of X is that of Q divided by s: Theorem 2 holds with beta
    replaced by tau = beta / s. Predictions and residual are

        P = sum_k (sigma_k - tau)_+ p_k g_k^T,   V = -sum_k min(sigma_k, tau) p_k g_k^T,   Y = sum_k sigma_k p_k g_k^T,

    one neuron u_k ~ X^T p_k, w_k ~ g_k each, and the objective is sum_k tau sigma_k - tau^2 / 2, with sigma_k^2 / 2 for
    sigma_k <= tau. Two decompositions of Y qualify, tried in this order:

    1. Class basis: rows of Y that are parallel form a group k, p_k holds their lengths, and no two groups make an acute
       angle. One-hot labels, one output, labels +-1 and centred one-hot labels are of this kind. For h >= 0, |h| <= 1:
       |V^T h|^2 = |sum_k a_k g_k|^2 <= sum_k a_k^2 <= tau^2 with a_k = min(sigma_k, tau) p_k^T h >= 0. For one-hot
       labels P = Y diag((1 - tau / |y_k|)_+); equal singular values do not matter.
    2. Singular vectors: p_k >= 0 for all sigma_k > tau, up to the joint sign of (p_k, g_k). The paper's X a_k
       is s p_k.

    With an intercept the residual must sum to zero besides, as it does for balanced classes.

    Args:
        problem: squared loss without sample weights.
        tol: the largest |X X^T / s^2 - I|, and the largest negative entry of p_k, that count as rounding. The network
            is off the optimum by that order; ``polar`` and a certificate account for it.
    """
    if reason := refusal(problem, tol):
        return refused(problem, reason)
    X, Y = problem.X.to(torch.float64), problem.datafit.targets.to(torch.float64)
    scale = float(X.square().sum(1).mean())
    atoms = class_atoms(Y, tol) or singular_atoms(Y, problem.beta / math.sqrt(scale), tol)
    if atoms is None:
        return refused(
            problem,
            "two rows of Y make an acute angle, and a singular vector of Y above beta has entries of both signs "
            "(where singular values repeat, in the basis that was computed).",
        )
    return thresholded(problem, atoms, lambda V: polar_bound_orthogonal_rows(X, V), tol)


@dataclass(frozen=True, eq=False)
class Atoms:
    r"""Y = sum_k sigma_k p_k g_k^T - rest, with p_k >= 0 and |p_k| = |g_k| = 1.

    Attributes:
        name: which decomposition.
        lengths: p_k (m, n), of disjoint supports.
        directions: g_k (m, c).
        sigma: (m,).
        rest: what is never predicted, with its sign in the residual (n, c).
    """

    name: str
    lengths: Float[Tensor, "m n"]
    directions: Float[Tensor, "m c"]
    sigma: Float[Tensor, " m"]
    rest: Float[Tensor, "n c"]


def class_atoms(Y: Float[Tensor, "n c"], tol: float) -> Atoms | None:
    """One atom per direction of the rows of Y, or None if two directions make an acute angle."""
    labels = direction_groups(Y, tol=1e-12)
    rows = representatives(labels)
    if len(rows) > 2 * Y.shape[1]:  # more vectors than that cannot have pairwise angles of 90 degrees or more
        return None
    G = unit_rows(Y)[rows]
    if bool(((G @ G.T).fill_diagonal_(-1) > tol).any()):
        return None
    belongs = (labels == torch.arange(len(rows))[:, None]).to(Y.dtype)
    lengths = belongs * torch.linalg.vector_norm(Y, dim=1)
    sigma = torch.linalg.vector_norm(lengths, dim=1)
    name = "class basis: rows of Y are parallel or make no acute angle."
    return Atoms(name, lengths / sigma[:, None], G, sigma, torch.zeros_like(Y))


def singular_atoms(Y: Float[Tensor, "n c"], tau: float, tol: float) -> Atoms | None:
    """The singular vectors of Y above tau, or None if the left one has entries of both signs; the rest is residual."""
    left, sigma, right = torch.linalg.svd(Y, full_matrices=False)
    kept = sigma > tau
    P, G = left.T[kept], right[kept]
    sign = torch.where(P.sum(1, keepdim=True) < 0, -1.0, 1.0)
    P, G = sign * P, sign * G
    if bool((P + tol < 0).any()):
        return None
    rest = -(left[:, ~kept] * sigma[~kept]) @ right[~kept]
    P = P.clamp(min=0)
    P = P / torch.linalg.vector_norm(P, dim=1, keepdim=True)
    return Atoms("singular vectors of Y above beta have one sign (CP Theorem 2).", P, G, sigma[kept], rest)


def thresholded(problem: ReluProblem, atoms: Atoms, polar: Callable[[Tensor], float], tol: float) -> ClosedForm:
    """Soft-threshold the atoms; (X X^T p_k)_+ = lambda_k p_k, so an amplitude a costs beta a / sqrt(lambda_k)."""
    X, P, G, sigma = problem.X.to(torch.float64), atoms.lengths, atoms.directions, atoms.sigma
    hidden = P @ X
    root = torch.linalg.vector_norm(hidden, dim=1)
    tau = problem.beta / root
    active = sigma > tau
    size = ((sigma - tau) / root).clamp(min=0).sqrt()[active, None]
    V = atoms.rest - (P.T * torch.minimum(sigma, tau)) @ G
    if problem.datafit.intercept and float(V.sum(0).abs().max()) > tol * float(V.abs().sum()):
        return refused(problem, "with an intercept the residual must sum to zero, and it does not.")
    objective = torch.where(active, tau * sigma - tau**2 / 2, sigma**2 / 2).sum() + atoms.rest.square().sum() / 2
    neurons, weights = size * hidden[active] / root[active, None], size * G[active]
    return ClosedForm(True, atoms.name, neurons, weights, float(objective), V, polar(V))


def refusal(problem: ReluProblem, tol: float = 1e-8) -> str | None:
    """Which hypothesis on loss, weights or samples fails, for any beta; see :func:`closed_form`."""
    gram = problem.X.to(torch.float64) @ problem.X.to(torch.float64).T
    return refusal_of_data(problem) or _refusal_of_gram(gram, float(gram.diagonal().mean()), tol)


def refusal_of_data(problem: ReluProblem) -> str | None:
    problem.check_plain("the closed form")
    fit = problem.datafit
    if not fit.loss.half_square:
        return f"the closed form needs the squared loss, got {fit.loss.name}."
    if fit.weight is not None and bool((fit.weight != 1).any()):
        return "the closed form takes no sample weights."
    return None if bool(problem.X.any()) else "X is zero."


def _refusal_of_gram(gram: Tensor, scale: float, tol: float) -> str | None:
    eye = torch.eye(len(gram), dtype=gram.dtype)
    defect = distance(gram, scale, eye)
    if defect <= tol:
        return None
    advice = "Whiten with ZCAWhitening, which needs n <= d."
    if len(gram) > 1 and distance(gram, scale * len(gram) / (len(gram) - 1), eye - 1 / len(gram)) <= tol:
        advice = "X is de-meaned: append the constant column s / sqrt(n), or use closed_form_demeaned of "
        advice += "bidual.papers.methods.demeaned_form."
    return f"X X^T is not a multiple of the identity: relative defect {defect:.1e}. {advice}"


def distance(gram: Tensor, scale: float, model: Tensor) -> float:
    return float(torch.linalg.matrix_norm(gram / scale - model)) if scale > 0 else math.inf


def refused(problem: ReluProblem, reason: str) -> ClosedForm:
    X, Y = problem.X.to(torch.float64), problem.datafit.targets.to(torch.float64)
    none = torch.zeros_like(Y)
    return ClosedForm(False, reason, X[:0], Y[:0], math.nan, none, 0.0)
