"""The arrangement of hyperplanes x_i^T u = 0 in whole numbers, without rounding: its patterns and its rays."""

from collections.abc import Iterator
from itertools import combinations, product
from math import gcd

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

Integers = ndarray  # of Python's whole numbers, of any length


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
    for u in distinct_hyperplanes(np.concatenate(list(kernels(distinct_hyperplanes(rows))))):
        there = np.sign(rows @ u).astype(int)
        zero = there == 0
        for inner in _signs(np.delete(rows[zero], int(np.flatnonzero(u)[0]), axis=1)):
            there[zero] = inner
            found |= {tuple(there.tolist()), tuple(np.where(zero, there, -there).tolist())}
    return found


def whole(X: Float[ndarray, "n d"]) -> Integers:
    """Rows times powers of two as whole numbers, exactly."""
    rows = [[x.as_integer_ratio() for x in row] for row in X.tolist()]
    common = [max((below for _, below in row), default=1) for row in rows]
    numbers = [[above * (top // below) for above, below in row] for row, top in zip(rows, common, strict=True)]
    return np.array(numbers, dtype=object).reshape(X.shape)


def distinct_hyperplanes(rows: Integers) -> Integers:
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
