"""Top eigenvalues of many forms G^T G at once, with bounds of what rounding does to them."""

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from bidual.numerics.rounding import gamma


def form_error(V: Float[ndarray, "n c"]) -> float:
    """A bound of the error of G = sum_i v_i x_i^T over any rows x_i of length at most one, in the Frobenius norm.

    A row is added, subtracted, and subtracted from the sum of all: three times, by n + 3 operations at most.
    """
    return gamma(4 * len(V) + 32) * float(np.linalg.norm(V, axis=1).sum())


def top_error(value: ndarray, error: float, rounding: ndarray) -> ndarray:
    """A bound of the error of G^T G and its eigenvalues, the largest of which is ``value``: from an error of G, and
    from the ``rounding`` of the product and of its decomposition."""
    return 2 * np.sqrt(value) * error + error**2 + rounding


def steeper(G: Float[ndarray, "p c k"], threshold: float) -> Int[ndarray, " q"]:
    r"""Which spectral norms may exceed a threshold: for Q = G^T G they are at most (tr Q)^(1/2), and at most
    |Q Q|_F^(1/4), which hardly ever is much more. Products of Q are off by gamma_k |Q|_F^2 <= k gamma_k |Q|^2, and Q by
    k gamma_c |Q|."""
    c, k = G.shape[1:]
    steep = np.flatnonzero(np.einsum("pck,pck->p", G, G) > threshold**2 * (1 - gamma(c * k + 8)))
    if c == 1 or not len(steep):
        return steep
    Q = _squares(G[steep])
    return steep[_lengths(Q @ Q) > threshold**4 * (1 - gamma(8 * k * (k + c) + 64))]


def principal(G: Float[ndarray, "p c k"]) -> tuple[ndarray, ndarray, ndarray, ndarray]:
    """A bound of the top eigenvalue of G^T G, its distance to the next, its eigenvector, and a bound of the distance of
    G^T G to a matrix that has exactly these eigenvalues and about this eigenvector."""
    p, c, k = G.shape
    if c == 1:
        square = np.einsum("pk,pk->p", G[:, 0], G[:, 0])
        rounding = gamma(k + 4) * square
        return square + rounding, square, G[:, 0] / np.sqrt(np.maximum(square, 1e-300))[:, None], rounding
    if not p:
        return np.zeros(0), np.zeros(0), np.zeros((0, k)), np.zeros(0)
    Q = _squares(G)
    values, W = np.linalg.eigh(Q)
    rounding = eigen_error(Q, values, W) + gamma(c + 2) * np.trace(Q, axis1=1, axis2=2)
    return np.maximum(values[:, -1], 0) + rounding, values[:, -1] - values[:, -2], W[:, :, -1], rounding


def _squares(G: Float[ndarray, "p c k"]) -> Float[ndarray, "p k k"]:
    return np.asarray(G.transpose(0, 2, 1) @ G)


def eigen_error(Q: Float[ndarray, "p k k"], values: Float[ndarray, "p k"], W: Float[ndarray, "p k k"]) -> ndarray:
    r"""Bounds of |Q - P diag(values) P^T|, P the orthogonal factor of W, for any values and W.

    |W - P| <= |W^T W - I| = e, so that it is at most |Q W - W diag(values)| + e (|Q| + max |values|). Both residuals
    have products of k terms, and |W|_F^2 is k up to a share of e.
    """
    k = Q.shape[1]
    residual, skew = _lengths(Q @ W - W * values[:, None, :]), _lengths(_squares(W) - np.eye(k))
    size = _lengths(Q) + np.abs(values).max(1)
    return 1.001 * (residual + (skew + gamma(k + 4) * 2 * (k + k**0.5)) * size)


def _lengths(A: Float[ndarray, "p k l"]) -> Float[ndarray, " p"]:
    """Frobenius norms."""
    return np.asarray(np.sqrt(np.einsum("pkl,pkl->p", A, A)))


def principal_of_plane(G: Float[ndarray, "f m c 2"]) -> tuple[ndarray, ndarray, ndarray]:
    """The top eigenvalue of G^T G, its distance to the other one, and its angle.

    Both diagonal entries and the cross product are sums of c terms, off by gamma_c times their mean at most, so that
    the eigenvalues mean +- radius are off by gamma_(4 c + 16) of the larger one; the angle by that over the gap.
    """
    first, second = np.einsum("fmc,fmc->fm", G[..., 0], G[..., 0]), np.einsum("fmc,fmc->fm", G[..., 1], G[..., 1])
    cross = np.einsum("fmc,fmc->fm", G[..., 0], G[..., 1])
    mean, half = (first + second) / 2, (first - second) / 2
    radius = np.hypot(half, cross)
    return mean + radius, 2 * radius, np.arctan2(cross, half) / 2
