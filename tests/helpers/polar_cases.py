"""Small data, plain and degenerate, and the steepest neuron by brute force."""

from functools import cache
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from bidual.polar import steepness
from bidual.polar.relaxations.sign_regions import SignRegion
from helpers.draws import normal


def with_ties() -> Tensor:
    X = normal(4, 3)
    return torch.cat([X, X[:2], -X[1:3], 2 * X[:1], torch.zeros(2, 3, dtype=torch.float64)])


def inside(region: SignRegion, U: np.ndarray) -> np.ndarray:
    """Which directions lie in the region."""
    return (region.x @ U.T * region.signs[:, None] >= 0).all(0)


def orthogonal_to(X: Tensor, V: Tensor) -> Tensor:
    return V - X @ torch.linalg.lstsq(X, V).solution


CASES: dict[str, tuple[Tensor, Tensor]] = {
    "planar": (normal(9, 2), normal(9, 3, seed=1)),
    "rank 3": (normal(8, 3), normal(8, 2, seed=1)),
    "one output": (normal(8, 3, seed=2), normal(8, 1, seed=3)),
    "one feature": (normal(6, 1), normal(6, 2, seed=1)),
    "one sample": (normal(1, 3), normal(1, 2, seed=1)),
    "ties, opposite and zero rows": (with_ties(), normal(11, 2, seed=4)),
    "rank deficient": (normal(9, 2, seed=5) @ normal(2, 6, seed=6), normal(9, 2, seed=7)),
    "wide": (normal(3, 7), normal(3, 2, seed=1)),
    "all negative features": (-normal(8, 3, seed=8).abs(), normal(8, 2, seed=9)),
    "non-negative V": (normal(8, 3, seed=8), normal(8, 2, seed=9).abs()),
    "V orthogonal to X": (normal(9, 3), orthogonal_to(normal(9, 3), normal(9, 2, seed=1))),
    "large and small": (1e6 * normal(8, 3), 1e-9 * normal(8, 2, seed=1)),
}


def brute_force(X: Tensor, V: Tensor, count: int = 100, rounds: int = 40) -> float:
    """max |V^T (X u)_+| for rank up to 3: power iteration from many directions, in the whole space and on every face.

    The maximum may sit where one or two rows of X u vanish; on that face it is a smooth local maximum again.
    """
    basis = torch.linalg.svd(X, full_matrices=False)
    X = X @ basis.Vh[1e-9 * basis.S[0] < basis.S].T
    most = min(X.shape[1] - 1, 2)
    faces = [face for k in range(most + 1) for face in combinations(range(len(X)), k)]
    generator = torch.Generator().manual_seed(7)
    starts = torch.randn(count, X.shape[1], generator=generator, dtype=torch.float64)
    return max((_climbed(X, V, starts, face, rounds) for face in faces), default=0.0)


def _climbed(X: Tensor, V: Tensor, U: Tensor, face: tuple[int, ...], rounds: int) -> float:
    off, best = torch.eye(X.shape[1], dtype=torch.float64), 0.0
    if face:
        off = off - torch.linalg.pinv(X[list(face)]) @ X[list(face)]
    for _ in range(rounds):
        U = torch.nn.functional.normalize(U @ off, eps=1e-300)
        best = max(best, float(steepness(X, V, U).max()))
        hidden = X @ U.T
        U = (V @ (V.T @ hidden.clamp(min=0)) * (hidden > 1e-12 * X.abs().max())).T @ X
    return best


@cache
def steepest(case: str) -> float:
    return brute_force(*CASES[case])


def semidefinite_value(X: np.ndarray, V: np.ndarray) -> float:
    """The relaxation of the notes, section 6, at a fixed V, modelled in cvxpy."""
    import cvxpy as cp

    n, d = X.shape
    N1, N3 = cp.Variable((n, n), symmetric=True), cp.Variable((n, n), symmetric=True)
    N2, level = cp.Variable((n, n)), cp.Variable()
    C = 0.5 * N2 @ X + N3 @ X
    M = cp.bmat([[level * np.eye(d) - X.T @ N3 @ X, C.T], [C, -N1 - 0.5 * (N2 + N2.T) - N3 - V @ V.T]])
    signs = [N1 >= 0, N3 >= 0, cp.multiply(N2, 1 - np.eye(n)) >= 0]
    return float(cp.Problem(cp.Minimize(level), [M >> 0, *signs]).solve(solver=cp.CLARABEL)) ** 0.5
