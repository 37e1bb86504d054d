"""Data of any rank, scaled and rotated to full column rank before a bound is computed."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from bidual.patterns.reduction import reduce_rank

_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Scaled:
    r"""X = size * (x frame^T) + rest, with x of full column rank and norm 1 (rank reduction by SVD, CP A.2).

    The ReLU is 1-Lipschitz, so for every V

        max_{|u|<=1} |V^T (X u)_+| <= size * max_{|z|<=1} |V^T (x z)_+| + leftover * |V|_F.

    Attributes:
        x: the reduced data (n, r).
        frame: orthonormal columns (d, r): u = frame z.
        size: the norm that was divided out.
        leftover: a bound of the norm of what the reduction lost, rounding included.
    """

    x: Float[ndarray, "n r"]
    frame: Float[ndarray, "d r"]
    size: float
    leftover: float

    @classmethod
    def of(cls, X: Float[Tensor, "n d"]) -> Self:
        data = X.detach().to("cpu", torch.float64).numpy()
        reduced = reduce_rank(data)
        size = float(np.linalg.norm(reduced.samples, 2)) if reduced.rank else 1.0
        x = reduced.samples / size
        lost = float(np.linalg.norm(data - size * x @ reduced.basis.T))
        return cls(x, reduced.basis, size, lost + 8 * max(*data.shape, 1) * _EPS * float(np.linalg.norm(data)))

    def bound(self, reduced: float, norm: float) -> float:
        """The polar's bound for X from one for x, where ``norm`` is |V|_F."""
        return (self.size * reduced + self.leftover * norm) * (1 + 8 * _EPS)

    def directions(self, Z: Float[ndarray, "q r"]) -> Float[Tensor, "q d"]:
        """Directions of R^d from reduced ones."""
        return torch.from_numpy(Z @ self.frame.T)
