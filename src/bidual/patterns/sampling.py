"""Activation patterns of ReLU gates: D_p = diag(1{X h_p >= 0}) (BM section 2.1)."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bidual.numerics.gate_margin import is_on
from bidual.numerics.sparse import column_spread, side_by_side, values_of


def activations(X: Float[Tensor, "n d"], gates: Float[Tensor, "d p"]) -> Bool[Tensor, "p n"]:
    """1{X h_p >= 0}, one row per gate; values that are zero up to rounding count as active."""
    if X.shape[1] != len(gates):
        raise ValueError(f"gates must have one row per feature ({X.shape[1]}), got {len(gates)}.")
    return is_on(X @ gates, X.abs() @ gates.abs(), len(gates)).T.contiguous()


def sample_gates(
    X: Float[Tensor, "n d"],
    count: int,
    generator: torch.Generator,
    *,
    bias: bool = False,
    weight: Float[Tensor, " n"] | None = None,
) -> Float[Tensor, "k p"]:
    r"""``count`` random gates h for the columns of X, and for a constant column behind them if ``bias``.

    Directions are normal in the units in which every column of X has mean zero (with ``bias``) and variance one, so
    the patterns do not change when a feature is measured in other units. The threshold of a gate with bias is normal
    too, relative to the spread of X h. Gates that repeat a pattern on X, or are off everywhere, are dropped: at most
    ``count`` are returned.
    """
    like = values_of(X)
    share = like.new_full((len(X),), 1 / len(X)) if weight is None else weight / weight.sum()
    centre, spread, largest = column_spread(X, share, bias)
    directions = torch.randn(X.shape[1], count, generator=generator, dtype=torch.float64).to(like)
    thresholds = torch.randn(count, generator=generator, dtype=torch.float64).to(like)
    gates = directions / torch.where(spread > 1e-12 * largest, spread, 1.0)[:, None]
    if bias:
        shift = thresholds * torch.linalg.vector_norm(directions, dim=0) - centre @ gates
        gates = torch.cat([gates, shift[None]])
        X = with_constant(X)
    kept = distinct(activations(X, gates))
    if not len(kept):  # all gates are off on all samples: turned around, they are on
        gates, kept = -gates, distinct(activations(X, -gates))
    return gates[:, kept]


def distinct(patterns: Bool[Tensor, "p n"]) -> Tensor:
    """Indices of the first gate of every distinct pattern, in order, without the pattern that is off everywhere."""
    order = first_of_each(patterns)
    return order[patterns[order].any(1)]


def first_of_each(patterns: Bool[Tensor, "p n"]) -> Tensor:
    """Indices of the first of every distinct row, in order."""
    _, label = torch.unique(patterns, dim=0, return_inverse=True)
    first = torch.full((int(label.max()) + 1 if len(label) else 0,), len(label), device=patterns.device)
    first.scatter_reduce_(0, label, torch.arange(len(label), device=patterns.device), "amin")
    return first.sort().values


def with_constant(X: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
    """X with a column of ones behind it, the feature of a hidden bias."""
    return side_by_side([X, values_of(X).new_ones(len(X), 1)])
