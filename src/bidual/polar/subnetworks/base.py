"""The base of the oracles of parallel networks."""

from copy import copy
from math import inf, prod
from time import perf_counter
from typing import Self

from jaxtyping import Float
from torch import Tensor

from bidual.gauges import Bracket
from bidual.numerics.rounding import gamma
from bidual.operators.parallel import Widths, as_widths, sub_network_size
from bidual.polar.base import NeuronOracle, Neurons, SteepestNeurons


class ParallelOracle(NeuronOracle):
    """max over sub-networks of length one of |V^T f(X)|, the left side of PR (6) and of (3) for more layers."""

    widths: Widths
    max_time: float | None = None  # seconds per query; a bracket that is stopped early is wider, and as valid

    @property
    def slope(self) -> float:
        """sqrt(m_1 m_2 ...), the largest sum of m_1 m_2 ... units of total length one (see :func:`copies`)."""
        return prod(as_widths(self.widths)) ** 0.5 * (1 + gamma(4))

    def within(self, seconds: float | None) -> Self:
        """The same oracle with another time limit."""
        other = copy(self)
        other.max_time = seconds
        return other

    def _deadline(self) -> float:
        """The end of a query that begins now."""
        return inf if self.max_time is None else perf_counter() + self.max_time

    def _nothing(self, upper: float) -> SteepestNeurons:
        size = sub_network_size(as_widths(self.widths), self.X.shape[1])
        return SteepestNeurons(Bracket(0.0, upper), self.X.new_zeros(0, size), self.X.new_zeros(0))


def copies(neurons: Neurons, widths: Widths) -> Float[Tensor, "q k"]:
    """Trees of equal units u / sqrt(m), m = m_1 m_2 ... of them and all of sign +1: f(X) = sqrt(m) (X u)_+ at the
    length |u| of one unit."""
    several = as_widths(widths)
    tree = neurons[:, None] / prod(several) ** 0.5
    for m in reversed(several):
        units = tree[:, :, None].expand(-1, -1, m, -1)
        tree = units.new_zeros(len(tree), tree.shape[1], 2, m, tree.shape[2])
        tree[:, :, 0] = units
        tree = tree.flatten(1, 3)
    return tree.flatten(1)
