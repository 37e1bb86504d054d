"""Rows of one direction, positive multiples of one another: a neuron is active on all of them or on none."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from bidual.numerics.rounding import exact_product

# Two rounded unit vectors of one direction differ by at most a few units in the last place of every entry.
ROUNDING = 8 * torch.finfo(torch.float64).eps


def unit_rows(X: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """x_i / |x_i| in float64, without overflow or underflow; zero rows stay zero."""
    X = X.to(torch.float64)
    size = X.abs().amax(1, keepdim=True) if X.shape[1] else X.new_zeros(len(X), 1)
    scaled = X / torch.where(size > 0, size, 1.0)
    norm = torch.linalg.vector_norm(scaled, dim=1, keepdim=True)
    return scaled / torch.where(norm > 0, norm, 1.0)


def direction_groups(X: Float[Tensor, "n d"], tol: float = ROUNDING) -> Int[Tensor, " n"]:
    """One label 0, 1, ... per direction x_i / |x_i|, equal up to ``tol``; -1 for zero rows.

    It compares neighbours in the order of one random projection, so n may be large. Two rows of one direction get two
    labels only if a third direction has the same projection.
    """
    unit = unit_rows(X)
    labels = torch.full((len(X),), -1, dtype=torch.long)
    rows = unit.any(1).nonzero()[:, 0]
    if not len(rows):
        return labels
    probe = torch.randn(X.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = rows[(unit[rows] @ probe).argsort(stable=True)]
    jumps = torch.linalg.vector_norm(unit[rows].diff(dim=0), dim=1) > tol
    labels[rows] = torch.cat([torch.zeros(1, dtype=torch.long), jumps.long().cumsum(0)])
    return labels


def representatives(labels: Int[Tensor, " n"]) -> Int[Tensor, " k"]:
    """The first row of every group."""
    count = int(labels.max()) + 1 if len(labels) else 0
    first = torch.full((count,), len(labels), dtype=torch.long)
    rows = (labels >= 0).nonzero()[:, 0]
    return first.scatter_reduce_(0, labels[rows], rows, "amin")


def exactly_aligned(X: Float[Tensor, "m d"], R: Float[Tensor, "m d"]) -> Bool[Tensor, " m"]:
    r"""Whether rows x and r are positive multiples of each other in real arithmetic; False also where undecided.

    They are if x_j r_k = r_j x_k for all j and one k with r_k x_k > 0. Products are compared without rounding: a b is
    its float64 value plus an error that is a float64 number too, if neither overflows or underflows (Dekker 1971).
    """
    k = R.abs().argmax(1, keepdim=True)
    left, right = exact_product(X, R.gather(1, k)), exact_product(R, X.gather(1, k))
    same = ((left[0] == right[0]) & (left[1] == right[1])).all(1)
    return same & _in_range(X).all(1) & _in_range(R).all(1) & (X.gather(1, k) * R.gather(1, k) > 0)[:, 0]


def _in_range(A: Tensor) -> Tensor:
    """Whether products and their errors are numbers: none is beyond 2^450 or, but for zero, below 2^-450."""
    return (A == 0) | ((A.abs() < 2.0**450) & (A.abs() > 2.0**-450))
