"""For which data the relaxation equals the training optimum."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.patterns import count_bound
from bidual.patterns.reduction import reduce_rank
from bidual.patterns.row_directions import direction_groups, representatives
from bidual.patterns.spike_free import is_spike_free
from bidual.training.copositive.cones import PatternCones

_FACETS = 4  # doubly non-negative matrices of this order are completely positive (Maxfield and Minc 1962)
_MOST_PATTERNS = 200_000


@dataclass(frozen=True)
class Tightness:
    """Whether the relaxation (19), or (20) for spike-free data, is guaranteed to equal the training optimum.

    Attributes:
        guaranteed: False means only that there is no guarantee.
        reason: one sentence.
        most_facets: of any cone, None where facets were not counted.
    """

    guaranteed: bool
    reason: str
    most_facets: int | None


def tightness(X: Float[Tensor, "n d"]) -> Tightness:
    r"""Count the facets of every cone.

    A cone K u >= 0 with f facets relaxes K u u^T K^T to a doubly non-negative matrix of order f. For f <= 4 these are
    sums of such rank-one matrices, for f >= 5 not all are. CP states d <= 4 instead of f <= 4, which is false: cones of
    dimension three can have five facets. In the plane every cone has two.
    """
    if X.ndim != 2 or not X.shape[0] or not bool(torch.isfinite(X).all()):
        raise ValueError(f"X must be a finite matrix with at least one row, got shape {tuple(X.shape)}.")
    X = X.detach().to("cpu", torch.float64)
    rank = reduce_rank(X.numpy()).rank
    if rank <= 2:
        return Tightness(True, f"X has rank {rank}, and cones of the plane have at most two facets.", min(rank, 2))
    if is_spike_free(X).holds:
        facets = len(representatives(direction_groups(X)))
        return _verdict(facets, "the one cone of spike-free data")
    if count_bound(len(X), rank) > _MOST_PATTERNS:
        return Tightness(False, f"{len(X)} samples of rank {rank} have too many cones to examine.", None)
    counts = PatternCones.of(X).facets.any(2).sum(1)
    if int(counts.min()) < rank:  # pointed cones have as many facets as dimensions; rounding took some
        return Tightness(False, "some rows of X are parallel up to rounding: facets cannot be counted.", None)
    return _verdict(int(counts.max()), "some cone")


def _verdict(facets: int, which: str) -> Tightness:
    if facets <= _FACETS:
        return Tightness(True, f"no cone has more than {facets} facets, and up to {_FACETS} are exact.", facets)
    return Tightness(False, f"{which} has {facets} facets, and only up to {_FACETS} are exact.", facets)
