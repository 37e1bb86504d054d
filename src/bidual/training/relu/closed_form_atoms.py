"""Decompositions of the targets into neurons that a closed form can threshold."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.patterns.row_directions import direction_groups, representatives, unit_rows


@dataclass(frozen=True, eq=False)
class Atoms:
    r"""Y = sum_k sigma_k p_k g_k^T - rest, with p_k >= 0 and |p_k| = |g_k| = 1.

    Attributes:
        name: which decomposition.
        lengths: p_k (m, n), of disjoint supports.
        directions: g_k (m, c).
        sigma: (m,).
        rest: what is never predicted, with its sign in the residual (n, c).
    """

    name: str
    lengths: Float[Tensor, "m n"]
    directions: Float[Tensor, "m c"]
    sigma: Float[Tensor, " m"]
    rest: Float[Tensor, "n c"]


def class_atoms(Y: Float[Tensor, "n c"], tol: float) -> Atoms | None:
    """One atom per direction of the rows of Y, or None if two directions make an acute angle."""
    labels = direction_groups(Y, tol=1e-12)
    rows = representatives(labels)
    if len(rows) > 2 * Y.shape[1]:  # more vectors than that cannot have pairwise angles of 90 degrees or more
        return None
    G = unit_rows(Y)[rows]
    if bool(((G @ G.T).fill_diagonal_(-1) > tol).any()):
        return None
    belongs = (labels == torch.arange(len(rows))[:, None]).to(Y.dtype)
    lengths = belongs * torch.linalg.vector_norm(Y, dim=1)
    sigma = torch.linalg.vector_norm(lengths, dim=1)
    name = "class basis: rows of Y are parallel or make no acute angle."
    return Atoms(name, lengths / sigma[:, None], G, sigma, torch.zeros_like(Y))


def singular_atoms(Y: Float[Tensor, "n c"], tau: float, tol: float) -> Atoms | None:
    """The singular vectors of Y above tau, or None if the left one has entries of both signs; the rest is residual."""
    left, sigma, right = torch.linalg.svd(Y, full_matrices=False)
    kept = sigma > tau
    P, G = left.T[kept], right[kept]
    sign = torch.where(P.sum(1, keepdim=True) < 0, -1.0, 1.0)
    P, G = sign * P, sign * G
    if bool((P + tol < 0).any()):
        return None
    rest = -(left[:, ~kept] * sigma[~kept]) @ right[~kept]
    P = P.clamp(min=0)
    P = P / torch.linalg.vector_norm(P, dim=1, keepdim=True)
    return Atoms("singular vectors of Y above beta have one sign (CP Theorem 2).", P, G, sigma[kept], rest)
