"""Multi-head self-attention (N8): linear, gated ReLU and ReLU scores, for every token or averaged over tokens."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.architectures.base import Gating
from bidual.architectures.modules import (
    GatedAttentionNetwork,
    LinearAttentionNetwork,
    RebuildableModule,
    ReluAttentionNetwork,
)
from bidual.architectures.on_patches import GatedOnPatches, LinearOnPatches, OnPatches, ReluOnPatches
from bidual.operators.patches import TokenPairs


@dataclass(frozen=True, eq=False, kw_only=True)
class SelfAttention(OnPatches):
    """The common part of the three families: sequences of tokens of length ``d``, and whether predictions are averaged.

    A head's U is stacked by columns, and so are gates.
    """

    d: int
    average: bool = False

    def patches(self, X: Float[Tensor, "n s d"]) -> TokenPairs:
        self.check_samples(X.shape[1:])
        return TokenPairs(X, self.average)

    def check_samples(self, shape: tuple[int, ...]) -> None:
        if len(shape) != 2 or shape[1] != self.d:
            raise ValueError(f"sequences must have shape (tokens, {self.d}), got {tuple(shape)}.")

    @property
    def readouts(self) -> int:
        return self.d

    def _network(
        self, U: Float[Tensor, "h m"], V: Float[Tensor, "m d c"], offset: Tensor, gating: Gating | None = None
    ) -> RebuildableModule:
        gates = {} if gating is None else {"n_gates": gating.gates.shape[1]}
        module: Any = self.network(**self._sizes(len(U), *V.shape), **gates)
        with torch.no_grad():
            module.mixing.copy_(as_matrices(U))
            module.value.copy_(V)
            module.bias.copy_(offset)
            if gating is not None:
                module.gates.copy_(as_matrices(gating.gates))
                module.gate_index.copy_(gating.chosen)
        return module

    def _sizes(self, h: int, m: int, a: int, c: int) -> dict[str, Any]:
        return {"d": a, "n_heads": m, "n_outputs": c, "average": int(self.average)}

    def _weights(self, module: Any) -> tuple[Float[Tensor, "h m"], Float[Tensor, "b m"]]:
        return module.mixing.detach().mT.flatten(1).T, module.value.detach().flatten(1).T

    @classmethod
    def _example_settings(cls, generator: torch.Generator) -> tuple[dict[str, Any], Tensor, Tensor]:
        X = torch.randn(4, 3, 2, generator=generator, dtype=torch.float64)
        return {"d": 2, "average": True}, TokenPairs(X, average=True).distinguishing_rows(), X


def as_matrices(U: Float[Tensor, "h m"]) -> Float[Tensor, "m d d"]:
    """The matrices whose columns are stacked in the columns of U."""
    d = round(len(U) ** 0.5)
    return U.T.reshape(-1, d, d).mT


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearAttention(SelfAttention, LinearOnPatches):
    """pred_i = sum_j X_i U_j X_i^T X_i V_j, convex in Z = sum_j vec(U_j) vec(V_j^T)^T (BM eq. 26, 104)."""

    name, network = "linear_attention", LinearAttentionNetwork


@dataclass(frozen=True, eq=False, kw_only=True)
class GatedAttention(SelfAttention, GatedOnPatches):
    """pred_i = sum_p sum_j (1{X_i H_p X_i^T >= 0} o X_i U_jp X_i^T) X_i V_jp with fixed gates (BM eq. 133, 135)."""

    name, network = "gated_attention", GatedAttentionNetwork


@dataclass(frozen=True, eq=False, kw_only=True)
class ReluAttention(SelfAttention, ReluOnPatches):
    """pred_i = sum_j (X_i U_j X_i^T)_+ X_i V_j over heads with |U_j|_F = 1 (BM eq. 8, 136)."""

    name, network = "relu_attention", ReluAttentionNetwork
