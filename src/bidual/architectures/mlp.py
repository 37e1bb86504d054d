"""Two-layer multi-layer perceptrons: linear (N1) and gated ReLU (N2)."""

from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bidual.architectures.base import Architecture
from bidual.architectures.modules import GatedNetwork, LinearNetwork, RebuildableModule, TwoLayerNetwork
from bidual.architectures.pricing import live_neurons, make_gauge, price, price_by_gate
from bidual.gauges import Gauge
from bidual.operators import GatedOperator, LiftedOperator, LinearOperator
from bidual.patterns import activations, sample_gates, with_constant


@dataclass(frozen=True, eq=False)
class LinearMLP(Architecture):
    """f(X) = X U W^T under weight decay, convex in Z = U W^T (BM eq. 2). ``bias`` adds a penalised hidden bias."""

    penalty: str | Gauge = "nuclear"
    bias: bool = False
    name = "linear"

    def gauge(self) -> Gauge:
        return make_gauge(self.penalty)

    def _lift(self, X: Tensor, n_outputs: int) -> LiftedOperator:
        return LinearOperator(with_constant(X) if self.bias else X, n_outputs)

    def _decode(self, Z: Tensor, offset: Tensor) -> RebuildableModule:
        U, W, _ = live_neurons(self.gauge(), Z)
        features = Z.shape[1] - self.bias
        module = LinearNetwork(features, U.shape[1], Z.shape[2])
        fill(module, U, W, offset, features)
        return module

    def regulariser(self, module: nn.Module) -> float:
        if not isinstance(module, LinearNetwork):
            raise TypeError(f"expected a LinearNetwork, got {type(module).__name__}.")
        U, W = weights(module, self.bias)
        return price(self.gauge(), U, W)

    @classmethod
    def example(cls, generator: torch.Generator) -> tuple[Self, Tensor]:
        return cls(bias=True), torch.randn(9, 4, generator=generator, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class GatedMLP(Architecture):
    """f(X) = sum_p D_p X U_p W_p^T with fixed gates, convex in Z_p = U_p W_p^T (BM eq. 5).

    ``gates`` (d, P) act on the samples as they are passed; with ``bias`` there is one row more, for a constant 1, and
    every neuron has a penalised bias.
    """

    gates: Float[Tensor, "d p"]
    penalty: str | Gauge = "nuclear"
    bias: bool = False
    name = "gated_relu"

    def gauge(self) -> Gauge:
        return make_gauge(self.penalty)

    def _lift(self, X: Tensor, n_outputs: int) -> LiftedOperator:
        X = with_constant(X) if self.bias else X
        return GatedOperator(X, activations(X, self.gates.to(X)), n_outputs)

    def _decode(self, Z: Tensor, offset: Tensor) -> RebuildableModule:
        U, W, block = live_neurons(self.gauge(), Z)
        used, index = torch.unique(block, return_inverse=True)
        gates = self.gates.to(Z)[:, used]
        features = Z.shape[1] - self.bias
        module = GatedNetwork(features, gates.shape[1], U.shape[1], Z.shape[2])
        fill(module, U, W, offset, features)
        with torch.no_grad():
            module.gates.weight.copy_(gates[:features].T)
            if self.bias:
                module.gates.bias.copy_(gates[features])
            module.gate_index.copy_(index)
        return module

    def regulariser(self, module: nn.Module) -> float:
        if not isinstance(module, GatedNetwork):
            raise TypeError(f"expected a GatedNetwork, got {type(module).__name__}.")
        U, W = weights(module, self.bias)
        return price_by_gate(self.gauge(), U, W, module.gate_index)

    @classmethod
    def example(cls, generator: torch.Generator) -> tuple[Self, Tensor]:
        X = torch.randn(9, 4, generator=generator, dtype=torch.float64)
        return cls(sample_gates(X, 6, generator, bias=True), bias=True), X


def fill(module: TwoLayerNetwork, U: Tensor, W: Tensor, offset: Tensor, features: int) -> None:
    with torch.no_grad():
        module.hidden.weight.copy_(U[:features].T)
        if len(U) > features:
            module.hidden.bias.copy_(U[features])
        module.output.weight.copy_(W)
        module.output.bias.copy_(offset)


def weights(module: TwoLayerNetwork, bias: bool) -> tuple[Tensor, Tensor]:
    """U (d, m) with the hidden bias behind it, and W (c, m)."""
    U = module.hidden.weight.detach().T
    return (torch.cat([U, module.hidden.bias.detach()[None]]) if bias else U), module.output.weight.detach()
