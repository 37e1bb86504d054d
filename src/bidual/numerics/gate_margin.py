"""When a gate counts as on: x g >= 0, up to rounding.

A gate that is exactly zero on a sample (an edge filter on a flat patch) would be on or off by the rounding of x g, and
a gated network is not continuous there. With a margin that covers this rounding, every implementation counts it as on.
"""

import torch
from torch import Tensor

_EPS = torch.finfo(torch.float64).eps


def is_on(products: Tensor, sizes: Tensor, terms: int) -> Tensor:
    """1{x g >= 0}, from sums of ``terms`` products x_j g_j, and the sums of their absolute values."""
    return products >= -4 * (terms + 8) * _EPS * sizes
