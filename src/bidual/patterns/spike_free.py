"""An exact polynomial-time test whether a data matrix is spike-free (CP eq. 7), with a witness where it is not."""

import math
from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float, Int
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from bidual.gauges.base import Bracket
from bidual.numerics.eigenvalue_bounds import least_eigenvalues
from bidual.numerics.gram import Gram
from bidual.numerics.rounding import TINY, gamma, length, rounded_up
from bidual.patterns.row_directions import direction_groups, exactly_aligned, representatives, unit_rows

_EPS = torch.finfo(torch.float64).eps
_UNIT_ROUNDINGS = 3  # of an entry of a unit row: x_ij / max_j |x_ij|, and that over the length of the scaled row


@dataclass(frozen=True, eq=False)
class Witness:
    r"""A neuron u and a functional z with z^T (X u)_+ > |X^T z| |u|.

    If (X u)_+ were X w with |w| <= |u|, then z^T (X u)_+ = (X^T z)^T w <= |X^T z| |u|. No rank has to be decided.
    """

    u: Float[Tensor, " d"]
    z: Float[Tensor, " n"]

    def margin(self, X: Float[Tensor, "n d"]) -> float:
        """z^T (X u)_+ - |X^T z| |u|, less an allowance for rounding; positive proves that X is not spike-free."""
        reach, size = self._sides(X)
        return reach - size

    def length(self, X: Float[Tensor, "n d"]) -> float:
        """A lower bound of the shortest |w| / |u| with X w = (X u)_+."""
        reach, size = self._sides(X)
        return reach / max(size, _EPS * reach) * (1 - 4 * _EPS)

    def lifted(self, X: Float[Tensor, "n d"], rows: Int[Tensor, " r"]) -> Self:
        """The witness for X, from this one for the unit directions of some of its rows."""
        z = X.new_zeros(len(X))
        z[rows] = self.z / torch.linalg.vector_norm(X[rows], dim=1)
        return type(self)(self.u / torch.linalg.vector_norm(self.u), z / torch.linalg.vector_norm(z))

    def _sides(self, X: Tensor) -> tuple[float, float]:
        """z^T (X u)_+ rounded down and |X^T z| |u| rounded up: terms go through n + d operations, and n."""
        sizes = X.abs(), self.u.abs(), self.z.abs()
        error, underflow = gamma(sum(X.shape) + 8), X.numel() * TINY
        most = float(sizes[2] @ (sizes[0] @ sizes[1]))
        reach = float(self.z @ (X @ self.u).clamp(min=0)) - error * most - underflow
        across = length(X.T @ self.z) + error * length(sizes[0].T @ sizes[2]) + underflow
        return reach, across * length(self.u) * (1 + 4 * _EPS)


@dataclass(frozen=True, eq=False)
class SpikeFree:
    r"""Whether CP eq. (7) holds, {(X u)_+ : |u| <= 1} = {X u : |u| <= 1} ∩ R^n_+.

    Attributes:
        holds: True, False, or None where rounding leaves it undecided.
        certain: proved for the given X. A True that is not certain holds up to rounding, or up to ``tol``.
        reason: one sentence.
        spike: brackets max over |u| <= 1 of the shortest |w| with X w = (X u)_+, which is 1 for spike-free matrices and
            infinity where (X u)_+ leaves the range. The polar of the ReLU gauge is at most ``spike.upper`` times
            max { |V^T X u| : |u| <= 1, X u >= 0 }.
        witness: proves a False.
        moved: where it is not zero, ``spike.upper`` is that of another matrix X', whose rows are off by at most
            ``moved`` |x_i|: rows that have one direction up to rounding have it exactly in X'.
    """

    holds: bool | None
    certain: bool
    reason: str
    spike: Bracket
    witness: Witness | None = None
    moved: float = 0.0


def is_spike_free(X: Float[Tensor, "n d"], tol: float = 1e-9) -> SpikeFree:
    r"""Decide CP eq. (7) from the inverse Gram matrix of the directions of the rows.

    Every X u >= 0 is its own positive part, so (7) holds if each (X u)_+ has a preimage of length <= |u|.

    1. A subspace of R^n that contains its positive parts is spanned by non-negative vectors of disjoint support. So
       (X u)_+ stays in the range of X exactly when the directions t_1, ..., t_r of the nonzero rows, rows of one
       direction counted once, are linearly independent (opposite rows are not).
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
    labels = direction_groups(X)
    rows = representatives(labels)
    T, moved = unit_rows(X)[rows], _distance(X, labels, rows)
    if len(T) <= 1:
        return SpikeFree(True, moved == 0, "all rows are zero or point one way.", Bracket(1.0, 1.0), moved=moved)
    inverse = _inverse_gram(T) if len(T) <= X.shape[1] else None
    if inverse is None:
        return _dependent(X, T, rows)
    return _independent(X, T, rows, *inverse, moved, tol)


def _distance(X: Tensor, labels: Tensor, rows: Tensor) -> float:
    """The largest relative distance of a row to the multiples of its representative; 0 only if proved."""
    taken = (labels >= 0).nonzero()[:, 0]
    others = rows[labels[taken]]
    taken, others = taken[taken != others], others[taken != others]
    parallel = exactly_aligned(X[taken], X[others])
    if bool(parallel.all()):
        return 0.0
    apart = unit_rows(X[taken[~parallel]]) - unit_rows(X[others[~parallel]])
    distance = float(torch.linalg.vector_norm(apart, dim=1).max()) * (1 + gamma(X.shape[1] + 8))
    return rounded_up(distance + gamma(4 * _UNIT_ROUNDINGS))


def _dependent(X: Tensor, T: Tensor, rows: Tensor) -> SpikeFree:
    """Step 1 fails, or nearly: search for a neuron whose positive part leaves the range of X."""
    witness = _outside_range(T).lifted(X, rows)
    if witness.margin(X) > 0:
        reason = f"the {len(T)} directions of the rows are linearly dependent: a positive part leaves the range of X."
        return SpikeFree(False, True, reason, Bracket(witness.length(X), math.inf), witness)
    reason = "the directions of the rows are linearly dependent up to rounding: not decided."
    return SpikeFree(None, False, reason, Bracket(1.0, math.inf))


def _independent(X: Tensor, T: Tensor, rows: Tensor, H: Tensor, error: float, moved: float, tol: float) -> SpikeFree:
    """Step 2: the signs of the inverse Gram matrix H, known up to ``error``.

    They are those of M = diag(s) H diag(s) for any s > 0, which is computed up to four roundings.
    """
    coupled, scale = _coupled(X[rows]), H.diagonal().rsqrt()
    M = H * scale * scale[:, None] * coupled
    slack = (2 * error * scale * scale[:, None] + gamma(8) * M.abs()) * coupled
    positive = (M + slack).fill_diagonal_(0).clamp(min=0)
    if not bool(positive.any()):
        reason = "the inverse Gram matrix of the rows has no positive entry off its diagonal."
        return SpikeFree(True, moved == 0, reason, Bracket(1.0, 1.0), moved=moved)
    upper = _largest_spike(M, positive, slack)
    if upper <= 1 + tol:
        reason = f"no positive part needs a longer preimage than its neuron by more than a factor 1 + {upper - 1:.1e}."
        return SpikeFree(True, False, reason, Bracket(1.0, upper), moved=moved)
    witness = _partial_correlation(T, H).lifted(X, rows)
    if witness.margin(X) > 0:
        reason = "two rows have a negative partial correlation: a positive part needs a longer preimage."
        return SpikeFree(False, True, reason, Bracket(witness.length(X), upper), witness, moved)
    return SpikeFree(None, False, "the signs are lost in rounding: not decided.", Bracket(1.0, upper), moved=moved)


def _inverse_gram(T: Tensor) -> tuple[Tensor, float] | None:
    r"""H = (T T^T)^-1 and a bound of the error of its entries, or None if it is not known to one digit.

    T holds the directions of rows up to three roundings an entry, and H is that of the exact ones. With G H = I + E for
    the exact G and the computed H, |H - G^-1| <= |H| |E| / (1 - |E|), in the norm of largest row sums. E differs from
    the computed one by |G - computed G| |H| and by gamma_(r+2) (|G| |H| + 1).
    """
    gram = Gram.of(T, _UNIT_ROUNDINGS)
    H, failed = torch.linalg.inv_ex(gram.G)
    if int(failed) or not bool(torch.isfinite(H).all()):
        return None
    H, r = (H + H.T) / 2, len(T)
    size, spread = _row_sum(H), gram.error * float(gram.sizes.max() * gram.sizes.sum()) * (1 + gamma(r + 4))
    rounding = spread * size + gamma(r + 2) * (gram.largest_row_sum * size + 1)
    residual = rounded_up(_row_sum(gram.G @ H - torch.eye(r, dtype=T.dtype)) + rounding)
    error = rounded_up(size * residual / (1 - residual)) if residual < 0.1 else math.inf
    return (H, error) if error < 0.1 * float(H.diagonal().min()) else None


def _row_sum(A: Tensor) -> float:
    """The largest sum of absolute values in a row, rounded up."""
    return rounded_up(float(A.abs().sum(1).max()) * (1 + gamma(A.shape[1] + 4)))


def _coupled(X: Tensor) -> Tensor:
    """1 where rows are linked by chains of overlapping supports; elsewhere H_ij = 0 without rounding."""
    support = (X != 0).to(torch.float64)
    _, chain = connected_components((support @ support.T).numpy(), directed=False)
    return torch.from_numpy(chain[:, None] == chain).to(X.dtype)


def _largest_spike(M: Tensor, positive: Tensor, slack: Tensor) -> float:
    r"""1 / sqrt(1 - (pi / lambda)^2) with pi >= |positive part of M off its diagonal|, lambda <= lambda_min(M).

    2 p^T M q <= 2 pi |p| |q| <= (pi / lambda)^2 p^T M p + q^T M q, so t^T M t >= (1 - (pi / lambda)^2) p^T M p. The
    exact M is within ``slack`` in every entry, and so within its largest row sum.
    """
    smallest = _least_eigenvalue(M) - _row_sum(slack)
    square = rounded_up((_row_sum(positive) / smallest) ** 2) if smallest > 0 else math.inf
    return rounded_up(1 / math.sqrt(1 - square)) if square < 1 else math.inf


def _least_eigenvalue(M: Tensor) -> float:
    """A lower bound: Gershgorin's where M is nearly the identity, which is cheap, and a proved one elsewhere."""
    by_rows = 2 * float(M.diagonal().min()) - _row_sum(M)
    return by_rows - gamma(8) if by_rows > 0.5 else float(least_eigenvalues(M[None])[0])


def _partial_correlation(T: Float[Tensor, "r d"], H: Float[Tensor, "r r"]) -> Witness:
    r"""T u = e_i - (H_ij / H_jj) e_j for the pair with the largest H_ij / sqrt(H_ii H_jj); H = (T T^T)^-1.

    If that is rho > 0, the shortest preimage of (T u)_+ = e_i is longer than u by the factor 1 / sqrt(1 - rho^2).
    """
    scale = H.diagonal().rsqrt()
    best = int((H * scale * scale[:, None]).fill_diagonal_(-2).argmax())
    i, j = divmod(best, len(H))
    target = torch.zeros_like(H[0])
    target[i], target[j] = 1.0, -H[i, j] / H[j, j]
    return Witness(T.T @ (H @ target), H[i].clone())


def _outside_range(T: Float[Tensor, "r d"]) -> Witness:
    r"""The neuron, among candidates, whose positive part is farthest from the range of T, which has dependent rows.

    With Q an orthonormal basis of the range, f(u) = (I - Q Q^T)(T u)_+ is piecewise linear and changes its slope across
    the hyperplane of any row i that takes part in a dependency. So f is not zero at all three of u0 and u0 ± s t_i,
    where u0 lies on that hyperplane only and s is too small to cross another one.
    """
    basis, values, rows = torch.linalg.svd(T, full_matrices=False)
    kept = values > max(T.shape) * _EPS * values[0]
    Q, W = basis[:, kept], rows[kept]
    generator = torch.Generator().manual_seed(0)
    trials = [torch.randn(32, len(W), generator=generator, dtype=T.dtype) @ W, T[:32]]
    for i in Q.square().sum(1).argsort()[:8].tolist():
        trials.append(_across(T, i, torch.randn(len(W), generator=generator, dtype=T.dtype) @ W))
    U = torch.cat(trials)
    P = (T @ U.T).clamp(min=0) / torch.linalg.vector_norm(U, dim=1).clamp(min=torch.finfo(T.dtype).tiny)
    residual = P - Q @ (Q.T @ P)
    best = int(torch.linalg.vector_norm(residual, dim=0).argmax())
    return Witness(U[best], residual[:, best])


def _across(T: Tensor, i: int, direction: Tensor) -> Tensor:
    """Three points on and beside the hyperplane of row i, with no other hyperplane between them."""
    on = direction - (T[i] @ direction) * T[i]
    heights, slopes = (T @ on).abs(), (T @ T[i]).abs()
    crossed = (slopes > _EPS) & (heights > 1e3 * _EPS)
    step = 0.5 * float((heights / slopes)[crossed].min()) if bool(crossed.any()) else 1.0
    return torch.stack([on + step * T[i], on - step * T[i], on])
