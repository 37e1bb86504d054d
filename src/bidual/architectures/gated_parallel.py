"""Gated parallel models (PR eq. 11 without its constraints): gates of sampled three-layer sub-networks, kept fixed."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from bidual.architectures.base import Architecture
from bidual.architectures.modules import GatedParallelNetwork, RebuildableModule
from bidual.architectures.sub_network_gates import SubNetworkGates
from bidual.gauges import Gauge, Group
from bidual.operators import LiftedOperator
from bidual.operators.stacked import GatedSubNetworkOperator
from bidual.patterns import with_constant


@dataclass(frozen=True, eq=False)
class GatedParallel(Architecture):
    r"""f(X) = sum_k D_2k sum_j D_1kj X U_kj with the patterns of given gates, priced sum_k |U_k|_F.

    The limit of PR (11) as lambda -> 0: without the cone constraints z - z' is any U_k, so it is a gated linear model
    and not a ReLU network; :mod:`bidual.papers.methods.gated_report` compares it with one. The gates act on the
    samples as they are passed; with ``bias`` they have one weight more, for a constant 1.
    """

    gates: SubNetworkGates
    bias: bool = False
    name = "gated_parallel"

    def gauge(self) -> Gauge:
        return Group()

    def _lift(self, X: Tensor, n_outputs: int) -> LiftedOperator:
        X = with_constant(X) if self.bias else X
        return GatedSubNetworkOperator.of(X, *self.gates.activity(X), n_outputs)

    def _decode(self, Z: Tensor, offset: Tensor) -> RebuildableModule:
        used = Z.flatten(1).any(1)
        used[0] |= not bool(used.any())  # the zero model keeps one sub-network, whose output is zero
        gates, d = self.gates.to(Z)[used], self.gates.weights.shape[1]
        module = GatedParallelNetwork(d - self.bias, gates.width, Z.shape[2], len(gates), constant=int(self.bias))
        with torch.no_grad():
            module.gates.copy_(gates.weights)
            module.signs.copy_(gates.signs)
            module.weights.copy_(Z[used].reshape(module.weights.shape))
            module.bias.copy_(offset)
        return module

    def regulariser(self, module: nn.Module) -> float:
        if not isinstance(module, GatedParallelNetwork):
            raise TypeError(f"expected a GatedParallelNetwork, got {type(module).__name__}.")
        return float(torch.linalg.vector_norm(module.weights.detach().flatten(1), dim=1).sum())

    @classmethod
    def example(cls, generator: torch.Generator) -> tuple[Self, Tensor]:
        X = torch.randn(9, 4, generator=generator, dtype=torch.float64)
        return cls(SubNetworkGates.sample(5, 6, 3, generator), bias=True), X
