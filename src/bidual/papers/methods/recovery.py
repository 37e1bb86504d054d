"""Neurons back from a lifted solution of CP (12): factors in the cones that attain the gauge (CP Remark 5.1)."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from scipy import sparse
from torch import Tensor

from bidual.numerics.caratheodory import caratheodory, price
from bidual.papers.methods.cone_pca import contains, steepest
from bidual.papers.methods.least_norms import least_norms
from bidual.patterns.cones import PatternCone, pattern_cone
from bidual.types import Blocks

_ROUNDS = 60


@dataclass(frozen=True, eq=False)
class Recovery:
    r"""Neurons u_j in the cones of their patterns, and weights, with sum_j u_j w_j^T = Z_p over the neurons of p.

    Attributes:
        neurons: u (m, d), unit length.
        weights: w (m, c).
        block: (m,), the pattern of every neuron.
        price: sum_j |u_j| |w_j|.
        lower: a proved lower bound of the gauge sum_p |Z_p|_{*,K_p}; equal to ``price`` where the factors attain it.
    """

    neurons: Float[Tensor, "m d"]
    weights: Float[Tensor, "m c"]
    block: Tensor
    price: float
    lower: float


def recover(X: Float[Tensor, "n d"], patterns: Bool[Tensor, "p n"], Z: Blocks, *, tol: float = 1e-9) -> Recovery:
    r"""Split every block as Z_p = sum_j u_j w_j^T with (2 D_p - I) X u_j >= 0 at the least price sum_j |u_j| |w_j|.

    That least price is the gauge |Z_p|_{*,K_p} of BM (4), which CP (12) means. CP Remark 5.1 takes any such
    factorisation with c terms; c may be too few, and one that costs more is no optimal network. Here
    min sum_j |w_j| s.t. sum_j u_j w_j^T = Z_p runs over a growing list of directions u_j, priced in by its dual
    max <G, Z_p> s.t. |G^T u| <= |u| for u in K_p, until both agree to ``tol``; the dual is the lower bound.
    """
    _check(X, patterns, Z)
    data, blocks = (T.detach().to("cpu", torch.float64).numpy() for T in (X, Z))
    used = [p for p in range(len(blocks)) if blocks[p].any()]
    cones = (pattern_cone(data, patterns[p].cpu().numpy()) for p in used)
    parts = [_split(cone, blocks[p], p, tol) for p, cone in zip(used, cones, strict=True)]
    none = _Factors(np.zeros((0, data.shape[1])), np.zeros((0, blocks.shape[2])), 0.0)
    U, W = (torch.from_numpy(np.concatenate([part[i] for part in (none, *parts)])).to(Z) for i in (0, 1))
    block = torch.tensor([p for p, part in zip(used, parts, strict=True) for _ in part.neurons], dtype=torch.long)
    return Recovery(U, W, block.to(Z.device), float(price(U, W).sum()), sum(part.lower for part in parts))


class _Factors(NamedTuple):
    """Unit directions t_j and weights w_j as rows, and a lower bound of the least price."""

    neurons: Float[ndarray, "m k"]
    weights: Float[ndarray, "m c"]
    lower: float


def _check(X: Tensor, patterns: Tensor, Z: Tensor) -> None:
    expected = (len(patterns), X.shape[1])
    if tuple(Z.shape[:2]) != expected or patterns.shape[1] != len(X):
        raise ValueError(
            f"Z must hold one (d, c) block per pattern and patterns one column per sample, got Z {tuple(Z.shape)}, "
            f"patterns {tuple(patterns.shape)} and X {tuple(X.shape)}."
        )
    if not bool(torch.isfinite(Z).all() and torch.isfinite(X).all()):
        raise ValueError("X and Z must be finite, got NaN or infinity.")


def _split(cone: PatternCone, Z: Float[ndarray, "d c"], p: int, tol: float) -> _Factors:
    """The factors of one block. Weights outside the row space of Z only cost, so c shrinks to the rank of Z."""
    inside = cone.basis.T @ Z
    if np.linalg.norm(Z - cone.basis @ inside) > 1e-9 * np.linalg.norm(Z):
        raise ValueError(
            f"block {p} is no sum of u w^T with u in the cone of its pattern, which spans only "
            f"{cone.basis.shape[1]} of {len(Z)} dimensions. Use patterns that some direction has."
        )
    left, values, right = np.linalg.svd(inside, full_matrices=False)
    r = int((values > 1e-13 * values[0]).sum())
    split = _attain if r > 1 else _attain_vector
    factors = split(cone, left[:, :r] * (values[:r] / values[0]), tol)
    return _Factors(
        factors.neurons @ cone.basis.T, values[0] * factors.weights @ right[:r], float(values[0]) * factors.lower
    )


def _attain(cone: PatternCone, Z: Float[ndarray, "k r"], tol: float) -> _Factors:
    """Factors of a block whose columns are orthogonal, by column generation from factors that are known to exist."""
    lower = float(np.linalg.norm(Z, axis=0).sum())  # the nuclear norm, which is the gauge without the cone
    directions = _first_directions(cone, Z)
    weights, G = _master(directions, Z)
    for _ in range(_ROUNDS):
        found = steepest(cone, G, directions)
        cost = float(np.linalg.norm(weights, axis=1).sum())
        lower = max(lower, float((G * Z).sum()) / max(found.upper, 1e-300))
        new = found.directions[found.values > 1 + 0.1 * tol]
        if cost - lower <= tol * cost or not len(new):
            break
        directions = np.concatenate([directions, new])
        weights, G = _master(directions, Z)
    return _basic(directions, weights, Z, lower)


def _attain_vector(cone: PatternCone, z: Float[ndarray, "k 1"], tol: float) -> _Factors:
    r"""One output: z = w - v with w and v in the cone and |w| + |v| least, as in CP (9); z or -z alone if inside."""
    size = float(np.linalg.norm(z))
    for sign in (1.0, -1.0):
        if contains(cone, sign * z[:, 0], size):
            return _Factors(sign * z.T / size, np.array([[sign * size]]), size)
    eye, facets = sparse.eye_array(len(z)), sparse.csr_array(cone.rows)
    ends, G = least_norms(sparse.hstack([eye, -eye]), z[:, 0], len(z), sparse.block_diag([facets, facets]))
    v = ends[1]
    outside = -(np.stack([z[:, 0] + v, v]) @ cone.rows.T) / (cone.rows @ cone.inner)
    v = v + max(float(outside.max()), 0.0) * cone.inner  # what the solver left outside is moved in
    both = np.stack([z[:, 0] + v, v])
    length = np.linalg.norm(both, axis=1, keepdims=True)
    lower = float(G @ z[:, 0]) / max(steepest(cone, G[:, None], both).upper, 1e-300)
    return _Factors(both / length, length * np.array([[1.0], [-1.0]]), max(lower, size))


def _first_directions(cone: PatternCone, Z: Float[ndarray, "k r"]) -> Float[ndarray, "q k"]:
    r"""a = (a + s b) - s b for every column a of Z, with b inside the cone and s so large that both terms are in it."""
    unit = (Z / np.linalg.norm(Z, axis=0)).T
    both = np.concatenate([unit, -unit])
    depth = cone.rows @ cone.inner
    shift = (-(both @ cone.rows.T) / depth).max(axis=1, initial=0.0)
    moved = both + shift[:, None] * cone.inner
    length = np.linalg.norm(moved, axis=1)
    return np.concatenate([cone.inner[None], moved[length > 1e-9] / length[length > 1e-9, None]])


def _master(directions: Float[ndarray, "q k"], Z: Float[ndarray, "k r"]) -> tuple[ndarray, ndarray]:
    r"""min sum_j |w_j| subject to sum_j t_j w_j^T = Z: the w_j as rows, and the multiplier G with |G^T t_j| <= 1."""
    r = Z.shape[1]
    weights, G = least_norms(sparse.kron(sparse.csr_array(directions.T), sparse.eye_array(r)), Z.ravel(), r)
    return weights, G.reshape(Z.shape)


def _basic(directions: ndarray, weights: ndarray, Z: ndarray, lower: float) -> _Factors:
    """Without dust, exact to rounding, and with at most k r factors (Caratheodory)."""
    size = np.linalg.norm(weights, axis=1)
    large = size > 1e-8 * size.max()
    T, W = directions[large], weights[large]
    W = W + np.linalg.lstsq(T.T, Z - T.T @ W, rcond=None)[0]
    size = np.linalg.norm(W, axis=1)
    columns = (T[:, :, None] * (W / size[:, None])[:, None, :]).reshape(len(T), -1).T
    mass = caratheodory(torch.from_numpy(columns), torch.from_numpy(size)).numpy()
    kept = mass > 0
    return _Factors(T[kept], (W * (mass / size)[:, None])[kept], lower)
