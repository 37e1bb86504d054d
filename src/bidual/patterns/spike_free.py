"""Is a data matrix spike-free (CP eq. 7)? An exact test in polynomial time, with a witness where it is not."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.gauges.base import Bracket
from bidual.patterns.parallel import parallel_groups, representatives, unit_rows
from bidual.patterns.spike_witness import Witness, outside_range, partial_correlation

_EPS = torch.finfo(torch.float64).eps


@dataclass(frozen=True, eq=False)
class SpikeFree:
    r"""The answer to CP eq. (7), {(X u)_+ : |u| <= 1} = {X u : |u| <= 1} ∩ R^n_+.

    Attributes:
        holds: True, False, or None where rounding does not let it be decided.
        certain: proved for X as given. A True that is not certain holds up to rounding, or up to ``tol``.
        reason: one sentence.
        spike: brackets max over |u| <= 1 of the shortest |w| with X w = (X u)_+, which is 1 for spike-free matrices and
            infinity where (X u)_+ leaves the range. The polar of the ReLU gauge is at most ``spike.upper`` times
            max { |V^T X u| : |u| <= 1, X u >= 0 }.
        witness: proves a False.
    """

    holds: bool | None
    certain: bool
    reason: str
    spike: Bracket
    witness: Witness | None = None


def is_spike_free(X: Float[Tensor, "n d"], tol: float = 1e-9) -> SpikeFree:
    r"""Decide CP eq. (7) from the inverse Gram matrix of the directions of the rows.

    Every X u >= 0 is its own positive part, so the question is whether each (X u)_+ has a preimage of length <= |u|.

    1. A subspace of R^n that holds its positive parts is spanned by non-negative vectors of disjoint support. So
       (X u)_+ stays in the range of X exactly when the directions t_1, ..., t_r of the nonzero rows, parallel rows
       counted once, are linearly independent (opposite rows are not).
    2. Then let H = (T T^T)^-1. The shortest preimage of t = T u has |.|^2 = t^T H t, and with t = p - q, p = t_+,
       t^T H t - p^T H p = q^T H q - 2 p^T H q, which is >= 0 for all disjoint p, q >= 0 exactly when H_ij <= 0 for all
       i != j (T T^T is an inverse M-matrix): partial correlations of rows must not be negative.

    Orthogonal rows are the special case H = I: diagonal and whitened X with n <= d.

    Args:
        X: the samples; only their directions matter.
        tol: ``spike.upper`` up to 1 + tol counts as spike-free (then ``certain`` is False). A matrix whitened in
            floating point has orthogonal rows up to rounding only; its spike is 1 up to the square of that.
    """
    if X.ndim != 2 or not X.shape[0] or not bool(torch.isfinite(X).all()):
        raise ValueError(f"X must be a finite matrix with at least one row, got shape {tuple(X.shape)}.")
    X = X.detach().to("cpu", torch.float64)
    labels = parallel_groups(X)
    rows = representatives(labels)
    T = unit_rows(X)[rows]
    merged_exactly = bool((unit_rows(X) == torch.cat([T, torch.zeros_like(X[:1])])[labels]).all())
    if len(T) <= 1:
        return SpikeFree(True, merged_exactly, "all rows are zero or point one way.", Bracket(1.0, 1.0))
    inverse = _inverse_gram(T) if len(T) <= X.shape[1] else None
    if inverse is None:
        return _dependent(X, T, rows)
    return _independent(X, T, rows, *inverse, merged_exactly, tol)


def _dependent(X: Tensor, T: Tensor, rows: Tensor) -> SpikeFree:
    """Step 1 fails, or nearly: look for a neuron whose positive part leaves the range of X."""
    witness = outside_range(T).lifted(X, rows)
    if witness.margin(X) > 0:
        reason = f"the {len(T)} directions of the rows are linearly dependent: a positive part leaves the range of X."
        return SpikeFree(False, True, reason, Bracket(witness.length(X), math.inf), witness)
    reason = "the directions of the rows are linearly dependent up to rounding: not decided."
    return SpikeFree(None, False, reason, Bracket(1.0, math.inf))


def _independent(
    X: Tensor, T: Tensor, rows: Tensor, H: Tensor, error: float, merged_exactly: bool, tol: float
) -> SpikeFree:
    """Step 2: the signs of the inverse Gram matrix H, known up to ``error``."""
    M, slack = _normalised(H), 4 * _normalised(H, error) * _coupled(T)
    positive = (M + slack).fill_diagonal_(0).clamp(min=0)
    if not bool(positive.any()):
        reason = "the inverse Gram matrix of the rows has no positive entry off its diagonal."
        return SpikeFree(True, merged_exactly, reason, Bracket(1.0, 1.0))
    upper = _largest_spike(M, positive, float(slack.max()))
    if upper <= 1 + tol:
        reason = f"no positive part needs a longer preimage than its neuron by more than a factor 1 + {upper - 1:.1e}."
        return SpikeFree(True, False, reason, Bracket(1.0, upper))
    witness = partial_correlation(T, H).lifted(X, rows)
    if witness.margin(X) > 0:
        reason = "two rows have a negative partial correlation: a positive part needs a longer preimage."
        return SpikeFree(False, True, reason, Bracket(witness.length(X), upper), witness)
    return SpikeFree(None, False, "the signs are lost in rounding: not decided.", Bracket(1.0, upper))


def _inverse_gram(T: Tensor) -> tuple[Tensor, float] | None:
    """H = (T T^T)^-1 and a bound of the error of its entries, or None if it is not known to one digit.

    With G H = I + E for the computed H, |H - G^-1| <= |H| |E| / (1 - |E|), in the norm of largest row sums.
    """
    G = T @ T.T
    H, failed = torch.linalg.inv_ex(G)
    if int(failed) or not bool(torch.isfinite(H).all()):
        return None
    H, r = (H + H.T) / 2, len(T)
    size, rounding = _row_sum(H), (4 * math.sqrt(T.shape[1] + r) + 16) * r * _EPS
    residual = _row_sum(G @ H - torch.eye(r, dtype=T.dtype)) + rounding * size
    error = size * residual / (1 - residual) if residual < 0.1 else math.inf
    return (H, error) if error < 0.1 * float(H.diagonal().min()) else None


def _row_sum(A: Tensor) -> float:
    return float(A.abs().sum(1).max())


def _normalised(H: Tensor, entries: Tensor | float | None = None) -> Tensor:
    """H_ij / sqrt(H_ii H_jj), minus the partial correlations off the diagonal; or other entries scaled in that way."""
    scale = H.diagonal().rsqrt()
    return (H if entries is None else entries) * scale * scale[:, None]


def _coupled(T: Tensor) -> Tensor:
    """1 where rows are linked by chains of overlapping supports; elsewhere H_ij = 0 without rounding."""
    linked = T.abs() @ T.abs().T > 0
    for _ in range(max(len(T) - 1, 1).bit_length()):
        wider = linked.to(T.dtype) @ linked.to(T.dtype) > 0
        if bool((wider == linked).all()):
            break
        linked = wider
    return linked.to(T.dtype)


def _largest_spike(M: Tensor, positive: Tensor, slack: float) -> float:
    r"""1 / sqrt(1 - (pi / lambda)^2) with pi >= |positive part of M off its diagonal|, lambda <= lambda_min(M).

    2 p^T M q <= 2 pi |p| |q| <= (pi / lambda)^2 p^T M p + q^T M q, so t^T M t >= (1 - (pi / lambda)^2) p^T M p.
    """
    smallest = _least_eigenvalue(M) - len(M) * (slack + 16 * _EPS * float(M.abs().max()))
    ratio = min(_row_sum(positive), float(torch.linalg.matrix_norm(positive))) * (1 + len(M) * _EPS)
    ratio = ratio / smallest if smallest > 0 else math.inf
    return 1 / math.sqrt(1 - ratio**2) + 4 * _EPS if ratio < 1 else math.inf


def _least_eigenvalue(M: Tensor) -> float:
    """A lower bound: Gershgorin's where M is nearly the identity, which is cheap, and LAPACK's elsewhere."""
    by_rows = 2 - _row_sum(M)  # the diagonal is 1
    return by_rows if by_rows > 0.5 else float(torch.linalg.eigvalsh(M)[0])
