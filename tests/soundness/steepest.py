"""The steepest neuron by long search, evaluated in extended precision: what bounds of polars are held against."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy import ndarray
from numpy.random import Generator

from bidual.polar import LocalSearch, RidgeSearch
from soundness.extended import relu_features, vector_norm, wide

_ROUNDING = np.longdouble(2.0) ** -63
_UNDERFLOW = np.longdouble(2.0) ** -1022  # what certificates add per number of V, below which no oracle need look
_POLISHED = 5  # directions, best first
_NEAR = (0.0, 1e-13, 1e-10, 1e-7)  # rows that vanish up to this are made to vanish
_TURNS = 12  # of the power method
Value = Callable[[ndarray], ndarray]


def steepest(
    X: ndarray,
    V: ndarray,
    directions: ndarray,
    norms: tuple[float, float] = (2.0, 2.0),
    creases: ndarray | None = None,
) -> np.longdouble:
    """A lower bound of max |V^T (X u)_+|_R* / |u|_C, which the best direction that was found attains.

    ``norms`` are the orders of C and R*; ``creases`` are hyperplanes on which the norm C has its corners.
    """
    lengths = vector_norm(wide(X), 2.0)
    rows = wide(X) / np.where(lengths > 0, lengths, 1)[:, None]
    slopes = wide(V) * lengths[:, None]
    value = _value(rows, slopes, norms)
    U = wide(directions)
    U = U[np.isfinite(U).all(1) & (np.abs(U).max(1, initial=0) > 0)]
    if not len(U):
        return np.longdouble(0)
    reached = value(U)
    best = reached.max()
    walls = rows if creases is None else np.concatenate([rows, _units(wide(creases))])
    for u in U[np.argsort(-reached)[:_POLISHED]]:
        for moved in _polished(rows, slopes, u, walls):
            best = max(best, value(moved[None])[0])
    size = (lengths * np.abs(wide(V)).sum(1)).sum() * np.sqrt(np.longdouble(X.shape[1]))
    error = (sum(X.shape) + V.shape[1] + 16) * _ROUNDING * size + 4 * V.size * _UNDERFLOW
    return max(best - error, np.longdouble(0))


def _value(X: ndarray, V: ndarray, norms: tuple[float, float]) -> Value:
    return lambda U: vector_norm(relu_features(X, U).T @ V, norms[1]) / vector_norm(U, norms[0])


def _polished(X: ndarray, V: ndarray, u: ndarray, walls: ndarray) -> Iterator[ndarray]:
    """Directions near u: on the ridges it nearly lies on, and up the form of its pattern within them."""
    for near in _NEAR:
        u = u / vector_norm(u, 2.0)
        flat = _flat(walls, u, near)
        moved = u - flat.T @ (flat @ u)
        if not vector_norm(moved, 2.0) > 0.1:
            continue
        yield moved
        on = (X @ moved > max(near, 1e-17))[:, None]
        G = (V * on).T @ X
        for _ in range(_TURNS):
            moved = G.T @ (G @ moved)
            moved = moved - flat.T @ (flat @ moved)
            size = vector_norm(moved, 2.0)
            if not size > 0:
                break
            moved = moved / size
            yield moved


def _flat(walls: ndarray, u: ndarray, near: float) -> ndarray:
    """An orthonormal basis of the rows that nearly vanish at u, at most one less than there are dimensions."""
    at = np.abs(walls @ u)
    order = [i for i in np.argsort(at) if at[i] <= near and walls[i].any()]
    basis = np.zeros((0, len(u)), dtype=walls.dtype)
    for i in order:
        rest = walls[i] - basis.T @ (basis @ walls[i])
        rest = rest - basis.T @ (basis @ rest)
        size = vector_norm(rest, 2.0)
        if size > 1e-6 and len(basis) < len(u) - 1:
            basis = np.concatenate([basis, (rest / size)[None]])
    return basis


def _units(X: ndarray) -> ndarray:
    size = vector_norm(X, 2.0)
    return X / np.where(size > 0, size, 1)[:, None]


def directions_of(rng: Generator, X: ndarray, V: ndarray, *more: ndarray) -> ndarray:
    """Where to look: what searches find, the samples, drawn ones, ridges of pairs of rows, and what is given."""
    d = X.shape[1]
    rows = X / np.maximum(np.abs(X).max(1, keepdims=True), 1e-320)
    unit = rows[np.isfinite(rows).all(1) & rows.any(1)][:40]
    parts = [unit, -unit, rng.standard_normal((64, d)), *more, *searched(X, V)]
    if d == 2:
        parts += [_in_the_plane(unit), -_in_the_plane(unit)]
    elif len(unit) >= d - 1 > 0:
        parts += [_rays(rng, unit)]
    return np.concatenate(parts)


def searched(X: ndarray, V: ndarray) -> list[ndarray]:
    """The neurons that the package's searches climb to, best first."""
    scale = np.abs(V).max(initial=0) or 1.0
    asked = torch.from_numpy(X), torch.from_numpy(V / scale)
    makes = (lambda X: LocalSearch(X, starts=48, rounds=20), lambda X: RidgeSearch(X, starts=24))
    with np.errstate(all="ignore"):
        return [make(asked[0]).steepest(asked[1]).neurons[:40].numpy() for make in makes]


def _in_the_plane(rows: ndarray) -> ndarray:
    """Ridges, and the middles between neighbouring ones: every pattern of the plane."""
    ridges = np.column_stack([-rows[:, 1], rows[:, 0]])
    both = np.concatenate([ridges, -ridges])
    both = both[np.argsort(np.arctan2(both[:, 1], both[:, 0]))]
    both = both / np.linalg.norm(both, axis=1, keepdims=True)
    return np.concatenate([both, both + np.roll(both, 1, 0)])


def _rays(rng: Generator, rows: ndarray, count: int = 60) -> ndarray:
    """Where d - 1 of the rows vanish."""
    d = rows.shape[1]
    chosen = np.stack([rng.permutation(len(rows))[: d - 1] for _ in range(count)])
    rays = np.linalg.svd(rows[chosen])[2][:, -1]
    return np.concatenate([rays, -rays])
