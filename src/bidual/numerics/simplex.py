"""The Euclidean projection of rows onto the probability simplex."""

import torch
from torch import Tensor

from bidual.types import Matrix


def onto_simplex(P: Matrix) -> Matrix:
    r"""argmin_q |q - p|_2 subject to q >= 0, sum_k q_k = 1, for every row p.

    It is q = (p - t)_+ with t = max_k (p_(1) + ... + p_(k) - 1) / k over the k largest entries (Held, Wolfe and Crowder
    1974). Adding a number to a row changes nothing, and entries more than one below the largest are zero in q: rows are
    moved into [-1, 0] first, so that large ones lose nothing to rounding.
    """
    near = (P - P.amax(1, keepdim=True)).clamp(min=-1)
    sums = near.sort(1, descending=True).values.cumsum(1)
    counts = torch.arange(1, P.shape[1] + 1, dtype=P.dtype, device=P.device)
    level: Tensor = ((sums - 1) / counts).amax(1, keepdim=True)
    return (near - level).clamp(min=0)
