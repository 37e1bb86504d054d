"""Prices of factors, 1/2 sum_j (|u_j|_C^2 + |w_j|_R^2) (BM eq. 14): value, subgradient and prox."""

from math import inf
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.gauges.base import Factors
from bidual.numerics.norms import Norm, Vectors


class NormPair:
    """The half of a gauge that prices factors, for a norm C of the hidden and a norm R of the output weights."""

    hidden_norm: ClassVar[Norm]
    output_norm: ClassVar[Norm]

    def factor_penalty(self, factors: Factors) -> float:
        hidden, output = self.hidden_norm.value(factors.U.mT), self.output_norm.value(factors.W.mT)
        return float(0.5 * (hidden.square().sum() + output.square().sum()))

    def factor_subgradient(self, factors: Factors) -> Factors:
        U, W = factors
        return Factors(
            half_square_subgradient(self.hidden_norm, U.mT).mT, half_square_subgradient(self.output_norm, W.mT).mT
        )

    def factor_prox(self, factors: Factors, step: float) -> Factors:
        U, W = factors
        return Factors(
            half_square_prox(self.hidden_norm, U.mT, step).mT, half_square_prox(self.output_norm, W.mT, step).mT
        )


def half_square_subgradient(norm: Norm, U: Vectors) -> Vectors:
    """|u| s with |s|* = 1 and <u, s> = |u|: a subgradient of 1/2 |u|^2, whose product with u is |u|^2."""
    return norm.value(U)[..., None] * norm.dual.aligned(U)


def half_square_prox(norm: Norm, U: Vectors, step: float) -> Vectors:
    """argmin_q step/2 |q|^2 + 1/2 |q - u|_2^2.

    For l1 it is the soft threshold at t with t = step * |q|_1, for linf the clipping at s with
    step * s = sum_k (|u_k| - s)_+; both levels follow by sorting.
    """
    if norm.order == 2:
        return U / (1 + step)
    if step == 0:
        return U
    level = _level(U, step if norm.order == inf else 1 / step)
    small = U.sign() * torch.minimum(U.abs(), level)
    return small if norm.order == inf else U - small


def _level(U: Vectors, weight: float) -> Float[Tensor, "... 1"]:
    """The t >= 0 with sum_k (|u_k| - t)_+ = weight * t."""
    ordered = U.abs().sort(-1, descending=True).values
    count = torch.arange(1, U.shape[-1] + 1, dtype=U.dtype, device=U.device)
    return (ordered.cumsum(-1) / (count + weight)).amax(-1, keepdim=True)


def steepest_of_blocks(values: Float[Tensor, "p k"], U: Float[Tensor, "p k a"], W: Float[Tensor, "p k b"]) -> Factors:
    """The best of k pairs (u, w) of every block, as one column."""
    best = values.argmax(1)
    rows = torch.arange(len(values), device=values.device)
    return Factors(U[rows, best][:, :, None], W[rows, best][:, :, None])


def unit_vectors(count: int, size: int, like: Tensor) -> Float[Tensor, "p k k"]:
    """The unit vectors of R^k, once per block."""
    return torch.eye(size, dtype=like.dtype, device=like.device).expand(count, size, size)
