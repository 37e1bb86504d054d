"""A network family: the lifting of its data, the price of its weights, and the decoding of a lifted solution."""

from abc import ABC, abstractmethod
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bidual.architectures.modules import RebuildableModule
from bidual.gauges import Gauge
from bidual.operators import LiftedOperator
from bidual.types import Blocks


class Architecture(ABC):
    """One network family with its settings (a frozen dataclass)."""

    name: ClassVar[str]

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
