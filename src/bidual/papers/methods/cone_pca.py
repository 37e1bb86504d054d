"""The steepest direction in the cone of an activation pattern: cone-constrained PCA (CP eq. 2)."""

from functools import lru_cache
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.optimize import lsq_linear

from bidual.numerics.linear_algebra import nonnegative_multipliers
from bidual.patterns.cones import PatternCone

_MOST_FACES = 20_000  # subsets of facets up to which all faces of a cone are tried
_OUTSIDE = 1e-9  # how far outside the cone a unit vector counts as inside


class Steepest(NamedTuple):
    """Unit directions in a cone, best first, with their values |G^T t|, and a proved upper bound of all values."""

    directions: Float[ndarray, "q k"]
    values: Float[ndarray, " q"]
    upper: float


def steepest(cone: PatternCone, G: Float[ndarray, "k c"], seeds: Float[ndarray, "q k"]) -> Steepest:
    r"""max |G^T t| over unit t in the cone, CP eq. (2) with R = G G^T.

    Exactly, if G is a vector or the cone has few faces; otherwise by a local search from ``seeds`` and the singular
    vectors of G, with the spectral norm as upper bound.
    """
    if G.shape[1] == 1:
        return _by_projection(cone, G)
    if _n_subsets(cone) <= _MOST_FACES:
        return _by_faces(cone, G)
    return _by_search(cone, G, seeds)


def _by_projection(cone: PatternCone, G: Float[ndarray, "k 1"]) -> Steepest:
    """max of g^T t over the unit ball of a cone is the length of the projection of g."""
    ends = np.stack([project(cone, G[:, 0]), project(cone, -G[:, 0])])
    values = np.linalg.norm(ends, axis=1)
    inside = values > 1e-12 * np.linalg.norm(G)
    return _ranked(ends[inside] / values[inside, None], G, float(values.max()))


def _by_faces(cone: PatternCone, G: Float[ndarray, "k c"]) -> Steepest:
    r"""A steepest direction inside a face is a top eigenvector of G G^T on its span, as local maxima on a sphere are.

    Where that eigenvalue is repeated, so that another eigenvector may lie outside, a smaller face has it too.
    """
    found = [_inside(cone, _top_directions(B, G)) for B in _face_spans(cone)]
    directions = np.concatenate(found)
    upper = float(np.linalg.norm(directions @ G, axis=1).max(initial=0.0))
    onto = np.stack([project(cone, t) for t in _best(directions, G)]) if len(directions) else directions
    return _ranked(onto / np.linalg.norm(onto, axis=1, keepdims=True), G, upper * (1 + 1e-12))


def _by_search(cone: PatternCone, G: Float[ndarray, "k c"], seeds: Float[ndarray, "q k"], steps: int = 50) -> Steepest:
    """Power iterations t <- projection of G G^T t, which climb, from every seed."""
    left, values, _ = np.linalg.svd(G, full_matrices=False)
    found = []
    for t in np.concatenate([left.T, -left.T, _best(seeds, G, 6)]):
        for _ in range(steps):
            onto = project(cone, G @ (G.T @ t))
            size, last = float(np.linalg.norm(onto)), t
            t = onto / size if size > 1e-12 * values[0] ** 2 else cone.inner
            if np.linalg.norm(t - last) <= 1e-10:
                break
        found.append(t)
    return _ranked(np.stack(found), G, float(values[0]) * (1 + 1e-12))


def project(cone: PatternCone, a: Float[ndarray, " k"]) -> Float[ndarray, " k"]:
    """The nearest point of the cone: a + rows^T l with the l >= 0 that makes it shortest (Moreau)."""
    size = float(np.linalg.norm(a))
    if contains(cone, a, size):
        return a
    nearest = a + cone.rows.T @ nonnegative_multipliers(cone.rows, -a)
    if contains(cone, nearest, size):
        return nearest
    # seen with scipy 1.17: next to a face nnls returned a point far outside the cone
    return a + cone.rows.T @ lsq_linear(cone.rows.T, -a, (0.0, np.inf), method="bvls", tol=1e-14).x


def contains(cone: PatternCone, a: Float[ndarray, " k"], size: float) -> bool:
    """Whether a is in the cone up to the rounding of vectors of the given size."""
    return bool((cone.rows @ a).min(initial=0.0) >= -1e-13 * size)


def _top_directions(B: Float[ndarray, "q k l"], G: Float[ndarray, "k c"]) -> Float[ndarray, "q k"]:
    """The top left singular vector of G on every subspace."""
    on_span = B.mT @ G
    top = np.linalg.eigh(on_span @ on_span.mT).eigenvectors[:, :, -1:]
    return (B @ top)[:, :, 0]


def _inside(cone: PatternCone, directions: Float[ndarray, "q k"]) -> Float[ndarray, "q k"]:
    both = np.concatenate([directions, -directions])
    return both[(both @ cone.rows.T).min(axis=1, initial=0.0) >= -_OUTSIDE]


def _best(directions: Float[ndarray, "q k"], G: Float[ndarray, "k c"], count: int = 20) -> Float[ndarray, "q k"]:
    return directions[np.argsort(-np.linalg.norm(directions @ G, axis=1), kind="stable")[:count]]


def _ranked(directions: Float[ndarray, "q k"], G: Float[ndarray, "k c"], upper: float) -> Steepest:
    best = _best(directions, G, len(directions))
    return Steepest(best, np.linalg.norm(best @ G, axis=1), upper)


def _n_subsets(cone: PatternCone) -> int:
    """How many sets of fewer than k facets there are; every face of the cone is cut out by one of them."""
    f, k = cone.rows.shape
    return sum(comb(f, j) for j in range(min(f, k - 1) + 1))


@lru_cache(maxsize=1)  # a recovery asks many times about one cone
def _face_spans(cone: PatternCone) -> list[Float[ndarray, "q k l"]]:
    """Orthonormal bases of the subspaces that j facets cut out, for every set of j < k facets, by j."""
    f, k = cone.rows.shape
    spans = [np.eye(k)[None]]
    for j in range(1, min(f, k - 1) + 1):
        normals = cone.rows[np.array(list(combinations(range(f), j)))]
        spans.append(np.linalg.qr(normals.mT, mode="complete").Q[:, :, j:])
    return spans
