"""The cones (2 D - I) X u >= 0 of activation patterns D: needed inequalities, facets, least squares over many cones."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.optimize import linprog
from torch import Tensor

from bidual.numerics.linear_algebra import nonnegative_multipliers

_SAME = 1e-11  # unit rows that differ by less are one hyperplane, as in the enumeration of patterns
_PASSES = 40  # the most exchanges per constraint


def needed_rows(
    X: Float[ndarray, "n d"], patterns: Bool[ndarray, "p n"], *, complete: bool = False
) -> Bool[ndarray, "p n"]:
    """The rows of X that bound the cone of every pattern, without zero rows and repeated hyperplanes.

    With ``complete`` the caller guarantees that the list holds every pattern of X. Then a hyperplane bounds a cone
    exactly if the pattern on its other side is in the list too, since two cones that one hyperplane alone separates
    share a facet: only irredundant rows are left, about 2 d of n on average.
    """
    leader, side, nonzero = hyperplanes(X)
    towards = np.where(patterns, side, -side)
    first = leader == np.arange(len(X))
    needed = nonzero & (first | (towards != towards[:, leader]))
    if complete:
        lines = np.flatnonzero(first & nonzero)
        needed[:, lines] &= _has_neighbour(patterns[:, lines])
    return needed


def hyperplanes(
    X: Float[ndarray, "n d"], same: float = _SAME
) -> tuple[Int[ndarray, " n"], Int[ndarray, " n"], Bool[ndarray, " n"]]:
    """For every row the first row on the same line, whether it points to the same side (+1, -1), and if it is not zero.

    Unit rows within ``same`` (up to 1e-5) are on one line, rows below 1e-11 of the longest are zero.
    """
    length = np.linalg.norm(X, axis=1)
    nonzero = length > _SAME * length.max(initial=0.0)
    unit = X / np.where(nonzero, length, np.inf)[:, None]
    leader, side = np.arange(len(X)), np.ones(len(X), dtype=np.int64)
    cosine = unit @ unit.T
    for i, j in np.argwhere(np.triu(np.abs(cosine) > 1 - 1e-9, 1)):
        sign = 1 if cosine[i, j] > 0 else -1
        if leader[i] == i and leader[j] == j and np.linalg.norm(unit[i] - sign * unit[j]) <= same:
            leader[j], side[j] = i, sign
    return leader, side, nonzero


def _has_neighbour(patterns: Bool[ndarray, "p l"]) -> Bool[ndarray, "p l"]:
    """Whether a pattern with one bit flipped is in the list or opposite to one, by 64-bit hashes that flip by xor."""
    bits = np.random.default_rng(0).integers(1, 2**63, patterns.shape[1], dtype=np.uint64)
    code = np.bitwise_xor.reduce(np.where(patterns, bits, np.uint64(0)), axis=1)
    known = np.concatenate([code, code ^ np.bitwise_xor.reduce(bits)])
    return np.isin(code[:, None] ^ bits, known)


@dataclass(frozen=True, eq=False)
class PatternCone:
    r"""K = { u : (2 D - I) X u >= 0 } as { basis t : rows t >= 0 }, full-dimensional in the coordinates t.

    Attributes:
        rows: (f, k), one unit normal per facet.
        basis: (d, k), orthonormal, spans K.
        inner: (k,), a direction in the interior.
    """

    rows: Float[ndarray, "f k"]
    basis: Float[ndarray, "d k"]
    inner: Float[ndarray, " k"]


def pattern_cone(X: Float[ndarray, "n d"], pattern: Bool[ndarray, " n"]) -> PatternCone:
    """The cone of a pattern in coordinates of its span, without redundant inequalities."""
    length = np.linalg.norm(X, axis=1)
    A = (np.where(pattern, 1.0, -1.0) / np.where(length > 0, length, 1.0))[:, None] * X
    A = A[length > 0]
    u, strict = _relative_interior(A)
    basis = _null_basis(A[~strict])
    inner = basis.T @ u
    return PatternCone(irredundant(A[strict] @ basis), basis, inner / max(float(np.linalg.norm(inner)), 1e-300))


def facet_normals(X: Float[ndarray, "n d"], pattern: Bool[ndarray, " n"]) -> Float[ndarray, "f d"]:
    """Unit normals of the facets of a cone; of both signs for every equation of a cone without interior."""
    cone = pattern_cone(X, pattern)
    span = np.linalg.qr(cone.basis, mode="complete").Q[:, cone.basis.shape[1] :].T  # where the cone is flat
    return np.concatenate([cone.rows @ cone.basis.T, span, -span])


def _relative_interior(A: Float[ndarray, "n d"]) -> tuple[Float[ndarray, " d"], Bool[ndarray, " n"]]:
    """A point of { A u >= 0 } at which as many rows as possible are positive, and which: max sum t, A u >= t <= 1."""
    n, d = A.shape
    if not n:
        return np.ones(d), np.zeros(0, dtype=bool)
    bounds = [(None, None)] * d + [(0.0, 1.0)] * n
    cost = np.concatenate([np.zeros(d), -np.ones(n)])
    for method in ("highs", "highs-ipm", "highs-ds"):
        answer = linprog(cost, A_ub=np.hstack([-A, np.eye(n)]), b_ub=np.zeros(n), bounds=bounds, method=method)
        if answer.x is not None:
            return answer.x[:d], answer.x[d:] > 0.5
    raise FloatingPointError(f"no interior point of the cone of {n} rows was found: {answer.message}")


def _null_basis(A: Float[ndarray, "q d"]) -> Float[ndarray, "d k"]:
    if not len(A):
        return np.eye(A.shape[1])
    _, values, right = np.linalg.svd(A)
    return right[int((values > 1e-11 * values[0]).sum()) :].T


def irredundant(A: Float[ndarray, "k d"]) -> Float[ndarray, "f d"]:
    """The rows of A, at unit length, without those that follow from the others in A u >= 0.

    By Farkas' lemma a row follows exactly if it is a non-negative combination of the others.
    """
    length = np.linalg.norm(A, axis=1, keepdims=True)
    A = (A / np.where(length > 0, length, 1.0))[length[:, 0] > _SAME * length.max(initial=0.0)]
    kept = list(range(len(A)))
    for row in range(len(A)):
        others = [i for i in kept if i != row]
        if others:  # the residual is computed here: scipy's may be wrong
            combined = A[others].T @ nonnegative_multipliers(A[others], A[row])
            kept = others if np.linalg.norm(combined - A[row]) <= _SAME else kept
    return A[kept]


def non_negative_least_squares(A: Float[Tensor, "q d f"], b: Float[Tensor, "q d"]) -> Float[Tensor, "q f"]:
    """argmin |A x - b| over x >= 0 for many (A, b), by the active sets of Lawson and Hanson (1974), all in step.

    In every pass a problem either frees its steepest variable, or moves towards the least squares solution on its free
    variables until one of them is zero again. The free columns stay independent.
    """
    q, _, f = A.shape
    x, free = b.new_zeros(q, f), torch.zeros(q, f, dtype=torch.bool, device=b.device)
    flat = 64 * torch.finfo(b.dtype).eps * torch.linalg.vector_norm(b, dim=1) * torch.linalg.matrix_norm(A)
    open_ = torch.arange(q, device=b.device)
    for _ in range(_PASSES * max(f, 1)):
        x[open_], free[open_], done = _exchange(A[open_], b[open_], x[open_], free[open_], flat[open_])
        open_ = open_[~done]
        if not len(open_):
            return x
    raise FloatingPointError(f"{len(open_)} projections found no face after {_PASSES} exchanges per constraint.")


def _exchange(
    A: Float[Tensor, "q d f"],
    b: Float[Tensor, "q d"],
    x: Float[Tensor, "q f"],
    free: Bool[Tensor, "q f"],
    flat: Float[Tensor, " q"],
) -> tuple[Float[Tensor, "q f"], Bool[Tensor, "q f"], Bool[Tensor, " q"]]:
    """One pass: x, the free variables, and which problems are solved."""
    shortest = torch.linalg.pinv(A * free[:, None, :], rtol=1e-13) @ b[:, :, None]
    target = torch.where(free, shortest[:, :, 0], 0.0)
    blocked = free & (target <= 0)
    ratio = torch.where(blocked, x / (x - target).clamp(min=torch.finfo(x.dtype).tiny), 1.0)
    step = ratio.amin(1, keepdim=True)
    x = torch.where(free, x + step * (target - x), 0.0).clamp(min=0)
    inside = ~blocked.any(1)
    leaving = blocked & (ratio <= step)
    x, free = torch.where(leaving, 0.0, x), free & ~leaving
    slope = (A.mT @ (b - (A @ x[:, :, None])[:, :, 0])[:, :, None])[:, :, 0]
    slope = torch.where(free, -torch.inf, slope)
    steepest = slope.amax(1)
    done = inside & (steepest <= flat)
    enters = torch.nn.functional.one_hot(slope.argmax(1), x.shape[1]).bool() & (inside & ~done)[:, None]
    return x, free | enters, done
