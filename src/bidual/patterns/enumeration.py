"""Every activation pattern of a data matrix, and how many there can be."""

from dataclasses import dataclass
from math import comb

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bidual.numerics.norms import L2, LINF
from bidual.patterns.arrangement import Arrangement
from bidual.patterns.reduction import reduce_rank
from bidual.runtime.memory import available_bytes, human_bytes


@dataclass(frozen=True, eq=False)
class Patterns:
    """Activation patterns 1{X u >= 0} with a direction u inside the cone of each."""

    active: Bool[Tensor, "p n"]
    directions: Float[Tensor, "p d"]

    def __len__(self) -> int:
        return len(self.active)


def count_bound(n: int, r: int) -> int:
    r"""The most patterns that n samples of rank r can have, 2 sum_{k<r} C(n-1, k); generic samples attain it.

    CP section 2 prints the looser 2 r (e (n-1) / r)^r.
    """
    if n < 0 or r < 0 or r > n:
        raise ValueError(f"a rank r between 0 and n is needed, got n={n} and r={r}.")
    return 2 * sum(comb(n - 1, k) for k in range(r)) if r else 1


def enumeration_bytes(n: int, r: int) -> int:
    """About the memory that enumerating all patterns of n samples of rank r takes at its peak."""
    if r < 3:
        return 8 * (n + 1) * (n + 8)
    return n * count_bound(n - 1, min(r, n) - 1) * (2 * n + 24 * r + 48)


def check_enumerable(n: int, r: int) -> None:
    """Refuse before any work if enumeration would need more memory than is free."""
    need, there = enumeration_bytes(n, r), available_bytes(torch.device("cpu"))
    if need > there:
        raise ValueError(
            f"{n} samples of rank {r} have up to {count_bound(n, r):,} activation patterns, whose enumeration would "
            f"need {human_bytes(need)}, and {human_bytes(there)} are free; use oracle='search'."
        )


def enumerate(X: Float[Tensor, "n d"]) -> Patterns:
    """Every activation pattern of X that an open cone of directions has, with a direction in the middle of it.

    Directions on the border of two cones have further sign patterns, but the same features (X u)_+ as the patterns of
    the cones. Rows that are zero count as active.
    """
    if X.ndim != 2 or not bool(torch.isfinite(X).all()):
        raise ValueError(f"X must be a finite matrix of samples, got shape {tuple(X.shape)}.")
    rows = L2.unit(LINF.unit(X.detach().to("cpu", torch.float64)))  # hyperplanes have no length
    reduced = reduce_rank(rows.numpy())
    check_enumerable(len(X), reduced.rank)
    arrangement = Arrangement(reduced.samples)
    half = arrangement.cells(arrangement.whole)
    zero = arrangement.whole.vanishing
    signs = [1] if reduced.rank == 0 else [1, -1]
    active = np.concatenate([(half.active if s > 0 else ~half.active) | zero for s in signs])
    directions = np.concatenate([s * half.directions @ reduced.basis.T for s in signs])
    return Patterns(torch.from_numpy(active).to(X.device), torch.from_numpy(directions).to(X))
