"""Random crops and mirror images."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

Images = Float[Tensor, "n c h w"]


def augmented(x: Images, crop: int, flip: bool, generator: torch.Generator) -> Images:
    """Every image, mirrored by chance, in a random window of its own with ``crop`` zeros around it."""
    n, _, height, width = x.shape
    if flip:
        mirrored = torch.rand(n, generator=generator) < 0.5
        x = torch.where(mirrored[:, None, None, None].to(x.device), x.flip(3), x)
    if not crop:
        return x
    padded = functional.pad(x, (crop,) * 4).permute(0, 2, 3, 1)
    corners = torch.randint(2 * crop + 1, (2, n, 1), generator=generator)
    rows, columns = (corner + torch.arange(side) for corner, side in zip(corners, (height, width), strict=True))
    picked = [torch.arange(n)[:, None, None], rows[:, :, None], columns[:, None, :]]
    return padded[tuple(index.to(x.device) for index in picked)].permute(0, 3, 1, 2)
