"""Objectives in extended precision, by numpy alone: what certificates are held against.

Nothing here is the package's own. Numbers have 64 bits of mantissa, 2048 times the precision of float64, so that a
bound that is wrong by one rounding of float64 is seen to be wrong.
"""

from collections.abc import Callable

import numpy as np
from numpy import ndarray

Wide = np.longdouble
assert np.finfo(Wide).eps < 2e-19, "this machine's long double is no wider than float64; the campaign needs x86"


def wide(x: object) -> ndarray:
    return np.asarray(x, dtype=Wide)


def _positive(x: ndarray) -> ndarray:
    return np.maximum(x, 0)


def _log_sum(P: ndarray, Y: ndarray) -> ndarray:
    ahead = P - (P * Y).sum(1, keepdims=True)
    top = ahead.max(1, keepdims=True)
    others = (np.exp(np.minimum(ahead, 0)) * (1 - Y)).sum(1)
    return np.where(top[:, 0] <= 0, np.log1p(others), top[:, 0] + np.log(np.exp(ahead - top).sum(1)))


def _huber(R: ndarray, delta: float) -> ndarray:
    size = np.abs(R)
    return np.where(size <= delta, size**2 / 2, delta * (size - wide(delta) / 2))


def quantile(delta: float) -> float:
    """Which quantile a Huber width stands for: one for the median."""
    return delta / (1 + delta)


def _pinball(R: ndarray, q: float) -> ndarray:
    return np.maximum(-wide(q) * R, (1 - wide(q)) * R)


def _poisson(P: ndarray, Y: ndarray) -> ndarray:
    """y (exp(r) - 1 - r) with r = p - log y, by forty terms of its series where that cancels."""
    R = P - np.log(np.where(Y > 0, Y, 1))
    near = np.where(np.abs(R) < 2, R, 0)
    series = np.ones_like(R)
    for k in range(42, 2, -1):
        series = 1 + near / k * series
    with np.errstate(over="ignore"):
        far = np.exp(P) - np.where(Y > 0, Y * (1 + R), 0)
    return np.where((np.abs(R) < 2) & (Y > 0), Y * near**2 / 2 * series, far)


LOSSES: dict[str, Callable[[ndarray, ndarray, float], ndarray]] = {
    "squared": lambda P, Y, _: ((P - Y) ** 2 / 2).sum(1),
    "absolute": lambda P, Y, _: np.abs(P - Y).sum(1),
    "huber": lambda P, Y, delta: _huber(P - Y, delta).sum(1),
    "quantile": lambda P, Y, delta: _pinball(P - Y, quantile(delta)).sum(1),
    "poisson": lambda P, Y, _: _poisson(P, Y).sum(1),
    "hinge": lambda P, Y, _: _positive(1 - Y * P).sum(1),
    "squared_hinge": lambda P, Y, _: (_positive(1 - Y * P) ** 2 / 2).sum(1),
    "logistic": lambda P, Y, _: np.where(
        Y * P > 0, np.log1p(np.exp(-np.abs(P))), np.abs(P) + np.log1p(np.exp(-np.abs(P)))
    ).sum(1),
    "softmax": lambda P, Y, _: _log_sum(P, Y),
}


def relu_features(X: object, neurons: object) -> ndarray:
    """(X u_j)_+ as columns."""
    return _positive(wide(X) @ wide(neurons).T)


def token_rows(X: ndarray) -> ndarray:
    """x_q kron x_p of sequences (n, s, d), for p, then q."""
    pairs = np.einsum("iqe,ipf->ipqef", wide(X), wide(X))
    return pairs.reshape(-1, X.shape[2] ** 2)


def gated_design(X: ndarray, active: ndarray) -> ndarray:
    """The columns D_p X of all patterns (P, n) side by side."""
    return (active.T[:, :, None] * wide(X)[:, None, :]).reshape(len(X), -1)


def tree_features(X: object, neurons: ndarray, places: tuple[int, ...]) -> ndarray:
    """The outputs of sub-networks as columns; the units (2, m) of every layer are added with signs + and -."""
    units = wide(neurons).reshape(-1, wide(X).shape[1])
    hidden = _positive(wide(X) @ units.T).reshape(len(wide(X)), len(neurons), *places)
    for _ in range(len(places) // 2):
        signed = hidden.sum(-1)
        hidden = _positive(signed[..., 0] - signed[..., 1])
    return hidden


def vector_norm(x: ndarray, order: float) -> ndarray:
    """l1, l2 or linf of every row."""
    if order == np.inf:
        return np.abs(x).max(-1, initial=0)
    return np.abs(x).sum(-1) if order == 1 else np.sqrt((x**2).sum(-1))


def _norm(Z: ndarray, axis: int | tuple[int, ...]) -> ndarray:
    return np.sqrt((Z**2).sum(axis))


def singular_values(Z: ndarray) -> ndarray:
    """Of one matrix, by one-sided Jacobi rotations."""
    A = (Z if Z.shape[0] >= Z.shape[1] else Z.T).copy()
    for _ in range(60):
        rotated = False
        for i in range(A.shape[1]):
            for j in range(i + 1, A.shape[1]):
                rotated |= _rotate(A, i, j)
        if not rotated:
            break
    return _norm(A, 0)


def _rotate(A: ndarray, i: int, j: int) -> bool:
    """Make two columns orthogonal; False if they are."""
    a, b, cross = A[:, i] @ A[:, i], A[:, j] @ A[:, j], A[:, i] @ A[:, j]
    if cross == 0 or abs(cross) <= 4 * np.finfo(Wide).eps * np.sqrt(a * b):
        return False
    zeta = (b - a) / (2 * cross)
    t = (1 if zeta >= 0 else -1) / (abs(zeta) + np.sqrt(1 + zeta**2))
    cos = 1 / np.sqrt(1 + t**2)
    A[:, i], A[:, j] = cos * A[:, i] - cos * t * A[:, j], cos * t * A[:, i] + cos * A[:, j]
    return True


GAUGES: dict[str, Callable[[ndarray], Wide]] = {
    "nuclear": lambda Z: sum((singular_values(block).sum() for block in Z), Wide(0)),
    "frobenius": lambda Z: _norm(Z, (1, 2)).sum(),
    "per_output": lambda Z: _norm(Z, 1).sum(),
    "per_input": lambda Z: _norm(Z, 2).sum(),
    "entries": lambda Z: np.abs(Z).sum(),
    "largest": lambda Z: np.abs(Z).max(2).sum(),
    "largest_per_output": lambda Z: np.abs(Z).max(1).sum(),
}


def data_term(loss: str, delta: float, P: ndarray, Y: ndarray, weight: ndarray) -> Wide:
    """sum_i w_i l(p_i, y_i)."""
    return (weight * LOSSES[loss](P, Y, delta)).sum()
