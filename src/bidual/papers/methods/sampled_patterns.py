"""Activation patterns of random directions."""

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.patterns import Patterns
from bidual.patterns.sampling import first_of_each


def sample(X: Float[Tensor, "n d"], count: int, seed: int) -> Patterns:
    """At most ``count`` different patterns of random normal directions; fewer if X has fewer or they are rare."""
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}.")
    generator = torch.Generator().manual_seed(seed)
    found = Patterns(torch.zeros(0, len(X), dtype=torch.bool, device=X.device), X.new_zeros(0, X.shape[1]))
    for _ in range(4):
        more = torch.randn(count, X.shape[1], generator=generator, dtype=torch.float64).to(X)
        directions = torch.cat([found.directions, more])
        active = directions @ X.T >= 0
        kept = first_of_each(active)[:count]
        found = Patterns(active[kept], directions[kept])
        if len(found) == count:
            break
    return found
