"""The cost of the exact oracle and of branch and bound on the sphere for given data."""

from math import comb

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.patterns import count_bound, enumeration_bytes
from bidual.polar.sphere.oracle import Sphere
from bidual.runtime.memory import available_bytes

_AFFORDABLE_FACES = 1_500_000  # a query of the exact oracle then takes a few seconds
_QUICK_FACES = 100_000
_AFFORDABLE_BYTES = 3_000_000_000
_QUICK_RANK, HIGHEST_RANK = 5, 6  # that cutting the sphere copes with
_QUICK_SIMPLICES, _MOST_SIMPLICES = 250_000, 2_000_000  # about twenty thousand a second
_SAMPLES = 20_000  # beyond, the first simplices, which see all samples, take too long


def face_count(n: int, r: int) -> int:
    """The most cells that the flats of dimension two and more of n rows of rank r can have."""
    return sum(comb(n, r - k) * count_bound(n - (r - k), k) for k in range(2, r + 1)) if r > 1 else 2


def affordable(n: int, r: int) -> bool:
    """Whether the exact oracle is quick and small enough to be the default."""
    room = min(_AFFORDABLE_BYTES, available_bytes(torch.device("cpu")) // 2)
    return r <= 2 or (face_count(n, r) <= _AFFORDABLE_FACES and enumeration_bytes(n, r) <= room)


def slow(n: int, r: int) -> bool:
    """Whether a query of the exact oracle takes so long that a search should come first."""
    return face_count(n, r) > _QUICK_FACES


def cuttable(n: int, r: int, max_time: float | None) -> bool:
    """Whether branch and bound on the sphere copes with n samples of rank r."""
    return r <= (_QUICK_RANK if max_time is None else HIGHEST_RANK) and n <= _SAMPLES


def sphere_for(X: Float[Tensor, "n d"], tol: float, max_time: float | None) -> Sphere:
    """Branch and bound on the sphere, with a limit on its simplices or, if one is given, on its time.

    Without ``max_time`` a query ends after about ten seconds, always at the same simplex.
    """
    limit = _QUICK_SIMPLICES if max_time is None else _MOST_SIMPLICES
    return Sphere(X, tol=max(tol, 1e-9), max_time=max_time, max_simplices=limit)
