"""Dual points that are hard on bounds of polars; some need samples of their own."""

from collections.abc import Callable

import numpy as np
from numpy import ndarray
from numpy.random import Generator

Asking = tuple[ndarray, ndarray]  # samples and dual point


def _units(X: ndarray) -> ndarray:
    """The rows at length one; those too short for that stay zero or short."""
    return np.nan_to_num(X / np.maximum(np.abs(X).max(1, keepdims=True), 1e-320))


def _within(rng: Generator, X: ndarray) -> ndarray:
    """A unit direction in the span of the rows, so that what is made of it has no higher rank."""
    mixed = rng.standard_normal(len(X)) @ _units(X)
    return mixed / (np.linalg.norm(mixed) or 1.0)


def _drawn(rng: Generator, X: ndarray, c: int) -> Asking:
    return X, rng.standard_normal((len(X), c))


def _one_sign(rng: Generator, X: ndarray, c: int) -> Asking:
    return X, float(rng.choice([-1, 1])) * np.abs(rng.standard_normal((len(X), c)))


def _cancelling(rng: Generator, X: ndarray, c: int) -> Asking:
    """Every row once more, with the opposite slope or nearly so: what is left is tiny beside its terms."""
    half = X[: (len(X) + 1) // 2]
    V = rng.standard_normal((len(half), c))
    apart, off = (10.0 ** rng.uniform(-16, -8) * float(rng.choice([0, 1])) for _ in range(2))
    copy = half + apart * rng.standard_normal((len(half), 1)) * half[rng.permutation(len(half))]
    both = np.concatenate([half, copy]), np.concatenate([V, -V * (1 + off * rng.standard_normal(V.shape))])
    order = rng.permutation(len(both[0]))
    return both[0][order], both[1][order]


def _orthogonal(rng: Generator, X: ndarray, c: int) -> Asking:
    """V^T X = 0 up to rounding: every neuron is as steep as its opposite."""
    V = rng.standard_normal((len(X), c))
    left = np.linalg.svd(_units(X), full_matrices=False)[0]
    return X, V - left @ (left.T @ V)


def _tied(rng: Generator, X: ndarray, c: int) -> Asking:
    """Samples and their mirror image with the same slopes, nearly: two patterns are as steep."""
    half = X[: (len(X) + 1) // 2]
    axis = _within(rng, X)
    mirror = half - 2 * np.outer(half @ axis, axis)
    V = rng.standard_normal((len(half), c))
    return np.concatenate([half, mirror]), np.concatenate([V, V * (1 + rng.choice([0, 1e-16, 1e-13, 1e-9]))])


def _ridge(rng: Generator, X: ndarray, c: int) -> Asking:
    """Half of the rows are orthogonal to one direction, to which the others pull, and punish leaving it."""
    towards, half, X = _within(rng, X), len(X) // 2, X.copy()
    X[:half] -= np.outer(X[:half] @ towards, towards)
    g = rng.standard_normal(c)
    V = np.where(X @ towards > 0, 1.0, 0.1)[:, None] * np.abs(rng.standard_normal((len(X), 1))) * g
    V[:half] *= -(10.0 ** rng.uniform(0, 3))
    return X, V


def _isotropic(rng: Generator, X: ndarray, c: int) -> Asking:
    """V = X in some frame: the forms have eigenvalues that agree or nearly do."""
    turned = _units(X) @ np.linalg.qr(rng.standard_normal((X.shape[1], X.shape[1])))[0]
    V = np.zeros((len(X), c))
    V[:, : min(c, turned.shape[1])] = turned[:, :c]
    return X, V


def _levelled(rng: Generator, X: ndarray, c: int) -> Asking:
    """Slopes that undo the lengths of the rows, so that all of them count, and some far more than others."""
    size = np.maximum(np.abs(X).max(1, keepdims=True), 1e-290)
    V = rng.standard_normal((len(X), c)) * (np.median(size) / size)
    V = V * 10.0 ** (-float(rng.choice([0, 6, 12])) * rng.random((len(X), 1)))
    return X, np.nan_to_num(V, posinf=0, neginf=0)


def _whole(rng: Generator, X: ndarray, c: int) -> Asking:
    return X, rng.integers(-1, 2, (len(X), c)).astype(float)


def _far(rng: Generator, X: ndarray, c: int) -> Asking:
    return X, rng.standard_normal((len(X), c)) * 2.0 ** int(rng.integers(-300, 300))


SLOPES: dict[str, Callable[[Generator, ndarray, int], Asking]] = {
    "drawn": _drawn,
    "one sign": _one_sign,
    "cancelling": _cancelling,
    "orthogonal": _orthogonal,
    "tied": _tied,
    "ridge": _ridge,
    "isotropic": _isotropic,
    "levelled": _levelled,
    "whole numbers": _whole,
    "far from one": _far,
}
