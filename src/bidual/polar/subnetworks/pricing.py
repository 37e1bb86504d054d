r"""The steepest three-layer sub-network, exactly: max v^T h_+ over h = sum_j s_j (X w_j)_+ with sum_j |w_j|^2 <= 1.

Rows with v_i > 0 are convex in h and rows with v_i < 0 concave:

    v_i (h_i)_+ = max over phi_i in {0, 1} of phi_i v_i h_i,   or   min over theta_i in [0, 1] of theta_i v_i h_i.

With u = (phi, theta) o v, the unit w_j in the cone C of its pattern D contributes at most |P_C(s X^T D u)|, so for
every phi, every choice of m_1 first-layer patterns with signs and every theta

    v^T h_+ <= sqrt( sum_j |P_Cj(s_j X^T D_j u)|^2 ),

and the smallest right side over theta is attained, because it is a minimax of a bilinear function. It remains to
enumerate all phi and all choices of patterns, most of which one theta rules out.
"""

from dataclasses import dataclass, field
from math import inf, sqrt

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from bidual.numerics.rounding import gamma, rounded_up
from bidual.operators.parallel import Widths, as_widths, sub_network_features
from bidual.patterns import count_bound
from bidual.patterns.reduction import Reduced, reduce_rank
from bidual.polar.base import Neurons, SteepestNeurons
from bidual.polar.subnetworks.base import ParallelOracle
from bidual.polar.subnetworks.first_layer import FirstLayer
from bidual.polar.subnetworks.one_sign import MOST_CHOICES, MOST_POSITIVE, Pricing, multisets

_LISTED = 500


@dataclass(eq=False)
class ExactParallel(ParallelOracle):
    """The polar of three-layer parallel networks with one output (PR eq. 6), by complete enumeration.

    For a handful of samples: the work grows with two to the number of rows with v_i > 0, and with the number of
    patterns to the power of the width. Larger problems are refused.
    """

    X: Float[Tensor, "n d"]
    widths: Widths
    steps: int = 100
    _layer: FirstLayer = field(init=False, repr=False)
    _reduced: Reduced = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.widths = as_widths(self.widths)
        if len(self.widths) > 1:
            raise ValueError(f"ExactParallel is for three layers, one width, got {self.widths}; use RelaxedBound.")
        self._take(self.X)
        self._reduced = reduce_rank(self.X.cpu().numpy())
        self._layer = FirstLayer.of(self._reduced.samples)

    @property
    def width(self) -> int:
        return as_widths(self.widths)[0]

    def _steepest(self, V: Tensor, above: float, seeds: Neurons | None) -> SteepestNeurons:
        if V.shape[1] != 1:
            raise ValueError(f"ExactParallel is for one output, got {V.shape[1]}.")
        v = V[:, 0].cpu().numpy()
        deadline = self._deadline()
        runs = [Pricing(self._layer, sign * v, self.width, above, self.steps, deadline) for sign in (1.0, -1.0)]
        for run in runs:
            run.price()
        found = [unit for run in runs for unit in run.found]
        units = np.stack(found) if found else np.zeros((0, 2, self.width, self._layer.X.shape[1]))
        neurons = torch.from_numpy(units @ self._reduced.basis.T).to(self.X).flatten(1)
        values = (sub_network_features(self.X, neurons, (self.width,)).T @ V)[:, 0].abs()
        upper = rounded_up(max(run.upper for run in runs) * (1 + gamma(self.width + 8)) + self._allowance(V))
        return SteepestNeurons.ranked(neurons, values, above, upper, _LISTED)

    def _allowance(self, V: Float[Tensor, "n 1"]) -> float:
        r"""The errors of m_1 units with sum_j |w_j|^2 <= 1 in the bounds, sqrt(m_1) times that of one.

        Slopes X^T D u are sums of n terms of rows of length one.
        """
        terms = gamma(len(V) + 16) * float(V.abs().sum())
        return rounded_up(sqrt(self.width) * (terms + self._reduced.lost(V)))


def exact_pricing_cost(n: int, rank: int, width: int, refuse: bool = False) -> float:
    """About how many networks exact pricing enumerates: second-layer patterns times choices of signed patterns."""
    choices = multisets(2 * count_bound(n, rank), width)
    if refuse and (n > MOST_POSITIVE or choices > 100 * MOST_CHOICES):
        raise ValueError(
            f"exact training of n={n} samples of rank {rank} with m1={width} enumerates 2^{n} second-layer patterns "
            f"times {choices:.1e} choices of {width} first-layer patterns with signs, which is too many; use fewer "
            "samples, a lower rank or m1, or oracle='search', with a proved bound."
        )
    return choices * 2.0 ** ((n + 1) // 2) if n <= MOST_POSITIVE else inf
