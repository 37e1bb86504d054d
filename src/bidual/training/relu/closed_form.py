"""Optimal ReLU networks by formula: CP Theorem 2 for whitened data, its class basis, and de-meaned data."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bidual.numerics.gram import Gram, norm_bound, power_of_two
from bidual.numerics.rounding import gamma, length, rounded_up
from bidual.polar import bound_near
from bidual.polar.exact.orthogonal_rows import polar_bound_orthogonal_rows
from bidual.problems.relu import ReluProblem
from bidual.problems.solution import Verdict
from bidual.training.neuron_solver import OneStep, judged
from bidual.training.relu.closed_form_atoms import Atoms, class_atoms, singular_atoms
from bidual.types import Matrix

_EXACT = 1e-12  # angles and entries of Y that the proof for de-meaned data takes as exact


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
        return _refused(problem, reason)
    X, Y = problem.X.to(torch.float64), problem.datafit.targets.to(torch.float64)
    scale = float(X.square().sum(1).mean())
    atoms = class_atoms(Y, tol) or singular_atoms(Y, problem.beta / math.sqrt(scale), tol)
    if atoms is None:
        return _refused(
            problem,
            "two rows of Y make an acute angle, and a singular vector of Y above beta has entries of both signs "
            "(where singular values repeat, in the basis that was computed).",
        )
    return _network(problem, atoms, lambda V: polar_bound_orthogonal_rows(X, V), tol)


def closed_form_demeaned(problem: ReluProblem, tol: float = 1e-8) -> ClosedForm:
    r"""The optimum on de-meaned whitened data, X X^T = s^2 (I - 1 1^T / n), where CP Theorem 2 does not apply.

    The range of X is orthogonal to 1, so X u >= 0 for X u = 0 only, and X is not spike-free. Let the rows of Y be
    constant within groups of n_k <= n / 2 samples, zero elsewhere, and let no two groups make an acute angle (one-hot
    labels). Then u_k = X^T p_k with p_k = 1_k / sqrt(n_k) has (X u_k)_+ = s^2 (1 - n_k / n) p_k, and everything is as
    in Theorem 2 with beta_k = beta / (s sqrt(1 - n_k / n)) in the place of tau: the optimum is

        sum_k beta_k sigma_k - beta_k^2 / 2,     sigma_k = sqrt(n_k) for one-hot labels.

    Proof that |V^T t_+| <= beta for 1^T t = 0, |t| <= 1 (taking s = 1): let q_k <= n_k entries of group k be positive,
    and r_k be their sum. The negative entries sum to -sum_k r_k, so

        |t|^2 >= sum_k r_k^2 / q_k + (sum_k r_k)^2 / (n - sum_k q_k) >= sum_k r_k^2 (1 / q_k + 1 / (n - q_k)),

    which is at least sum_k r_k^2 n / (n_k (n - n_k)), because q (n - q) grows up to q = n / 2. And
    |V^T t_+|^2 <= sum_k beta_k^2 r_k^2 / n_k, which is beta^2 times the same sum.
    """
    if reason := _refusal_of_data(problem):
        return _refused(problem, reason)
    X, Y = problem.X.to(torch.float64), problem.datafit.targets.to(torch.float64)
    n, gram = len(X), X @ X.T
    scale = float(gram.diagonal().sum()) / max(n - 1, 1)
    defect = _distance(gram, scale, torch.eye(n, dtype=X.dtype) - 1 / n)
    if not defect <= tol:
        return _refused(problem, f"X X^T is not a multiple of I - 1 1^T / n: relative defect {defect:.1e}.")
    atoms = class_atoms(Y, _EXACT)
    if atoms is None or not _at_most_half_and_constant(atoms.lengths, _EXACT):
        return _refused(problem, "Y is not constant on groups of at most n / 2 samples without acute angles.")
    moved = _distance_to_demeaned(X, scale)
    groups = torch.where(atoms.lengths.any(0), atoms.lengths.argmax(0), -1)
    polar = lambda V: rounded_up(_polar_demeaned(V, groups, scale) + moved * norm_bound(V))  # noqa: E731
    return _network(problem, atoms, polar, tol)


def _distance_to_demeaned(X: Float[Tensor, "n d"], scale: float) -> float:
    r"""A bound of |X - X0|_op for an X0 with X0 X0^T = s^2 (I - 1 1^T / n) and s^2 = ``scale``.

    Taking the mean of every column from X moves it by |X^T 1| / sqrt(n). The singular values of the rest are s up to
    s defect, since |t - 1| <= |t^2 - 1|, with defect >= |X X^T / s^2 - (I - 1 1^T / n)|: the computed one, the error of
    X X^T, and three roundings of its entries and of I - 1 1^T / n.
    """
    n, unit = len(X), power_of_two(X)
    gram, level = Gram.of(X / unit), scale / unit / unit
    centring = torch.eye(n, dtype=X.dtype) - 1 / n
    off, terms = gram.G / level - centring, length(gram.G) / level + length(centring)
    defect = rounded_up(length(off) + gram.spread / level + gamma(4) * terms)
    parts = torch.stack([part.sum(0) for part in X.split(max(math.isqrt(n), 1))])
    sums = length(parts.sum(0)) + gamma(2 * math.isqrt(n) + 4) * length(X.abs().sum(0)) * (1 + gamma(n))
    return rounded_up(rounded_up(sums) / math.sqrt(n) + math.sqrt(scale) * defect) if defect < 1 else math.inf


def _polar_demeaned(V: Float[Tensor, "n c"], groups: Int[Tensor, " n"], scale: float) -> float:
    r"""An upper bound of max { |V^T (X0 u)_+| : |u| <= 1 } = s max { |V^T t_+| : 1^T t = 0, |t| <= 1 }, for any V.

    With c_k >= |v_i| in group k, of n_k <= n / 2 rows, and v_i = 0 outside of groups, |V^T t_+|^2 is at most

        sum_k c_k^2 r_k^2 + t_+^T B t_+,     B_ij = (v_i^T v_j)_+ for i and j in different groups, else 0,

    where r_k is the sum of the positive t_i in group k. The first sum is at most max_k c_k^2 n_k (n - n_k) / n by the
    proof of :func:`closed_form_demeaned`, and the second at most the largest row sum of B.
    """
    unit, n = power_of_two(V), len(V)
    if not math.isfinite(unit) or bool(V[groups < 0].any()):
        return math.inf
    gram, counts = Gram.of(V / unit), torch.bincount(groups[groups >= 0], minlength=1).to(torch.float64)
    if bool((2 * counts > n).any()):
        return math.inf
    apart = groups[:, None] != groups
    B = (gram.G.clamp(min=0) + gram.error * torch.outer(gram.sizes, gram.sizes)) * apart
    own = (gram.sizes.square() * (counts * (n - counts) / n)[groups.clamp(min=0)]).max()
    square = float(own) + float(B.sum(1).max()) * (1 + gamma(n + 4))
    return rounded_up(math.sqrt(rounded_up(square)) * math.sqrt(scale) * unit)


def _network(problem: ReluProblem, atoms: Atoms, polar: Callable[[Tensor], float], tol: float) -> ClosedForm:
    """Soft-threshold the atoms; (X X^T p_k)_+ = lambda_k p_k, so an amplitude a costs beta a / sqrt(lambda_k)."""
    X, P, G, sigma = problem.X.to(torch.float64), atoms.lengths, atoms.directions, atoms.sigma
    hidden = P @ X
    root = torch.linalg.vector_norm(hidden, dim=1)
    tau = problem.beta / root
    active = sigma > tau
    size = ((sigma - tau) / root).clamp(min=0).sqrt()[active, None]
    V = atoms.rest - (P.T * torch.minimum(sigma, tau)) @ G
    if problem.datafit.intercept and float(V.sum(0).abs().max()) > tol * float(V.abs().sum()):
        return _refused(problem, "with an intercept the residual must sum to zero, and it does not.")
    objective = torch.where(active, tau * sigma - tau**2 / 2, sigma**2 / 2).sum() + atoms.rest.square().sum() / 2
    neurons, weights = size * hidden[active] / root[active, None], size * G[active]
    return ClosedForm(True, atoms.name, neurons, weights, float(objective), V, polar(V))


def refusal(problem: ReluProblem, tol: float = 1e-8) -> str | None:
    """Which hypothesis on loss, weights or samples fails, for any beta; see :func:`closed_form`."""
    gram = problem.X.to(torch.float64) @ problem.X.to(torch.float64).T
    return _refusal_of_data(problem) or _refusal_of_gram(gram, float(gram.diagonal().mean()), tol)


def _refusal_of_data(problem: ReluProblem) -> str | None:
    problem.check_plain("the closed form")
    fit = problem.datafit
    if not fit.loss.half_square:
        return f"the closed form needs the squared loss, got {fit.loss.name}."
    if fit.weight is not None and bool((fit.weight != 1).any()):
        return "the closed form knows no sample weights."
    return None if bool(problem.X.any()) else "X is zero."


def _refusal_of_gram(gram: Tensor, scale: float, tol: float) -> str | None:
    eye = torch.eye(len(gram), dtype=gram.dtype)
    defect = _distance(gram, scale, eye)
    if defect <= tol:
        return None
    advice = "Whiten with ZCAWhitening, which needs n <= d."
    if len(gram) > 1 and _distance(gram, scale * len(gram) / (len(gram) - 1), eye - 1 / len(gram)) <= tol:
        advice = "X is de-meaned: append the constant column s / sqrt(n), or use closed_form_demeaned."
    return f"X X^T is not a multiple of the identity: relative defect {defect:.1e}. {advice}"


def _distance(gram: Tensor, scale: float, model: Tensor) -> float:
    return float(torch.linalg.matrix_norm(gram / scale - model)) if scale > 0 else math.inf


def _at_most_half_and_constant(P: Tensor, tol: float) -> bool:
    """Whether every p_k is constant on its support, of at most half the samples."""
    counts = (P > 0).sum(1)
    level = counts.to(P.dtype).rsqrt()[:, None]
    constant = bool(((P == 0) | ((P - level).abs() <= tol * level)).all())
    return constant and bool((2 * counts <= P.shape[1]).all())


def _refused(problem: ReluProblem, reason: str) -> ClosedForm:
    X, Y = problem.X.to(torch.float64), problem.datafit.targets.to(torch.float64)
    none = torch.zeros_like(Y)
    return ClosedForm(False, reason, X[:0], Y[:0], math.nan, none, 0.0)
