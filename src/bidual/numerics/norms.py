"""Vector norms on the weights of a neuron: l1, l2 and linf."""

from dataclasses import dataclass
from itertools import combinations
from math import inf, sqrt

import torch
from jaxtyping import Float
from torch import Tensor

Vectors = Float[Tensor, "... d"]


@dataclass(frozen=True)
class Norm:
    """A norm of vectors, which lie along the last dimension.

    Any pair of norms may price the two layers of a network, |u|_C |w|_R (BM Lemma 3.1, Theorem B.1).
    """

    name: str
    order: float

    @property
    def dual(self) -> "Norm":
        """|z|* = max { <z, u> : |u| <= 1 }."""
        return next(norm for norm in NORMS.values() if 1 / norm.order + 1 / self.order == 1)

    def value(self, U: Vectors) -> Float[Tensor, "..."]:
        """|u| of every vector."""
        return torch.linalg.vector_norm(U, self.order, dim=-1) if U.shape[-1] else U.sum(-1)

    def unit(self, U: Vectors) -> Vectors:
        """u / |u|, and 0 for the zero vector; never longer than one but for d + 3 roundings.

        A vector whose squares leave the range of numbers is scaled by its largest entry first; one of denormal size
        comes out shorter.
        """
        size, limits = self.value(U)[..., None], torch.finfo(U.dtype)
        least = 2 * (limits.tiny / limits.eps) ** 0.5
        if self.order == 2 and size.numel() and not least <= float(size.min()) <= float(size.max()) < inf:
            near, lost = LINF.unit(U), (size < least) | (size == inf)
            U, size = torch.where(lost, near, U), torch.where(lost, self.value(near)[..., None], size)
        return U / size.clamp(min=limits.tiny)

    def aligned(self, G: Vectors) -> Vectors:
        """A vector of norm one with <g, u> = |g|*, the steepest one along g; 0 for the zero vector."""
        if self.order == 2:
            return self.unit(G)
        if self.order == inf:
            return G.sign()
        top = G.abs().argmax(-1, keepdim=True)
        return torch.zeros_like(G).scatter(-1, top, G.gather(-1, top).sign())

    def prox(self, U: Vectors, step: float) -> Vectors:
        """argmin_q step |q| + 1/2 |q - u|_2^2, which is u less its projection on the dual ball of radius ``step``."""
        step = min(step, torch.finfo(U.dtype).max)  # a larger one leaves nothing either, and is no number of U's
        if self.order == 2:
            return U * (1 - step / self.value(U)[..., None].clamp(min=torch.finfo(U.dtype).tiny)).clamp(min=0)
        level = torch.full_like(U[..., :1], step) if self.order == 1 else _threshold(U, step)
        small = U.sign() * torch.minimum(U.abs(), level)
        return U - small if self.order == 1 else small

    def times_l2(self, dimension: int) -> float:
        """The least k with |u|_2 <= k |u| in R^d."""
        return sqrt(dimension) if self.order == inf else 1.0

    def over_l2(self, dimension: int) -> float:
        """The least k with |u| <= k |u|_2 in R^d."""
        return sqrt(dimension) if self.order == 1 else 1.0

    def creases(self, dimension: int) -> Float[Tensor, "k d"]:
        """Normals of hyperplanes that span R^d and cut it into cones on which the norm is linear, if it has such.

        For l1 the coordinate planes. For linf the planes u_j = u_k and u_j = -u_k: their signs decide which of |u_j|
        and |u_k| is larger, and the sign of that entry.
        """
        if self.order == 2:
            raise ValueError("the l2 norm is linear on rays only; l1 and linf have creases.")
        eye = torch.eye(dimension, dtype=torch.float64)
        if self.order == 1 or dimension == 1:
            return eye
        pairs = list(combinations(range(dimension), 2))
        return torch.stack([eye[j] + sign * eye[k] for j, k in pairs for sign in (1, -1)])


L1, L2, LINF = Norm("l1", 1.0), Norm("l2", 2.0), Norm("linf", inf)
NORMS: dict[str, Norm] = {norm.name: norm for norm in (L1, L2, LINF)}


def _threshold(U: Tensor, radius: float) -> Tensor:
    """The t >= 0 with sum_k (|u_k| - t)_+ = radius, by sorting; 0 inside the l1 ball of that radius.

    Where u is outside, u - clip(u, t) is its projection on that ball.
    """
    ordered = U.abs().sort(-1, descending=True).values
    count = torch.arange(1, U.shape[-1] + 1, dtype=U.dtype, device=U.device)
    levels = (ordered.cumsum(-1) - radius) / count
    return levels.amax(-1, keepdim=True).clamp(min=0)
