"""What a stage is trained on: the channels of the frozen stages before it, kept or made again for every batch."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from bidual.layerwise.augmentation import augmented
from bidual.layerwise.settings import Settings
from bidual.memory import available_bytes
from bidual.networks.layerwise import GatedStage

_AT_ONCE = 512  # images that pass the frozen stages together
_SHARE = 3  # of the free memory, one part may go to what is kept

Frozen = Callable[[Tensor], Tensor]


class Batch(NamedTuple):
    """What the filters of a stage see, and what is on."""

    x: Tensor
    on: Tensor


class Inputs(ABC):
    """Batches for one stage."""

    @abstractmethod
    def batch(self, rows: Tensor, generator: torch.Generator) -> Batch: ...


@dataclass(frozen=True, eq=False)
class FreshInputs(Inputs):
    """Images augmented anew whenever they are asked for, through the frozen stages."""

    images: Tensor
    frozen: Frozen
    stage: GatedStage
    settings: Settings
    device: torch.device

    @torch.no_grad()
    def batch(self, rows: Tensor, generator: torch.Generator) -> Batch:
        x = as_input(self.images[rows], self.device)
        if self.settings.augments:
            x = augmented(x, self.settings.crop, self.settings.flip, generator)
        x = self.stage.prepare(self.frozen(x.contiguous(memory_format=torch.channels_last)))
        return Batch(x, self.stage.activity(x))


@dataclass(frozen=True, eq=False)
class KeptInputs(Inputs):
    """Without augmentation neither channels nor gates change: both are computed once."""

    x: Tensor
    on: Tensor

    def batch(self, rows: Tensor, generator: torch.Generator) -> Batch:
        return Batch(self.x[rows], self.on[rows])


def inputs_of(
    images: Tensor,
    frozen: Frozen,
    stage: GatedStage,
    settings: Settings,
    device: torch.device,
    keep: bool | None = None,
) -> Inputs:
    """Kept where nothing is random and memory allows, or where ``keep`` says so, and fresh otherwise.

    The numbers are the same up to the rounding of convolutions over batches of another size.
    """
    fresh = FreshInputs(images, frozen, stage, settings, device)
    if keep is None:
        keep = not settings.augments and _kept_bytes(images, fresh) <= available_bytes(device) // _SHARE
    return _kept(fresh) if keep else fresh


def _kept(fresh: FreshInputs) -> KeptInputs:
    unused, whole = torch.Generator(), None
    for rows in torch.arange(len(fresh.images)).split(_AT_ONCE):
        part = fresh.batch(rows, unused)
        whole = whole or Batch(*(_room(len(fresh.images), tensor) for tensor in part))
        for target, tensor in zip(whole, part, strict=True):
            target[rows[0] : rows[-1] + 1] = tensor
    assert whole is not None
    return KeptInputs(*whole)


def _room(n: int, like: Tensor) -> Tensor:
    """For n images, channels last."""
    shape = (n, *like.shape[1:])
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=torch.channels_last)


def as_input(images: Tensor, device: torch.device) -> Tensor:
    return images.to(device, torch.float32)


def _kept_bytes(images: Tensor, fresh: FreshInputs) -> int:
    one = fresh.batch(torch.zeros(1, dtype=torch.long), torch.Generator())
    return len(images) * sum(part.numel() * part.element_size() for part in one)
