"""Multi-head self-attention (N8): linear, gated ReLU and ReLU scores, for every token or averaged over tokens."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bidual.architectures.base import Architecture
from bidual.architectures.pricing import balanced, check_units, live_neurons, make_gauge, price, price_by_gate
from bidual.gauges import Blocks, Gauge, Group
from bidual.networks import (
    AttentionNetwork,
    GatedAttentionNetwork,
    LinearAttentionNetwork,
    RebuildableModule,
    ReluAttentionNetwork,
)
from bidual.operators import LiftedOperator, NeuronOperator, PooledOperator
from bidual.patches import TokenPairs
from bidual.patterns import sample_gates


@dataclass(frozen=True, eq=False, kw_only=True)
class SelfAttention(Architecture):
    """What the three families share: sequences of tokens of length ``d``, and whether predictions are averaged."""

    d: int
    average: bool = False

    def patches(self, X: Float[Tensor, "n s d"]) -> TokenPairs:
        """The pairs of tokens that heads see, and their readout."""
        self.check_samples(X.shape[1:])
        return TokenPairs(X, self.average)

    def check_samples(self, shape: tuple[int, ...]) -> None:
        if len(shape) != 2 or shape[1] != self.d:
            raise ValueError(f"sequences must have shape (tokens, {self.d}), got {tuple(shape)}.")

    def _network(
        self,
        cls: type[AttentionNetwork],
        U: Float[Tensor, "m k"],
        V: Float[Tensor, "m d c"],
        offset: Tensor,
        n_gates: int = 0,
    ) -> AttentionNetwork:
        """The module with heads U, stacked by columns, and V."""
        m, d, c = V.shape
        sizes = {"n_gates": n_gates} if n_gates else {}
        module = cls(d=d, n_heads=m, n_outputs=c, average=int(self.average), **sizes)
        with torch.no_grad():
            module.mixing.copy_(as_matrices(U))
            module.value.copy_(V)
            module.bias.copy_(offset)
        return module

    def _weights(
        self, module: nn.Module, cls: type[AttentionNetwork]
    ) -> tuple[Float[Tensor, "k m"], Float[Tensor, "b m"]]:
        """vec(U_j) and vec(V_j^T) of a decoded network as columns."""
        if not isinstance(module, cls):
            raise TypeError(f"expected a {cls.__name__}, got {type(module).__name__}.")
        return module.mixing.detach().mT.flatten(1).T, module.value.detach().flatten(1).T

    @classmethod
    def example(cls, generator: torch.Generator) -> tuple[Self, Tensor]:
        X = torch.randn(4, 3, 2, generator=generator, dtype=torch.float64)
        return cls._example(TokenPairs(X, True), generator), X

    @classmethod
    @abstractmethod
    def _example(cls, patches: TokenPairs, generator: torch.Generator) -> Self: ...


def as_matrices(U: Float[Tensor, "m k"]) -> Float[Tensor, "m d d"]:
    """The matrices whose columns are stacked in the rows of U."""
    d = round(U.shape[1] ** 0.5)
    return U.reshape(-1, d, d).mT


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearAttention(SelfAttention):
    """pred_i = sum_j X_i U_j X_i^T X_i V_j, convex in Z = sum_j vec(U_j) vec(V_j^T)^T (BM eq. 26, 104)."""

    penalty: str = "nuclear"
    name = "linear_attention"

    def gauge(self) -> Gauge:
        return make_gauge(self.penalty)

    def n_outputs(self, Z: Blocks) -> int:
        return Z.shape[2] // self.d

    def _lift(self, X: Tensor, n_outputs: int) -> LiftedOperator:
        return PooledOperator(self.patches(X), n_outputs)

    def _decode(self, Z: Tensor, offset: Tensor) -> RebuildableModule:
        U, W, _ = live_neurons(self.gauge(), Z)
        return self._network(LinearAttentionNetwork, U.T, W.T.reshape(-1, self.d, self.n_outputs(Z)), offset)

    def regulariser(self, module: nn.Module) -> float:
        return price(self.gauge(), *self._weights(module, LinearAttentionNetwork))

    @classmethod
    def _example(cls, patches: TokenPairs, generator: torch.Generator) -> Self:
        return cls(d=patches.readouts, average=patches.average)


@dataclass(frozen=True, eq=False, kw_only=True)
class GatedAttention(LinearAttention):
    """pred_i = sum_p sum_j (1{X_i H_p X_i^T >= 0} o X_i U_jp X_i^T) X_i V_jp with fixed gates (BM eq. 133, 135).

    ``gates`` (d^2, P) hold the matrices H_p, stacked by columns.
    """

    gates: Float[Tensor, "k p"]
    name = "gated_attention"

    def _lift(self, X: Tensor, n_outputs: int) -> LiftedOperator:
        return PooledOperator(self.patches(X), n_outputs, gates=self.gates.to(X))

    def _decode(self, Z: Tensor, offset: Tensor) -> RebuildableModule:
        U, W, block = live_neurons(self.gauge(), Z)
        used, index = torch.unique(block, return_inverse=True)
        V = W.T.reshape(-1, self.d, self.n_outputs(Z))
        module = self._network(GatedAttentionNetwork, U.T, V, offset, n_gates=len(used))
        assert isinstance(module, GatedAttentionNetwork)
        with torch.no_grad():
            module.gates.copy_(as_matrices(self.gates.to(Z).T[used]))
            module.gate_index.copy_(index)
        return module

    def regulariser(self, module: nn.Module) -> float:
        U, W = self._weights(module, GatedAttentionNetwork)
        assert isinstance(module, GatedAttentionNetwork)
        return price_by_gate(self.gauge(), U, W, module.gate_index)

    @classmethod
    def _example(cls, patches: TokenPairs, generator: torch.Generator) -> Self:
        gates = sample_gates(patches.telling_rows(), 5, generator)
        return cls(d=patches.readouts, average=patches.average, gates=gates)


@dataclass(frozen=True, eq=False, kw_only=True)
class ReluAttention(SelfAttention):
    """pred_i = sum_j (X_i U_j X_i^T)_+ X_i V_j over heads with |U_j|_F = 1, priced sum_j |V_j|_F (BM eq. 8)."""

    neurons: Float[Tensor, "m k"]
    name = "relu_attention"

    def __post_init__(self) -> None:
        check_units(self.neurons)

    def gauge(self) -> Gauge:
        return Group()

    def _lift(self, X: Tensor, n_outputs: int) -> LiftedOperator:
        patches = self.patches(X)
        return NeuronOperator(patches.rows(), self.neurons, n_outputs, patches)

    def _decode(self, Z: Tensor, offset: Tensor) -> RebuildableModule:
        U, V = balanced(self.neurons, Z)
        return self._network(ReluAttentionNetwork, U, V, offset)

    def regulariser(self, module: nn.Module) -> float:
        U, W = self._weights(module, ReluAttentionNetwork)
        return 0.5 * float(U.square().sum() + W.square().sum())

    @classmethod
    def _example(cls, patches: TokenPairs, generator: torch.Generator) -> Self:
        neurons = torch.randn(4, patches.width, generator=generator, dtype=torch.float64)
        units = neurons / torch.linalg.vector_norm(neurons, dim=1, keepdim=True)
        return cls(d=patches.readouts, average=patches.average, neurons=units)
