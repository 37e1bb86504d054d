"""Random crops and mirror images."""

from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

Images = Float[Tensor, "n c h w"]


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
        """Those of some of the images."""
        return type(self)(self.crop, self.mirrored[some], self.corners[:, some])

    def __call__(self, x: Images) -> Images:
        """Move the images."""
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


def augmented(x: Images, crop: int, flip: bool, generator: torch.Generator) -> Images:
    """Every image, mirrored at random and shifted at random by up to ``crop`` pixels, with zeros at the border."""
    return Moves.drawn(len(x), crop, flip, generator)(x)
