"""Random tensors for tests."""

import torch
from torch import Tensor


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal numbers in double precision."""
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64)
