"""CP Theorem 2 on de-meaned whitened data, to which it does not apply as printed: the right formula."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bidual.numerics.gram import Gram, norm_bound, power_of_two
from bidual.numerics.rounding import gamma, length, rounded_up
from bidual.problems.problem import ReluProblem
from bidual.training.relu.closed_form import ClosedForm, class_atoms, distance, refusal_of_data, refused, thresholded

_EXACT = 1e-12  # angles and entries of Y that the proof takes as exact


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
    if reason := refusal_of_data(problem):
        return refused(problem, reason)
    X, Y = problem.X.to(torch.float64), problem.datafit.targets.to(torch.float64)
    n, gram = len(X), X @ X.T
    scale = float(gram.diagonal().sum()) / max(n - 1, 1)
    defect = distance(gram, scale, torch.eye(n, dtype=X.dtype) - 1 / n)
    if not defect <= tol:
        return refused(problem, f"X X^T is not a multiple of I - 1 1^T / n: relative defect {defect:.1e}.")
    atoms = class_atoms(Y, _EXACT)
    if atoms is None or not _at_most_half_and_constant(atoms.lengths, _EXACT):
        return refused(problem, "Y is not constant on groups of at most n / 2 samples without acute angles.")
    moved = _distance_to_demeaned(X, scale)
    groups = torch.where(atoms.lengths.any(0), atoms.lengths.argmax(0), -1)
    polar = lambda V: rounded_up(_polar_demeaned(V, groups, scale) + moved * norm_bound(V))  # noqa: E731
    return thresholded(problem, atoms, polar, tol)


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


def _at_most_half_and_constant(P: Tensor, tol: float) -> bool:
    """Whether every p_k is constant on its support, of at most half the samples."""
    counts = (P > 0).sum(1)
    level = counts.to(P.dtype).rsqrt()[:, None]
    constant = bool(((P == 0) | ((P - level).abs() <= tol * level)).all())
    return constant and bool((2 * counts <= P.shape[1]).all())
