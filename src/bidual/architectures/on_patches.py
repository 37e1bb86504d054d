"""Networks that share hidden weights over patches or tokens: linear, gated ReLU and ReLU, for any readout."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from bidual.architectures.base import Architecture
from bidual.architectures.modules import RebuildableModule
from bidual.architectures.pricing import balanced, check_units, live_neurons, make_gauge, price, price_by_gate
from bidual.gauges import Gauge, Group
from bidual.operators import LiftedOperator, NeuronOperator, PooledOperator
from bidual.operators.patches import Patches
from bidual.patterns import sample_gates
from bidual.types import Blocks


@dataclass(frozen=True, eq=False)
class Gating:
    """The gates that a decoded network uses, and which of them every neuron has."""

    gates: Float[Tensor, "h q"]
    index: Int[Tensor, " m"]


@dataclass(frozen=True, eq=False, kw_only=True)
class OnPatches(Architecture):
    """The parts that a family defines: how samples are cut, and its modules."""

    network: ClassVar[type[RebuildableModule]]

    @abstractmethod
    def patches(self, X: Float[Tensor, "n ..."]) -> Patches:
        """The rows x_r that neurons see, and their readout."""

    @property
    @abstractmethod
    def readouts(self) -> int: ...

    @abstractmethod
    def _network(
        self, U: Float[Tensor, "h m"], V: Float[Tensor, "m a c"], offset: Tensor, gating: Gating | None = None
    ) -> RebuildableModule:
        """The module with hidden weights U and output weights V."""

    @abstractmethod
    def _weights(self, module: nn.Module) -> tuple[Float[Tensor, "h m"], Float[Tensor, "b m"]]:
        """U and the output weights, columns vec(V_j^T), of a decoded network."""

    @classmethod
    @abstractmethod
    def _example_settings(cls, generator: torch.Generator) -> tuple[dict[str, Any], Tensor]:
        """Settings of a small example without those of the activation, and samples."""

    @classmethod
    @abstractmethod
    def _example_neurons(cls, patches: Patches, generator: torch.Generator) -> dict[str, Any]:
        """Settings of the activation."""

    def _checked(self, module: nn.Module) -> RebuildableModule:
        if not isinstance(module, self.network):
            raise TypeError(f"expected a {self.network.__name__}, got {type(module).__name__}.")
        return module

    @classmethod
    def example(cls, generator: torch.Generator) -> tuple[Self, Tensor]:
        settings, X = cls._example_settings(generator)
        plain = cls(**settings, **cls._example_neurons(cls._cut(settings, X), generator))
        return plain, X

    @classmethod
    @abstractmethod
    def _cut(cls, settings: dict[str, Any], X: Tensor) -> Patches:
        """The patches of samples under these settings."""


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearOnPatches(OnPatches):
    """sum_j L[X u_j] V_j^T, convex in Z = sum_j u_j vec(V_j^T)^T, one block."""

    penalty: str | Gauge = "nuclear"

    def gauge(self) -> Gauge:
        return make_gauge(self.penalty)

    def n_outputs(self, Z: Blocks) -> int:
        return Z.shape[2] // self.readouts

    def _lift(self, X: Tensor, n_outputs: int) -> LiftedOperator:
        return PooledOperator(self.patches(X), n_outputs)

    def _decode(self, Z: Tensor, offset: Tensor) -> RebuildableModule:
        U, W, _ = live_neurons(self.gauge(), Z)
        return self._network(U, W.T.reshape(U.shape[1], self.readouts, -1), offset)

    def regulariser(self, module: nn.Module) -> float:
        return price(self.gauge(), *self._weights(self._checked(module)))

    @classmethod
    def _example_neurons(cls, patches: Patches, generator: torch.Generator) -> dict[str, Any]:
        return {}


@dataclass(frozen=True, eq=False, kw_only=True)
class GatedOnPatches(LinearOnPatches):
    """sum_p sum_j L[D_p X u_jp] V_jp^T with D_p the pattern of gate p; ``gates`` (h, P) have a row per entry of x_r."""

    gates: Float[Tensor, "h p"]

    def _lift(self, X: Tensor, n_outputs: int) -> LiftedOperator:
        return PooledOperator(self.patches(X), n_outputs, gates=self.gates.to(X))

    def _decode(self, Z: Tensor, offset: Tensor) -> RebuildableModule:
        U, W, block = live_neurons(self.gauge(), Z)
        used, index = torch.unique(block, return_inverse=True)
        gating = Gating(self.gates.to(Z)[:, used], index)
        return self._network(U, W.T.reshape(U.shape[1], self.readouts, -1), offset, gating)

    def regulariser(self, module: nn.Module) -> float:
        gate: Any = self._checked(module).gate_index
        return price_by_gate(self.gauge(), *self._weights(module), gate)

    @classmethod
    def _example_neurons(cls, patches: Patches, generator: torch.Generator) -> dict[str, Any]:
        return {"gates": sample_gates(patches.distinguishing_rows(), 5, generator)}


@dataclass(frozen=True, eq=False, kw_only=True)
class ReluOnPatches(OnPatches):
    """sum_j L[(X u_j)_+] V_j^T over neurons (m, h) of length one, priced sum_j |V_j|_F: weight decay."""

    neurons: Float[Tensor, "m h"]

    def __post_init__(self) -> None:
        check_units(self.neurons)

    def gauge(self) -> Gauge:
        return Group()

    def _lift(self, X: Tensor, n_outputs: int) -> LiftedOperator:
        patches = self.patches(X)
        return NeuronOperator(patches.rows(), self.neurons, n_outputs, patches)

    def _decode(self, Z: Tensor, offset: Tensor) -> RebuildableModule:
        U, V = balanced(self.neurons, Z)
        return self._network(U.T, V, offset)

    def regulariser(self, module: nn.Module) -> float:
        U, W = self._weights(self._checked(module))
        return 0.5 * float(U.square().sum() + W.square().sum())

    @classmethod
    def _example_neurons(cls, patches: Patches, generator: torch.Generator) -> dict[str, Any]:
        neurons = torch.randn(4, patches.width, generator=generator, dtype=torch.float64)
        return {"neurons": neurons / torch.linalg.vector_norm(neurons, dim=1, keepdim=True)}
