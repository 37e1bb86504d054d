"""The samples of one rank, in memory or on disk, and the gated operator on them."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.architectures import GatedMLP
from bidual.operators import LiftedOperator
from bidual.operators.tiled import MappedRows, TiledOperator

_TILE = 2**14  # rows


class Rows(ABC):
    """A rank's encoded samples."""

    @abstractmethod
    def tiles(self) -> Iterator[Float[Tensor, "r d"]]:
        """The samples in float64, a few rows at a time."""

    @abstractmethod
    def operator(self, architecture: GatedMLP, n_outputs: int, device: torch.device) -> LiftedOperator:
        """The operator of the family on these samples, on this device; samples and gates are on the CPU."""


@dataclass(frozen=True, eq=False)
class RowsInMemory(Rows):
    X: Float[Tensor, "n d"]

    def tiles(self) -> Iterator[Tensor]:
        yield from self.X.split(_TILE)

    def operator(self, architecture: GatedMLP, n_outputs: int, device: torch.device) -> LiftedOperator:
        there = replace(architecture, gates=architecture.gates.to(device))
        return there.lift(self.X.to(device), n_outputs)


@dataclass(frozen=True, eq=False)
class RowsOnDisk(Rows):
    samples: MappedRows

    def tiles(self) -> Iterator[Tensor]:
        for start in range(0, len(self.samples), _TILE):
            yield self.samples.tile(slice(start, start + _TILE), torch.float64)

    def operator(self, architecture: GatedMLP, n_outputs: int, device: torch.device) -> LiftedOperator:
        samples = replace(self.samples, constant=architecture.bias)
        return TiledOperator(samples, architecture.gates, n_outputs, torch.float64, device=device)
