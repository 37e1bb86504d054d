"""Two-layer ReLU networks (N3, N4): a dictionary of neurons, each with its output weights."""

from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bidual.architectures.base import Architecture
from bidual.architectures.mlp import fill, weights
from bidual.architectures.modules import RebuildableModule, ReluNetwork
from bidual.architectures.pricing import balanced, check_units
from bidual.gauges import Gauge, Group
from bidual.operators import LiftedOperator, NeuronOperator
from bidual.patterns import with_constant


@dataclass(frozen=True, eq=False)
class ReluMLP(Architecture):
    r"""f(X) = sum_j (X u_j)_+ z_j^T over neurons of length one, priced sum_j |z_j|: weight decay (CP eq. 5).

    Convex in Z for the given neurons; over all neurons it is convex too (CP eq. 12), and column generation finds which
    of them an optimum needs. ``neurons`` (m, d) act on the samples as they are passed; with ``bias`` there is one
    column more, for a constant 1.
    """

    neurons: Float[Tensor, "m d"]
    bias: bool = False
    name = "relu"

    def __post_init__(self) -> None:
        check_units(self.neurons)

    def gauge(self) -> Gauge:
        return Group()

    def _lift(self, X: Tensor, n_outputs: int) -> LiftedOperator:
        return NeuronOperator(with_constant(X) if self.bias else X, self.neurons, n_outputs)

    def _decode(self, Z: Tensor, offset: Tensor) -> RebuildableModule:
        U, W = balanced(self.neurons, Z)
        features = self.neurons.shape[1] - self.bias
        module = ReluNetwork(features, len(U), Z.shape[2])
        fill(module, U.T, W[:, 0].T, offset, features)
        return module

    def regulariser(self, module: nn.Module) -> float:
        if not isinstance(module, ReluNetwork):
            raise TypeError(f"expected a ReluNetwork, got {type(module).__name__}.")
        U, W = weights(module, self.bias)
        return 0.5 * float(U.square().sum() + W.square().sum())

    @classmethod
    def example(cls, generator: torch.Generator) -> tuple[Self, Tensor]:
        neurons = torch.randn(7, 5, generator=generator, dtype=torch.float64)
        X = torch.randn(9, 4, generator=generator, dtype=torch.float64)
        return cls(neurons / torch.linalg.vector_norm(neurons, dim=1, keepdim=True), bias=True), X
