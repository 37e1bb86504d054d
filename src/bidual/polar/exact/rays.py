"""Arrangements of hyperplanes in whole numbers, without rounding: rays, corners under a polyhedral norm, patterns."""

from collections.abc import Iterator
from itertools import combinations, product
from math import comb, gcd

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from torch import Tensor

from bidual.numerics.norms import Norm
from bidual.runtime.memory import available_bytes, human_bytes

Integers = ndarray  # of Python's whole numbers, of any length


def corner_directions(X: Float[Tensor, "n d"], norm: Norm) -> Float[Tensor, "q d"]:
    r"""Directions u of norm one where convex functions peak, one of each pair +-u.

    Let the norm be l1 or linf, and cut R^d by the hyperplanes of X and by the norm's creases (:meth:`Norm.creases`).
    A cell of that arrangement is a cone K with no line in it, since the creases span R^d; on K the pattern is
    constant, and so is the linear function that equals |u|. So K cut to |u| <= 1 is the convex hull of 0 and of K's
    extreme rays cut to norm one. An extreme ray is the kernel of d - 1 independent hyperplanes, spanned by their
    minors of order d - 1. The cells that share a pattern fill its cone, so a function that is convex on every
    activation cone is largest at one of these points.

    Minors are exact, and every entry of a direction is off by its own size times gamma(d + 2), from its division by the
    norm.
    """
    d = X.shape[1]
    check_corners(len(X), d, norm)
    rows = distinct(np.concatenate([whole(X.detach().cpu().double().numpy()), whole(norm.creases(d).numpy())]))
    directions = np.unique(np.concatenate([_directions(part) for part in kernels(rows)]), axis=0)
    return norm.unit(torch.from_numpy(directions))


def corner_count(n: int, d: int, norm: Norm) -> int:
    """The most directions that :func:`corner_directions` computes before those that are equal are dropped."""
    return comb(n + len(norm.creases(d)), d - 1)


def check_corners(n: int, d: int, norm: Norm) -> None:
    """Refuse before any work if the directions would need more memory than is free."""
    rows = n + len(norm.creases(d))
    need = corner_count(n, d, norm) * 8 * (3 * d + 8) + comb(rows, max(d - 2, 0)) * 100 * d * (d + 1)
    there = available_bytes(torch.device("cpu"))
    if need > there:
        raise ValueError(
            f"{n} samples of {d} features have up to {corner_count(n, d, norm):,} corners under the {norm.name} norm, "
            f"whose enumeration would need {human_bytes(need)}, and {human_bytes(there)} are free; use NormSearch."
        )


def whole(X: Float[ndarray, "n d"]) -> Integers:
    """Rows times powers of two as whole numbers, exactly."""
    rows = [[x.as_integer_ratio() for x in row] for row in X.tolist()]
    common = [max((below for _, below in row), default=1) for row in rows]
    numbers = [[above * (top // below) for above, below in row] for row, top in zip(rows, common, strict=True)]
    return np.array(numbers, dtype=object).reshape(X.shape)


def distinct(rows: Integers) -> Integers:
    """One row of every hyperplane, without common divisors and with its first number positive; none of zeros."""
    kept: dict[tuple[int, ...], None] = {}
    for row in rows.tolist():
        divisor = gcd(*row) * (1 if next((x for x in row if x), 1) > 0 else -1)
        if divisor:
            kept[tuple(x // divisor for x in row)] = None
    return np.array(list(kept), dtype=object).reshape(-1, rows.shape[1])


def kernels(rows: Integers) -> Iterator[Integers]:
    """The directions on which d - 1 independent rows vanish, for every choice of them, in parts.

    Their entries are minors of order d - 1 with alternating signs. Those of k rows follow from those of k - 1 by
    expansion along the last row; dependent rows, all of whose minors vanish, go on the way.
    """
    d = rows.shape[1]
    minors, last = np.array([[1]], dtype=object), np.array([-1])
    signs = np.array([(-1) ** j for j in range(d)], dtype=object)
    if d == 1:
        yield minors
    for order in range(1, d):
        parts = ((i, _expanded(minors[last < i], rows[i], order)) for i in range(len(rows)))
        if order == d - 1:
            yield from (part[:, ::-1] * signs for _, part in parts)
        else:
            grown = list(parts)
            minors = np.concatenate([part for _, part in grown])
            last = np.repeat([i for i, _ in grown], [len(part) for _, part in grown])


def _expanded(minors: Integers, row: Integers, order: int) -> Integers:
    """Nonzero minors of an order from those of one order less and a row; columns in the order of combinations."""
    columns = range(len(row))
    place = {chosen: k for k, chosen in enumerate(combinations(columns, order - 1))}
    found = [
        sum((-1) ** k * row[j] * minors[:, place[chosen[:k] + chosen[k + 1 :]]] for k, j in enumerate(chosen))
        for chosen in combinations(columns, order)
    ]
    grown = np.stack(found, 1).astype(object)
    return grown[(grown != 0).any(1)]


def _directions(kernels: Integers) -> Float[ndarray, "q d"]:
    """Over the largest of their entries, each rounded once. The first entry that is not zero is positive, so that equal
    and opposite kernels have equal numbers."""
    u = (kernels / np.abs(kernels).max(1, initial=0, keepdims=True)).astype(np.float64)
    leading = np.take_along_axis(u, (u != 0).argmax(1)[:, None], 1)
    return u * np.sign(leading) + 0.0


def exact_patterns(X: Float[ndarray, "n r"]) -> Bool[ndarray, "p n"]:
    """The patterns 1{X w >= 0} of all open cones, for X of rank r; rows that are zero count as active."""
    used = X.any(1)
    signs = sorted(_signs(whole(X[used])))
    patterns = np.ones((len(signs), len(X)), dtype=bool)
    patterns[:, used] = np.array(signs).reshape(len(signs), -1) > 0
    return patterns


def _signs(rows: Integers) -> set[tuple[int, ...]]:
    """The signs of rows on every cell that they cut R^r into.

    Rows of rank r cut it into cones with no line in them, so that every cell has a ray u, on which r - 1 independent
    rows vanish. Around +-u, rows that do not vanish there have the sign that they have at it, and the others cut the
    quotient of R^r by u, in which a coordinate with u_j != 0 may be left out.
    """
    r = rows.shape[1]
    if len(rows) == r:  # independent
        return set(product((1, -1), repeat=r))
    found: set[tuple[int, ...]] = set()
    for u in distinct(np.concatenate(list(kernels(distinct(rows))))):
        there = np.sign(rows @ u).astype(int)
        zero = there == 0
        for inner in _signs(np.delete(rows[zero], int(np.flatnonzero(u)[0]), axis=1)):
            there[zero] = inner
            found |= {tuple(there.tolist()), tuple(np.where(zero, there, -there).tolist())}
    return found
