"""Factors as vectors."""

import torch

from bidual.gauges import Factors


def plus(first: Factors, second: Factors, step: float) -> Factors:
    """first + step * second."""
    return Factors(first.U + step * second.U, first.W + step * second.W)


def inner(first: Factors, second: Factors) -> float:
    """<first, second>."""
    return float((first.U * second.U).sum() + (first.W * second.W).sum())


def norm(factors: Factors) -> float:
    """The length of all factors, or of a gradient."""
    return inner(factors, factors) ** 0.5


def resized(factors: Factors, m: int) -> Factors:
    """The first m columns of every block, zero columns behind them where there are fewer."""
    U, W = factors
    missing = max(m - U.shape[2], 0)
    return Factors(*(torch.nn.functional.pad(part[:, :, :m], (0, missing)) for part in (U, W)))
