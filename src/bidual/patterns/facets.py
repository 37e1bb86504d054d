"""The inequalities (2 D_p - I) X u >= 0 that bound the cone of a pattern, without redundant ones."""

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from bidual.numerics.linear_algebra import nonnegative_multipliers

# Unit rows that differ by less than this are one hyperplane, as in the enumeration of patterns.
_SAME = 1e-11


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
