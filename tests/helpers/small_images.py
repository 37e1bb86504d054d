"""Tiny images that a small network can tell apart, and settings to match."""

import torch
from torch import Tensor

from bidual.training.layerwise import Settings


def bars(n: int = 60, side: int = 8, channels: int = 2, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Noise with a bright row, a bright column or neither: bytes (n, channels, side, side) and labels 0, 1, 2."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 90, (n, channels, side, side), generator=generator, dtype=torch.uint8)
    labels = torch.arange(n) % 3
    places = torch.randint(0, side, (n,), generator=generator)
    for image, label, place in zip(images, labels.tolist(), places.tolist(), strict=True):
        if label == 0:
            image[:, place] = 255
        elif label == 1:
            image[:, :, place] = 255
    return images, labels


def settings(**changes: object) -> Settings:
    """Three small stages, without augmentation."""
    plain: dict[str, object] = {
        "gates": 4,
        "factors": 2,
        "downsample": (False, True, False),
        "epochs": 3,
        "batch_size": 16,
        "drop_every": 2,
        "rates": (0.1, 0.1, 0.1),
        "crop": 0,
        "flip": False,
        "trial": 3,
    }
    return Settings(**(plain | changes))  # type: ignore[arg-type]
