"""All activation patterns of a few samples, in whole numbers: none is missed, however thin its cone."""

from itertools import product

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from bidual.polar.exact.rays import Integers, distinct, kernels, whole


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
