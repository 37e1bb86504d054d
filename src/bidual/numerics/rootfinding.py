"""Roots of many increasing functions at once, and the inverse of w + log w."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

Increasing = Callable[[Tensor], tuple[Tensor, Tensor]]


def increasing_root(function: Increasing, low: Tensor, high: Tensor, start: Tensor, steps: int = 200) -> Tensor:
    """Newton kept inside a bracket, entry by entry; it bisects wherever Newton does not at least halve its step.

    ``function(x)`` returns values and slopes (a slope of zero means unknown); the values are non-decreasing in x, not
    positive at ``low`` and not negative at ``high``.
    """
    x, last_move = torch.clamp(start, low, high), high - low
    tolerance = 4 * torch.finfo(x.dtype).eps
    done = torch.zeros_like(x, dtype=torch.bool)
    for _ in range(steps):
        value, slope = function(x)
        low, high = torch.where(value <= 0, x, low), torch.where(value >= 0, x, high)
        move = -value / torch.where(slope > 0, slope, 1.0)
        useful = (slope > 0) & (x + move >= low) & (x + move <= high) & (2 * move.abs() <= last_move.abs())
        done = done | ((slope > 0) & (move.abs() <= tolerance * (1 + x.abs()))) | (high - low <= tolerance * x.abs())
        if bool(done.all()):
            break
        last_move = torch.where(useful, move, 0.5 * (low + high) - x)
        x = torch.where(done, x, x + last_move)
    return x


def wright_omega(z: Tensor) -> Tensor:
    """The w > 0 with w + log w = z, by two steps of Fritsch, Shafer and Crowley (1973) from a rough start."""
    z = z.clamp(min=0.9 * math.log(torch.finfo(z.dtype).tiny))
    w = torch.where(z > 1, z - z.clamp(min=1).log(), z.clamp(max=1).exp() / (1 + 0.8 * z.clamp(max=1).exp()))
    for _ in range(3):
        r = z - w - w.log()
        y = 2 * (1 + w) * (1 + w + 2 * r / 3)
        w = w * (1 + r / (1 + w) * (y - r) / (y - 2 * r))
    return w
