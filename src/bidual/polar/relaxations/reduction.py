"""Data of any rank, scaled and rotated to full column rank; oracles that compute their bounds there."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from bidual.numerics.rounding import TINY, UNIT, gamma, length, rounded_up
from bidual.patterns.reduction import left_over, reduce_rank
from bidual.polar.base import NeuronOracle, SteepestNeurons
from bidual.polar.search import LocalSearch


@dataclass(frozen=True, eq=False)
class Scaled:
    r"""X = size * (x Q^T) + rest, with x of full column rank and norm 1 up to rounding (rank reduction by SVD, CP A.2).

    Q has exactly orthonormal columns; ``frame`` is a rounding of it. The ReLU is 1-Lipschitz, so for every V

        max_{|u|<=1} |V^T (X u)_+| <= size * max_{|z|<=1} |V^T (x z)_+| + leftover * |V|_F.

    Attributes:
        x: the reduced data (n, r).
        frame: orthonormal columns up to rounding (d, r): u = frame z.
        size: the norm of the reduced data before scaling.
        leftover: a bound of |rest|_2, with the rounding of V divided by a number and multiplied by it again.
        skew: a bound of |frame - Q|_2.
    """

    x: Float[ndarray, "n r"]
    frame: Float[ndarray, "d r"]
    size: float
    leftover: float
    skew: float = 0.0

    @classmethod
    def of(cls, X: Float[Tensor, "n d"]) -> Self:
        r"""Reduce X. With S the computed size * x, which is off by one rounding and one underflow in every entry,
        X - size x Q^T = (X - S Q^T) + (S - size x) Q^T. A rounding of every entry of V costs 2^-53 |V|_F |S|_F.
        """
        data = X.detach().to("cpu", torch.float64).numpy()
        reduced = reduce_rank(data)
        size = float(np.linalg.norm(reduced.samples, 2)) if reduced.rank else 1.0
        x = reduced.samples / size
        samples = size * x
        if not reduced.rank:
            return cls(x, reduced.basis, size, length(torch.from_numpy(data)))
        lost = left_over(data, samples, reduced.basis, reduced.skew)
        rounding = 4 * UNIT * length(torch.from_numpy(samples)) + 2 * TINY * samples.size
        return cls(x, reduced.basis, size, rounded_up(lost + rounding), reduced.skew)

    def bound(self, reduced: float, norm: float) -> float:
        """The polar's bound for X from one for x, where ``norm`` is |V|_F as computed: right to a thousandth."""
        return rounded_up(self.size * reduced + 1.001 * self.leftover * norm) if reduced or norm else 0.0

    def directions(self, Z: Float[ndarray, "q r"]) -> Float[Tensor, "q d"]:
        """Directions of R^d from reduced ones."""
        return torch.from_numpy(Z @ self.frame.T)

    def in_units(self, bound: float, norm: float, W: Float[Tensor, "n c"]) -> float:
        """A bound of |V^T (x z)_+| from one of |W^T (x z)_+|, W = V / norm with a rounding or underflow per entry."""
        off = gamma(2) * length(W) + W.numel() * TINY
        return rounded_up(norm * rounded_up(bound + off * (length(torch.from_numpy(self.x)) + TINY)))


class ScaledOracle(NeuronOracle):
    """An upper bound computed for scaled x and for W = V / |V|; the lower bound is a local search's.

    Subclasses are dataclasses with fields ``X`` and ``starts``, the starts of the search.
    """

    starts: int
    _scaled: Scaled

    def __post_init__(self) -> None:
        self._take(self.X)
        self._scaled = Scaled.of(self.X)

    def _search(self, V: Tensor, above: float, seeds: Tensor | None) -> SteepestNeurons:
        return LocalSearch(self.X, self.starts)._steepest(V, above, seeds)

    def _in_units_of(self, V: Tensor, W: Tensor, norm: float, bound: float) -> float:
        """The bound for X and V from one for x and W."""
        return self._scaled.bound(self._scaled.in_units(bound, norm, W), length(V))
