"""Bounds of a network's objective, of whatever family: its data term, and what its weights cost."""

import math
import sys
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.estimators.certifying.given import Objective
from bidual.losses.datafit import Datafit
from bidual.numerics.rounding import TINY, gamma, largest_sum, length, rounded_up
from bidual.types import Matrix


class Price(NamedTuple):
    """What weights cost per unit of beta: about, at most, and whether it is zero without any rounding."""

    about: float
    most: float
    nothing: bool

    @classmethod
    def of_weight_decay(cls, *weights: Tensor) -> "Price":
        """Half the sum of squares, which are rounded once and added up exactly or nearly so."""
        squares = torch.cat([weight.flatten() for weight in weights]).square()
        most = 0.5 * largest_sum(squares) * (1 + gamma(8)) + squares.numel() * TINY
        about = 0.5 * min(float(squares.sum()), sys.float_info.max)
        return cls(about, most, not bool(squares.any()))


def bounded_objective(
    data: Datafit, beta: float, P: Matrix, bias: Float[Tensor, " c"] | None, error: float, price: Price
) -> Objective:
    """Of predictions P, off by at most ``error`` in the Frobenius norm, plus an output bias in the targets' units."""
    assert data.shift is not None
    b = torch.zeros_like(data.shift) if bias is None else bias - data.shift
    error = error + gamma(2) * length(b) * len(P) ** 0.5
    most = replace(data, intercept=False).upper_bound(P + b, rounded_up(error))
    costs, decay = beta * price.most + beta * TINY, beta * price.about
    value = data.value_at(P, b) + decay
    if not (math.isfinite(value) and math.isfinite(most + costs)):
        return Objective((1 - 1e-9) * decay, math.inf, data.grad(P))  # losses are not negative
    most = rounded_up(most + costs) if most or not price.nothing else 0.0
    return Objective(value - 2 * (most - value) - 1e-12 * value, most, data.grad(P))
