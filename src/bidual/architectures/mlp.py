"""Two-layer perceptrons: linear (N1), gated ReLU (N2) and ReLU (N3, N4)."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.architectures.base import GatedUnits, LinearUnits, ReluUnits, TwoLayer
from bidual.architectures.modules import GatedNetwork, LinearNetwork, ReluNetwork
from bidual.gauges import Gauge
from bidual.numerics.sparse import values_of
from bidual.operators import LiftedOperator, LinearOperator, NeuronOperator, gated_operator
from bidual.patterns import activations, with_constant


class Perceptron(TwoLayer):
    """The common part of the three families.

    Gates (d, P) and neurons (m, d) act on the samples as they are passed; ``bias`` adds a penalised hidden bias, and
    they have one entry more, for a constant 1.
    """

    def _seen(self, X: Float[Tensor, "n k"]) -> Float[Tensor, "n d"]:
        return with_constant(X) if self.bias else X

    def _sizes(self, h: int, m: int, a: int, c: int) -> dict[str, Any]:
        return {"n_features": h - self.bias, "n_neurons": m, "n_outputs": c}

    @classmethod
    def _example_settings(cls, generator: torch.Generator) -> tuple[dict[str, Any], Tensor, Tensor]:
        X = torch.randn(9, 4, generator=generator, dtype=torch.float64)
        return {"bias": True}, with_constant(X), X


@dataclass(frozen=True, eq=False)
class LinearMLP(Perceptron, LinearUnits):
    """f(X) = X U W^T under weight decay, convex in Z = U W^T (BM eq. 2)."""

    penalty: str | Gauge = "nuclear"
    bias: bool = False
    name, network, takes_sparse = "linear", LinearNetwork, True

    def _lift(self, X: Tensor, n_outputs: int) -> LiftedOperator:
        return LinearOperator(self._seen(X), n_outputs)


@dataclass(frozen=True, eq=False)
class GatedMLP(Perceptron, GatedUnits):
    """f(X) = sum_p D_p X U_p W_p^T with fixed gates, convex in Z_p = U_p W_p^T (BM eq. 5)."""

    gates: Float[Tensor, "d p"]
    penalty: str | Gauge = "nuclear"
    bias: bool = False
    name, network, takes_sparse = "gated_relu", GatedNetwork, True

    def _lift(self, X: Tensor, n_outputs: int) -> LiftedOperator:
        X = self._seen(X)
        return gated_operator(X, activations(X, self.gates.to(values_of(X))), n_outputs)


@dataclass(frozen=True, eq=False)
class ReluMLP(Perceptron, ReluUnits):
    r"""f(X) = sum_j (X u_j)_+ z_j^T over neurons of length one, priced sum_j |z_j|: weight decay (CP eq. 5).

    Convex in Z for the given neurons; over all neurons it is convex too (CP eq. 12), and column generation finds which
    of them an optimum needs.
    """

    neurons: Float[Tensor, "m d"]
    bias: bool = False
    name, network = "relu", ReluNetwork

    def _lift(self, X: Tensor, n_outputs: int) -> LiftedOperator:
        return NeuronOperator(self._seen(X), self.neurons, n_outputs)
