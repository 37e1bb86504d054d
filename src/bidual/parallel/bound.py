r"""A proved bound of the steepest sub-network for any number of samples and layers, from two-layer questions.

Let N(v) be the most of v^T f(X) over the units f of one layer, of length one, and h = sum_j s_j f_j(X) an input of the
layer above with sum_j |f_j|^2 <= 1, at most m of them. Then h lies in sqrt(m) conv(+-f(X)). With v = v_+ - v_- and any
theta in [0, 1]^n,

    v^T h_+  <=  v_+^T h_+ - (theta o v_-)^T h,

which is convex in h, so it is largest at h = sqrt(m) f(X) or h = -sqrt(m) f(X), where h_+ is h or zero:

    N_above(v)  <=  sqrt(m)  min_theta  max( N(v_+ - theta o v_-),  N(theta o v_-) ).

It is convex in theta too. At theta = 0 it is the bound by v_+ alone. The largest dual point of the two-layer network at
beta / sqrt(m) has N(v) <= beta / sqrt(m): where N(theta o v_-) is no larger for a theta that keeps it so, copies of two
layers are the optimum of three.
"""

from dataclasses import dataclass, field
from math import inf, prod, sqrt

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from scipy.optimize import linprog
from torch import Tensor

from bidual.gauges import Bracket
from bidual.operators.parallel import Widths, as_widths, sub_network_features
from bidual.parallel.base import ParallelOracle, copies
from bidual.patterns.reduction import reduce_rank
from bidual.polar import Faces
from bidual.polar.base import NeuronOracle, Neurons, Peaks
from bidual.polar.choice import affordable, slow
from bidual.polar.diagonal import DiagonalBound

_ROUNDS, _FEW = 30, 3  # of theta, where questions are quick or not
_CUTS = 40  # neurons that a question contributes to the choice of theta
_CLOSE = 1e-4  # what theta may still be worth when it is not improved any more


@dataclass(eq=False)
class NestedBound(ParallelOracle):
    """The bound above, layer upon layer, for one output. Its lower bound is attained by copies of two-layer neurons."""

    X: Float[Tensor, "n d"]
    widths: Widths
    _base: NeuronOracle = field(init=False, repr=False)
    _rounds: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.widths = as_widths(self.widths)
        self._take(self.X)
        n, rank = len(self.X), reduce_rank(self.X.cpu().numpy()).rank
        exact = affordable(n, rank)
        self._base = Faces(self.X) if exact else DiagonalBound(self.X, steps=10, starts=16)
        quick = exact and not slow(n, rank)
        self._rounds = (_ROUNDS if quick else _FEW) if len(self.widths) == 1 else (_FEW if quick else 1)

    def _peaks(self, V: Tensor, above: float, seeds: Neurons | None) -> Peaks:
        if V.shape[1] != 1:
            raise ValueError(f"NestedBound is for one output, got {V.shape[1]}; use AllOutputs.")
        widths = as_widths(self.widths)
        upper, units = self._bound(V, len(widths), above)
        neurons = copies(units, widths)
        values = (sub_network_features(self.X, neurons, widths).T @ V)[:, 0].abs()
        order = torch.argsort(values, descending=True)
        lower = float(values[order[0]]) if len(order) else 0.0
        return Peaks(Bracket(lower, max(upper, lower)), neurons[order], values[order])

    def _bound(self, v: Float[Tensor, "n 1"], layer: int, enough: float) -> tuple[float, Neurons]:
        """The most of |v^T f(X)| over units of a layer, and two-layer neurons that are steep for it."""
        if layer == 0:
            found = self._base.peaks(v)
            return found.bracket.upper, found.neurons[:_CUTS]
        root = sqrt(as_widths(self.widths)[layer - 1])
        sides = [self._one_side(sign * v, layer, enough / root) for sign in (1.0, -1.0)]
        return root * max(bound for bound, _ in sides), torch.cat([units for _, units in sides])

    def _one_side(self, v: Float[Tensor, "n 1"], layer: int, enough: float) -> tuple[float, Neurons]:
        """min over theta, by cutting planes: the neurons that are steepest at one theta bound all others from below."""
        up, down = v.clamp(min=0), (-v).clamp(min=0)
        theta, best = torch.ones_like(v), inf
        known: list[Neurons] = []
        for _ in range(self._rounds):
            questions = [self._bound(u, layer - 1, enough) for u in (up - theta * down, theta * down)]
            best = min(best, max(bound for bound, _ in questions))
            known += [units for _, units in questions]
            if best <= enough:
                break
            theta, least = self._next(torch.cat(known), up, down, layer - 1)
            if least >= best * (1 - _CLOSE):
                break
        return best, torch.cat(known)

    def _next(self, units: Neurons, up: Tensor, down: Tensor, layer: int) -> tuple[Float[Tensor, "n 1"], float]:
        """The theta that is best for the neurons at hand, and what it would be worth."""
        scale = sqrt(prod(as_widths(self.widths)[:layer]))
        F = scale * (self.X @ units.T).clamp(min=0).T.cpu().numpy()
        theta, least = _cheapest(F * up.T.cpu().numpy(), F * down.T.cpu().numpy())
        return torch.from_numpy(theta).to(up)[:, None], least


def _cheapest(up: Float[ndarray, "q n"], down: Float[ndarray, "q n"]) -> tuple[Float[ndarray, " n"], float]:
    """min t over theta in [0, 1]^n with up_i 1 - down_i theta <= t and down_i theta <= t: a linear program."""
    q, n = down.shape
    A = np.vstack([np.hstack([-down, -np.ones((q, 1))]), np.hstack([down, -np.ones((q, 1))])])
    b = np.concatenate([-up.sum(1), np.zeros(q)])
    found = linprog(np.eye(n + 1)[n], A_ub=A, b_ub=b, bounds=[(0, 1)] * n + [(None, None)], method="highs")
    if found.x is None:
        return np.ones(n), inf
    return np.clip(found.x[:n], 0, 1), float(found.fun)
