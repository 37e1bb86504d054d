"""Rows that are positive multiples of one another: a neuron is active on all of them or on none."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

# Two rounded unit vectors of one direction differ by at most a few units in the last place of every entry.
ROUNDING = 8 * torch.finfo(torch.float64).eps


def unit_rows(X: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """x_i / |x_i| in float64, without overflow or underflow; zero rows stay zero."""
    X = X.to(torch.float64)
    size = X.abs().amax(1, keepdim=True) if X.shape[1] else X.new_zeros(len(X), 1)
    scaled = X / torch.where(size > 0, size, 1.0)
    norm = torch.linalg.vector_norm(scaled, dim=1, keepdim=True)
    return scaled / torch.where(norm > 0, norm, 1.0)


def parallel_groups(X: Float[Tensor, "n d"], tol: float = ROUNDING) -> Int[Tensor, " n"]:
    """One label 0, 1, ... per direction x_i / |x_i|, equal up to ``tol``; -1 for zero rows.

    Neighbours in the order of one random projection are compared, so n may be large. Two rows of one direction get two
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
