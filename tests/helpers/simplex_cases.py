"""Cells and forms for the tests of bounds on simplices, and plain versions, one cell at a time, of what is computed."""

import numpy as np
from numpy import ndarray

from bidual.polar.sphere.caps import Cap
from bidual.polar.sphere.simplex_bounds import _Form, _Rows
from bidual.polar.sphere.simplices import Simplices

N = 9
SHAPES = [(2, 1), (2, 3), (3, 1), (3, 2), (4, 3)]  # r and c
UNIT = 2.0**-53


def data(r: int, c: int, seed: int = 0) -> tuple[ndarray, ndarray]:
    rng = np.random.default_rng(seed + 10 * r + c)
    return rng.standard_normal((N, r)), rng.standard_normal((N, c))


def cells_of(corners: ndarray, c: int, n: int = N) -> Simplices:
    """Cells with these corners and with every row of X undecided."""
    m, r, _ = corners.shape
    edge, depth = np.zeros((2, m), dtype=np.int64)
    return Simplices(corners, np.zeros((m, c, r)), np.tile(np.arange(n), (m, 1)), np.full(m, np.inf), edge, depth)


def narrow(r: int, c: int, m: int, width: float, seed: int = 0) -> Simplices:
    """Cells around random directions."""
    rng = np.random.default_rng(seed + 3)
    around = rng.standard_normal((m, 1, r))
    corners = 2 * around / np.linalg.norm(around, axis=2, keepdims=True) + width * rng.uniform(-1, 1, (m, r, r))
    return cells_of(corners / np.linalg.norm(corners, axis=2, keepdims=True), c)


def form(r: int, c: int, m: int = 6, width: float = 0.3, seed: int = 0) -> tuple[_Form, ndarray]:
    X, V = data(r, c, seed)
    corners = narrow(r, c, m, width, seed).corners
    fixed = 0.1 * np.random.default_rng(seed + 5).standard_normal((m, c, r))
    at = corners @ X.T
    rows = _Rows.of(np.tile(X, (m, 1, 1)), np.tile(V, (m, 1, 1)), at)
    return _Form.of(corners, fixed, rows, at), fixed


def on_cells(corners: ndarray, q: int = 300, seed: int = 0) -> ndarray:
    """(m, q, r) unit vectors of the cones, also on their boundary."""
    rng = np.random.default_rng(seed)
    mu = rng.exponential(size=(len(corners), q, corners.shape[1]))
    mu[:, q // 2 :] *= rng.random(mu[:, q // 2 :].shape) < 0.6
    mu[..., 0] += 1e-9
    u = mu @ corners
    return u / np.linalg.norm(u, axis=2, keepdims=True)


def on_caps(cap: Cap, q: int = 400, seed: int = 0) -> ndarray:
    """(m, q, r) unit vectors of the caps, the first half on their boundary."""
    rng = np.random.default_rng(seed)
    m, r = cap.centre.shape
    t = rng.standard_normal((m, q, r))
    t -= (t @ cap.centre[:, :, None]) * cap.centre[:, None, :]
    t /= np.linalg.norm(t, axis=2, keepdims=True)
    b = np.arctan2(cap.sine, cap.cosine)[:, None] * np.where(np.arange(q) < q // 2, 1, rng.random(q))
    return np.cos(b)[..., None] * cap.centre[:, None, :] + np.sin(b)[..., None] * t


def projected(a: ndarray, m: ndarray, b: float) -> ndarray:
    """The point nearest to a of the circular cone around m of angle b, in the plane of both."""
    along, across = a @ m, a - (a @ m) * m
    length = np.linalg.norm(across)
    angle = np.arctan2(length, along)
    if angle <= b:
        return a
    if angle >= b + np.pi / 2:
        return np.zeros_like(a)
    return np.linalg.norm(a) * np.cos(angle - b) * (np.cos(b) * m + np.sin(b) * across / length)


def form_on_cap(G: ndarray, m: ndarray, b: float) -> float:
    """The largest q cos^2 + 2 p sin cos + l sin^2 up to the angle b, a wave of twice the angle."""
    T = np.eye(len(m)) - np.outer(m, m)
    q, p, top = np.linalg.norm(G @ m) ** 2, np.linalg.norm(T @ G.T @ G @ m), np.linalg.norm(G @ T, 2) ** 2
    angle = min(b, np.arctan2(2 * p, q - top) / 2)
    return q * np.cos(angle) ** 2 + p * np.sin(2 * angle) + top * np.sin(angle) ** 2


def reflected_axes(g: ndarray) -> list[ndarray]:
    """The axes but the first, reflected by what takes the first one to g or -g."""
    h = g.copy()
    h[0] += 1 if g[0] >= 0 else -1
    return [e - 2 * (h @ e) / (h @ h) * h for e in np.eye(len(g))[1:]]
