"""Networks that share hidden weights over patches or tokens: linear, gated ReLU and ReLU, for any readout."""

from abc import abstractmethod
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from bidual.architectures.base import GatedUnits, LinearUnits, ReluUnits, TwoLayer
from bidual.gauges import Gauge
from bidual.operators import LiftedOperator, NeuronOperator, PooledOperator
from bidual.operators.patches import Patches


class OnPatches(TwoLayer):
    """A family on pieces of samples says how samples are cut."""

    @abstractmethod
    def patches(self, X: Float[Tensor, "n ..."]) -> Patches:
        """The rows x_r that neurons see, and their readout."""


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearOnPatches(OnPatches, LinearUnits):
    penalty: str | Gauge = "nuclear"

    def _lift(self, X: Tensor, n_outputs: int) -> LiftedOperator:
        return PooledOperator(self.patches(X), n_outputs)


@dataclass(frozen=True, eq=False, kw_only=True)
class GatedOnPatches(OnPatches, GatedUnits):
    gates: Float[Tensor, "h p"]
    penalty: str | Gauge = "nuclear"

    def _lift(self, X: Tensor, n_outputs: int) -> LiftedOperator:
        return PooledOperator(self.patches(X), n_outputs, gates=self.gates.to(X))


@dataclass(frozen=True, eq=False, kw_only=True)
class ReluOnPatches(OnPatches, ReluUnits):
    neurons: Float[Tensor, "m h"]

    def _lift(self, X: Tensor, n_outputs: int) -> LiftedOperator:
        patches = self.patches(X)
        return NeuronOperator(patches.rows(), self.neurons, n_outputs, patches)
