r"""How far float64 can be from real arithmetic: what certificates allow for.

Every operation returns the real result times 1 + e with |e| <= u = 2^-53, or, where it underflows, with an error below
the smallest normal number. A sum of k terms that each went through at most k such operations, in whatever order, fused
or not, by blocks or one by one, is off by at most

    gamma_k = k u / (1 - k u)

times the sum of the absolute values (Higham 2002, Accuracy and Stability of Numerical Algorithms, section 3.1 and
problem 4.2). Nothing is assumed about the order in which a BLAS adds.
"""

import math
from typing import TypeVar

import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

UNIT = 2.0**-53
TINY = 2.0**-1022  # the smallest normal number: what an underflow can cost, flushed to zero or not
Numbers = TypeVar("Numbers", Tensor, ndarray)
_FEW = 4096  # terms that are added by torch before an exact sum goes on


def gamma(operations: float, dtype: torch.dtype = torch.float64) -> float:
    """The relative error of a sum whose terms went through so many operations; infinity where no bound is known."""
    total = operations * torch.finfo(dtype).eps / 2
    return total / (1 - total) * (1 + 4 * UNIT) if total < 0.5 else math.inf


def rounded_up(x: float) -> float:
    """A number that is larger than x and than all that a few roundings made smaller than x."""
    return x + 16 * UNIT * abs(x) + TINY


def exact_product(A: Numbers, B: Numbers) -> tuple[Numbers, Numbers]:
    """a b, rounded, and what the rounding cut off (Dekker's product, with Veltkamp's splitting), within range."""
    product = A * B
    (a, low_a), (b, low_b) = _halves(A), _halves(B)
    return product, low_a * low_b - (((product - a * b) - low_a * b) - a * low_b)


def _halves(A: Numbers) -> tuple[Numbers, Numbers]:
    """26 leading bits, and the rest."""
    wide = (2.0**27 + 1) * A
    high = wide - (wide - A)
    return high, A - high


def largest_sum(parts: Float[Tensor, " n"]) -> float:
    """An upper bound of the sum of some numbers, exact to a few roundings for up to some thousands of them."""
    if not bool(torch.isfinite(parts).all()):
        return float(parts.sum())
    total, size = _total(parts), _total(parts.abs())
    error = gamma(2 if len(parts) <= _FEW else _FEW) * size + len(parts) * TINY
    return rounded_up(total + error) if math.isfinite(total + error) else math.inf


def _total(parts: Tensor) -> float:
    numbers = parts.tolist() if len(parts) <= _FEW else [part.sum().item() for part in parts.split(_FEW)]
    try:
        return math.fsum(numbers)
    except OverflowError:
        return math.inf


def length(x: Tensor) -> float:
    """An upper bound of |x|_2 at any scale: neither squares nor sums leave the range of numbers."""
    x = x.to(torch.float64)
    top = float(x.abs().max()) if x.numel() else 0.0
    if top == 0 or not math.isfinite(top):
        return top
    return rounded_up(top * float(torch.linalg.vector_norm(x / top)) * (1 + gamma(x.numel() + 8)))
