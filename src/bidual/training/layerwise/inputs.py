"""The inputs of a stage: augmented images through the frozen stages before it, stored or computed for every batch."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from bidual.architectures.modules.layerwise import GatedStage
from bidual.runtime.memory import available_bytes
from bidual.runtime.ranks import ALONE, Ranks
from bidual.training.layerwise.checkpoint import Settings

Images = Float[Tensor, "n c h w"]
_AT_ONCE = 512  # images that pass the frozen stages together
_SHARE = 3  # stored inputs may take this fraction of the free memory, 1 / 3

Frozen = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Moves:
    """How every image of a batch is moved.

    Attributes:
        crop: width of the border of zeros; the window is cut from the image with its border.
        mirrored: which images are mirrored, (n,).
        corners: of the windows, rows and columns from 0 to 2 crop, (2, n, 1).
    """

    crop: int
    mirrored: Tensor
    corners: Tensor

    @classmethod
    def drawn(cls, n: int, crop: int, flip: bool, generator: torch.Generator) -> Self:
        """Random moves of n images; without crop and flip no random number is drawn."""
        mirrored, corners = torch.zeros(n, dtype=torch.bool), torch.zeros(2, n, 1, dtype=torch.long)
        if flip:
            mirrored = torch.rand(n, generator=generator) < 0.5
        if crop:
            corners = torch.randint(2 * crop + 1, (2, n, 1), generator=generator)
        return cls(crop, mirrored, corners)

    def of(self, some: slice) -> Self:
        return type(self)(self.crop, self.mirrored[some], self.corners[:, some])

    def __call__(self, x: Images) -> Images:
        n, _, height, width = x.shape
        if bool(self.mirrored.any()):
            x = torch.where(self.mirrored[:, None, None, None].to(x.device), x.flip(3), x)
        if not self.crop:
            return x
        padded = functional.pad(x, (self.crop,) * 4).permute(0, 2, 3, 1)
        sides = zip(self.corners, (height, width), strict=True)
        rows, columns = (corner + torch.arange(side) for corner, side in sides)
        picked = [torch.arange(n)[:, None, None], rows[:, :, None], columns[:, None, :]]
        return padded[tuple(index.to(x.device) for index in picked)].permute(0, 3, 1, 2)


class Batch(NamedTuple):
    """The inputs of the filters of a stage, and which gates are on."""

    x: Tensor
    on: Tensor


class Inputs(ABC):
    """Batches for one stage."""

    @abstractmethod
    def batch(self, rows: Tensor, generator: torch.Generator) -> Batch:
        """A rank's share of a batch. All ranks draw random numbers for the whole batch, so that they draw the same."""

    def own(self, rows: Tensor) -> Tensor:
        """The images of a batch in that share: all of them in one process."""
        return rows


@dataclass(frozen=True, eq=False)
class FreshInputs(Inputs):
    """Images augmented anew for every batch, through the frozen stages. Ranks share batches evenly."""

    images: Tensor
    frozen: Frozen
    stage: GatedStage
    settings: Settings
    device: torch.device
    ranks: Ranks = ALONE

    def own(self, rows: Tensor) -> Tensor:
        return rows[self.ranks.part(len(rows))]

    @torch.no_grad()
    def batch(self, rows: Tensor, generator: torch.Generator) -> Batch:
        x = as_input(self.images[self.own(rows)], self.device)
        if self.settings.augments:
            moves = Moves.drawn(len(rows), self.settings.crop, self.settings.flip, generator)
            x = moves.of(self.ranks.part(len(rows)))(x)
        return self._seen(x)

    @torch.no_grad()
    def plain(self, rows: Tensor) -> Batch:
        """The images without augmentation."""
        return self._seen(as_input(self.images[rows], self.device))

    def _seen(self, x: Tensor) -> Batch:
        x = self.stage.prepare(self.frozen(x.contiguous(memory_format=torch.channels_last)))
        return Batch(x, self.stage.activity(x))


@dataclass(frozen=True, eq=False)
class KeptInputs(Inputs):
    """Channels and gates computed once, which is possible without augmentation.

    A rank stores those of consecutive images from number ``first`` on, and trains on these images of every batch.
    """

    x: Tensor
    on: Tensor
    first: int = 0

    def own(self, rows: Tensor) -> Tensor:
        return rows[(rows >= self.first) & (rows < self.first + len(self.x))]

    def batch(self, rows: Tensor, generator: torch.Generator) -> Batch:
        places = self.own(rows) - self.first
        return Batch(self.x[places], self.on[places])


def inputs_of(
    images: Tensor,
    frozen: Frozen,
    stage: GatedStage,
    settings: Settings,
    device: torch.device,
    ranks: Ranks = ALONE,
    keep: bool | None = None,
) -> Inputs:
    """Stored inputs without augmentation and with enough memory on all ranks, or if ``keep``; fresh ones otherwise.

    Both agree up to the rounding of convolutions over batches of another size.
    """
    fresh = FreshInputs(images, frozen, stage, settings, device, ranks)
    if keep is None:
        keep = not settings.augments and all(ranks.collect(_fits(fresh)))
    return _kept(fresh) if keep else fresh


def _kept(fresh: FreshInputs) -> KeptInputs:
    own, whole = torch.arange(len(fresh.images))[fresh.ranks.part(len(fresh.images))], None
    for places in torch.arange(len(own)).split(_AT_ONCE):
        part = fresh.plain(own[places])
        whole = whole or Batch(*(_room(len(own), tensor) for tensor in part))
        for target, tensor in zip(whole, part, strict=True):
            target[places[0] : places[-1] + 1] = tensor
    assert whole is not None
    return KeptInputs(*whole, first=int(own[0]))


def _room(n: int, like: Tensor) -> Tensor:
    """For n images, channels last."""
    shape = (n, *like.shape[1:])
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=torch.channels_last)


def as_input(images: Tensor, device: torch.device) -> Tensor:
    return images.to(device, torch.float32)


def _fits(fresh: FreshInputs) -> bool:
    """Whether the shares of all ranks that use this memory fit into it."""
    one = fresh.plain(torch.zeros(1, dtype=torch.long))
    rows = -(-len(fresh.images) // fresh.ranks.size) * (1 if fresh.device.type == "cuda" else fresh.ranks.here)
    needed = rows * sum(part.numel() * part.element_size() for part in one)
    return needed <= available_bytes(fresh.device) // _SHARE
