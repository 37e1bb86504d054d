"""A network family: the lifting of its data, the price of its weights, and the decoding of a lifted solution."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from bidual.architectures.modules import RebuildableModule
from bidual.architectures.modules.base import with_bias
from bidual.gauges import GAUGES, Factorised, Factors, Gauge, Group
from bidual.operators import LiftedOperator
from bidual.patterns import sample_gates
from bidual.types import Blocks, as_protocol


class Architecture(ABC):
    """One network family with its settings (a frozen dataclass).

    Attributes:
        takes_sparse: whether ``lift``, and the module that is decoded, take samples in compressed rows.
    """

    name: ClassVar[str]
    takes_sparse: ClassVar[bool] = False

    def lift(self, X: Float[Tensor, "n ..."], n_outputs: int) -> LiftedOperator:
        """The operator A of this family on the samples X."""
        if n_outputs < 1:
            raise ValueError(f"n_outputs must be at least 1, got {n_outputs}.")
        return self._lift(X, n_outputs)

    @abstractmethod
    def gauge(self) -> Gauge:
        """The price of a lifted variable."""

    def decode(self, Z: Blocks, offset: Float[Tensor, " c"] | None = None) -> RebuildableModule:
        """An ordinary network with predictions A Z + offset, whose weights cost Omega(Z)."""
        return self._decode(Z, Z.new_zeros(self.n_outputs(Z)) if offset is None else offset).to(Z.device)

    def n_outputs(self, Z: Blocks) -> int:
        """c, how many outputs a lifted variable has; its columns, but for networks with a readout."""
        return Z.shape[2]

    def check_samples(self, shape: tuple[int, ...]) -> None:
        """Refuse samples of a shape that this family does not take."""
        if len(shape) != 1:
            raise ValueError(f"samples must be rows of numbers, got shape {tuple(shape)}.")

    @abstractmethod
    def regulariser(self, module: nn.Module) -> float:
        """The price of a decoded network, computed from its weights."""

    @classmethod
    @abstractmethod
    def example(cls, generator: torch.Generator) -> tuple[Self, Tensor]:
        """A small architecture of this family and samples X that fit it, for contract checks."""

    @abstractmethod
    def _lift(self, X: Tensor, n_outputs: int) -> LiftedOperator: ...

    @abstractmethod
    def _decode(self, Z: Tensor, offset: Tensor) -> RebuildableModule: ...


class Gating(NamedTuple):
    """The gates that a decoded network uses, and which of them every neuron has."""

    gates: Float[Tensor, "h q"]
    chosen: Int[Tensor, " m"]


class TwoLayer(Architecture):
    """Hidden units that see rows x_r in R^h of a sample, and a linear readout L of their activations.

    A plain network has one row per sample and one readout; see :class:`bidual.operators.patches.Patches` for others. A
    family is one of the three kinds of units below with its way to cut samples and its module.
    """

    network: ClassVar[type[RebuildableModule]]
    bias: bool = False

    @property
    def readouts(self) -> int:
        """a, the numbers that L makes of the activations of a unit."""
        return 1

    @abstractmethod
    def _sizes(self, h: int, m: int, a: int, c: int) -> dict[str, Any]:
        """The arguments of the module for m units on rows of length h, a readouts and c outputs."""

    @classmethod
    @abstractmethod
    def _example_settings(cls, generator: torch.Generator) -> tuple[dict[str, Any], Tensor, Tensor]:
        """Settings of a small example without those of the units, the rows that these see, and samples."""

    @classmethod
    def _example_units(cls, rows: Tensor, generator: torch.Generator) -> dict[str, Any]:
        """Settings of the units, if they have any that must be given."""
        return {}

    @classmethod
    def example(cls, generator: torch.Generator) -> tuple[Self, Tensor]:
        settings, rows, X = cls._example_settings(generator)
        return cls(**settings, **cls._example_units(rows, generator)), X

    def _network(
        self, U: Float[Tensor, "h m"], V: Float[Tensor, "m a c"], offset: Tensor, gating: Gating | None = None
    ) -> RebuildableModule:
        """The module with hidden weights U and output weights V."""
        gates = {} if gating is None else {"n_gates": gating.gates.shape[1]}
        module: Any = self.network(**self._sizes(len(U), *V.shape), **gates)
        with torch.no_grad():
            self._fill(module.hidden, U)
            module.output.weight.copy_(V.permute(2, 0, 1).flatten(1))
            module.output.bias.copy_(offset)
            if gating is not None:
                self._fill(module.gates, gating.gates)
                module.gate_index.copy_(gating.chosen)
        return module

    def _fill(self, layer: Any, U: Float[Tensor, "h m"]) -> None:
        length = layer.weight[0].numel()
        layer.weight.copy_(U[:length].T.reshape(layer.weight.shape))
        if self.bias:
            layer.bias.copy_(U[length])

    def _weights(self, module: Any) -> tuple[Float[Tensor, "h m"], Float[Tensor, "b m"]]:
        """U and the output weights, columns vec(V_j^T), of a decoded network."""
        output = module.output.weight.detach()
        U = (with_bias(module.hidden) if self.bias else module.hidden.weight.flatten(1)).detach().T
        return U, output.reshape(len(output), U.shape[1], -1).permute(2, 0, 1).flatten(0, 1)

    def _checked(self, module: nn.Module) -> Any:
        if not isinstance(module, self.network):
            raise TypeError(f"expected a {self.network.__name__}, got {type(module).__name__}.")
        return module


class LinearUnits(TwoLayer):
    """sum_j L[X u_j] V_j^T, convex in Z = sum_j u_j vec(V_j^T)^T, one block."""

    penalty: str | Gauge

    def gauge(self) -> Gauge:
        return make_gauge(self.penalty)

    def n_outputs(self, Z: Blocks) -> int:
        return Z.shape[2] // self.readouts

    def _decode(self, Z: Tensor, offset: Tensor) -> RebuildableModule:
        U, W, block = live_neurons(self.gauge(), Z)
        return self._network(U, W.T.reshape(U.shape[1], self.readouts, -1), offset, self._gating(block, Z))

    def _gating(self, block: Int[Tensor, " m"], like: Tensor) -> Gating | None:
        """Of neurons in these blocks."""
        return None

    def regulariser(self, module: nn.Module) -> float:
        return price(self.gauge(), *self._weights(self._checked(module)))


class GatedUnits(LinearUnits):
    """sum_p sum_j L[D_p X u_jp] V_jp^T with D_p the pattern of gate p; ``gates`` (h, P) have a row per entry of x_r."""

    gates: Float[Tensor, "h p"]

    def _gating(self, block: Int[Tensor, " m"], like: Tensor) -> Gating:
        used, index = torch.unique(block, return_inverse=True)
        return Gating(self.gates.to(like)[:, used], index)

    def regulariser(self, module: nn.Module) -> float:
        U, W = self._weights(self._checked(module))
        gate: Any = module.gate_index
        return sum(price(self.gauge(), U[:, gate == p], W[:, gate == p]) for p in gate.unique())

    @classmethod
    def _example_units(cls, rows: Tensor, generator: torch.Generator) -> dict[str, Any]:
        return {"gates": sample_gates(rows, 5, generator)}


class ReluUnits(TwoLayer):
    """sum_j L[(X u_j)_+] V_j^T over neurons (m, h) of length one, priced sum_j |V_j|_F: weight decay."""

    neurons: Float[Tensor, "m h"]

    def __post_init__(self) -> None:
        check_units(self.neurons)

    def gauge(self) -> Gauge:
        return Group()

    def _decode(self, Z: Tensor, offset: Tensor) -> RebuildableModule:
        """Neurons in use with |u_j| = |V_j| = |Z_j|^(1/2), where weight decay is least; one of zeros if none is."""
        used = Z.abs().amax((1, 2)) > 0
        if not bool(used.any()):
            return self._network(Z.new_zeros(self.neurons.shape[1], 1), Z.new_zeros(1, *Z.shape[1:]), offset)
        size = torch.linalg.vector_norm(Z[used], dim=(1, 2)).sqrt()
        U = self.neurons.to(Z)[used] * size[:, None]
        return self._network(U.T, Z[used] / size[:, None, None], offset)

    def regulariser(self, module: nn.Module) -> float:
        U, W = self._weights(self._checked(module))
        return 0.5 * float(U.square().sum() + W.square().sum())

    @classmethod
    def _example_units(cls, rows: Tensor, generator: torch.Generator) -> dict[str, Any]:
        neurons = torch.randn(6, rows.shape[1], generator=generator, dtype=torch.float64)
        return {"neurons": neurons / torch.linalg.vector_norm(neurons, dim=1, keepdim=True)}


def make_gauge(penalty: str | Gauge) -> Gauge:
    """A gauge from its name or an instance; it must price factors, because networks are made of them."""
    if not isinstance(penalty, Gauge) and not (isinstance(penalty, str) and penalty in GAUGES):
        raise ValueError(f"penalty must be one of {sorted(GAUGES)}, or a Gauge, got {penalty!r}.")
    gauge = penalty if isinstance(penalty, Gauge) else GAUGES[penalty]()
    if not isinstance(gauge, Factorised):
        raise ValueError(f"penalty must be a gauge that is Factorised; {type(gauge).__name__} is not.")
    return gauge


def live_neurons(gauge: Gauge, Z: Blocks) -> tuple[Float[Tensor, "d m"], Float[Tensor, "b m"], Int[Tensor, " m"]]:
    """U (d, m), W (b, m) and the block of every neuron that is not zero; one zero neuron if all are."""
    U, W = as_protocol(gauge, Factorised).split(Z)
    size = torch.linalg.vector_norm(U, dim=1) * torch.linalg.vector_norm(W, dim=1)
    alive = size > 1e-14 * size.max().clamp(min=torch.finfo(Z.dtype).tiny)
    if not bool(alive.any()):
        alive[0, 0] = True
    block, column = alive.nonzero(as_tuple=True)
    return U[block, :, column].T, W[block, :, column].T, block


def price(gauge: Gauge, U: Float[Tensor, "d m"], W: Float[Tensor, "b m"]) -> float:
    """Of neurons that share one block."""
    return as_protocol(gauge, Factorised).factor_penalty(Factors(U[None], W[None]))


def check_units(neurons: Float[Tensor, "m d"]) -> None:
    length = torch.linalg.vector_norm(neurons, dim=1)
    if bool((length - 1).abs().gt(1e-9).any()):
        raise ValueError("neurons must have length one; divide each by its norm and multiply its output weights.")
