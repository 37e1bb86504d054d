r"""A proved bound of the steepest sub-network for any number of samples and layers, from two-layer queries.

Let N(v) be the most of v^T f(X) over the units f of one layer, of length one, and h = sum_j s_j f_j(X) an input of the
layer above with sum_j |f_j|^2 <= 1, at most m of them. Then h lies in sqrt(m) conv(+-f(X)). With v = v_+ - v_- and any
theta in [0, 1]^n,

    v^T h_+  <=  v_+^T h_+ - (theta o v_-)^T h,

which is convex in h, so it is largest at h = sqrt(m) f(X) or h = -sqrt(m) f(X), where h_+ is h or zero:

    N_above(v)  <=  sqrt(m)  min_theta  max( N(v_+ - theta o v_-),  N(theta o v_-) ).

It is convex in theta too. Where it is too weak, a row i with v_i > 0 makes two cases, h_i <= 0 and h_i >= 0, in which
v_i (h_i)_+ is zero or linear. With the rows O that are off and I that are on,

    sqrt(m)  min_theta  max( N(v_+ without O - theta o v_-),  N(theta o v_- - v_+ on I) ),

and all rows decided, it is sqrt(m) N_inf of the notes on PR. One more layer does not loosen the first bound: N is
monotone, so the theta of the layer below may be the same, and m becomes m_1 m_2 ... m_(L-2).

The rounded product theta_i v_-i is the exact one for another theta_i in [0, 1], and a row is in v_+ or in v_-, so that
no difference is rounded.
"""

import heapq
from dataclasses import dataclass, field, replace
from itertools import count
from math import inf, prod, sqrt
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.optimize import linprog
from torch import Tensor

from bidual.numerics.rounding import gamma, rounded_up
from bidual.operators.parallel import Widths, as_widths, sub_network_features
from bidual.patterns.reduction import reduce_rank
from bidual.polar import Faces
from bidual.polar.base import NeuronOracle, Neurons, SteepestNeurons
from bidual.polar.exact.faces import affordable, slow
from bidual.polar.products.oracle import ProductBound
from bidual.polar.relaxations.diagonal import DiagonalBound
from bidual.polar.subnetworks.base import ParallelOracle, copies
from bidual.runtime.crossovers import PROOFS

_ROUNDS, _FEW = 30, 2  # of theta, where queries are quick or not
_CUTS, _POOL = 20, 300  # neurons that a query contributes to the choice of theta, and that are kept for it
_CLOSE = 1e-6  # the relative gain of a better theta, or a branch, below which the search for it ends
_WORK = 1200  # samples times nodes
_OPEN, _OFF, _ON = -1, 0, 1


class _Choice(NamedTuple):
    """The best theta for the known neurons, its value, and the part of it that each row overstates."""

    theta: Float[Tensor, "n 1"]
    value: float
    excess: Float[ndarray, " n"]


class _Node(NamedTuple):
    """Decided rows, with minus the bound over all cases that are left, and the row to decide next, if any."""

    key: float
    serial: int
    labels: Int[ndarray, " n"]
    row: int | None


@dataclass(eq=False)
class RelaxedBound(ParallelOracle):
    """The bound above, for one output. Its lower bound is attained by copies of two-layer neurons.

    Attributes:
        nodes: the most decisions on rows, where two-layer queries are quick; None for a number that takes seconds.
    """

    X: Float[Tensor, "n d"]
    widths: Widths
    nodes: int | None = None
    quick: bool = field(init=False)  # whether two-layer queries take no more than a fraction of a second
    _base: NeuronOracle = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.widths = as_widths(self.widths)
        self._take(self.X)
        n, rank = len(self.X), reduce_rank(self.X.cpu().numpy()).rank
        exact = affordable(n, rank)
        self._base = Faces(self.X) if exact else _relaxation(self.X)
        self.quick = exact and not slow(n, rank)

    @property
    def most_nodes(self) -> int:
        """The most decisions on rows; none where queries are slow, or the layer below is not the first."""
        if not self.quick or len(as_widths(self.widths)) > 1:
            return 0
        return _WORK // len(self.X) if self.nodes is None else self.nodes

    def _steepest(self, V: Tensor, above: float, seeds: Neurons | None) -> SteepestNeurons:
        if V.shape[1] != 1:
            raise ValueError(f"RelaxedBound is for one output, got {V.shape[1]}; use AllOutputs.")
        widths = as_widths(self.widths)
        root = sqrt(prod(widths))
        # a query u with |u_i| <= |v_i| for rows of length one is scaled by ten products and quotients
        scaling = gamma(16) * float(V.abs().sum())
        if root == 1:  # +-(X w)_+ through more layers is (X w)_+ or zero: two layers
            found = self._base.steepest(V, above).raised(scaling)
            return replace(found, neurons=copies(found.neurons, widths))
        deadline = self._deadline()
        sides = [_Side(self, self._base, sign * V, above / root) for sign in (1.0, -1.0)]
        upper = rounded_up(root * (max(side.bound(deadline) for side in sides) + scaling))
        neurons = copies(torch.cat([side.known for side in sides]), widths)
        values = (sub_network_features(self.X, neurons, widths).T @ V)[:, 0].abs()
        return SteepestNeurons.ranked(neurons, values, above, upper)


def _relaxation(X: Float[Tensor, "n d"]) -> NeuronOracle:
    """Products of rows where they are affordable, else one multiplier per row. They end at 1.5 times the lower end in
    3.5 s against 2.1 in 3.5 s (150 samples of 10 features), and at 1.4 in 9.1 s against 1.9 in 3.8 s (300 of 20)."""
    few = len(X) <= PROOFS.dense
    return ProductBound(X, steps=10, starts=16) if few else DiagonalBound(X, steps=10, starts=16)


class _Side:
    """One sign of v: branch and bound over the rows with v_i > 0."""

    def __init__(self, settings: RelaxedBound, base: NeuronOracle, v: Float[Tensor, "n 1"], enough: float) -> None:
        self.settings, self.base, self.enough = settings, base, enough
        self.up, self.down = v.clamp(min=0), (-v).clamp(min=0)
        self.known = v.new_zeros(0, settings.X.shape[1])
        self.serial = count()
        self.attained = 0.0  # by a two-layer neuron

    def bound(self, deadline: float) -> float:
        """The largest bound of the nodes that are left, in units of sqrt(m)."""
        self.deadline = deadline
        queue, closed = [self._node(np.full(len(self.up), _OPEN))], 0.0
        left = self.settings.most_nodes
        while queue and left > 0 and perf_counter() < deadline:
            if not -queue[0].key > max(self.enough, closed, self.attained * (1 + _CLOSE)):
                break
            node = heapq.heappop(queue)
            if node.row is None:
                closed = max(closed, -node.key)
                continue
            left -= 2
            for label in (_OFF, _ON):
                labels = node.labels.copy()
                labels[node.row] = label
                heapq.heappush(queue, self._node(labels, -node.key))
        return max(closed, -queue[0].key if queue else 0.0)

    def _node(self, labels: Int[ndarray, " n"], most: float = inf) -> _Node:
        """min over theta, by cutting planes: the neurons that are steepest at one theta bound all others from below."""
        off, on = (torch.from_numpy(labels == label).to(self.up)[:, None] for label in (_OFF, _ON))
        first, second = self.up * (1 - off), self.up * on
        start = _Choice(torch.ones_like(self.up), 0.0, np.zeros(len(labels)))
        choice, best = self._next(first, second) if len(self.known) else start, most
        for _ in range(_ROUNDS if self.settings.quick else _FEW):
            part = choice.theta * self.down
            best = min(best, self._query(first - part, part - second))
            choice = self._next(first, second)
            if best <= self.enough or choice.value >= best * (1 - _CLOSE) or perf_counter() > self.deadline:
                break
        excess = np.where(labels == _OPEN, choice.excess, 0.0)
        row = int(excess.argmax()) if excess.max() > _CLOSE * abs(choice.value) else None  # the most overstated one
        return _Node(-best, next(self.serial), labels, row)

    def _query(self, *multipliers: Float[Tensor, "n 1"]) -> float:
        found = [self.base.steepest(u) for u in multipliers]
        self.known = torch.cat([self.known, *(one.neurons[:_CUTS] for one in found)])
        self.attained = max(self.attained, *(self._value(one.neurons) for one in found))
        return max(one.bracket.upper for one in found)

    def _value(self, neurons: Neurons) -> float:
        """v^T f(X) of the steepest neuron of a query."""
        if not len(neurons):
            return 0.0
        return float(((self.settings.X @ neurons[0]).clamp(min=0) @ (self.up - self.down)).max())

    def _next(self, first: Float[Tensor, "n 1"], second: Float[Tensor, "n 1"]) -> _Choice:
        """min t over theta in [0, 1]^n with (first - theta down)^T f <= t and (theta down - second)^T f <= t for the
        known neurons: a linear program. Its multipliers are the mixture h of neurons that attains the bound."""
        F = (self.settings.X @ self.known.T).clamp(min=0).T.cpu().numpy()
        down, (q, n) = F * self.down.T.cpu().numpy(), F.shape
        A = np.vstack([np.hstack([-down, -np.ones((q, 1))]), np.hstack([down, -np.ones((q, 1))])])
        b = np.concatenate([-F @ first[:, 0].cpu().numpy(), F @ second[:, 0].cpu().numpy()])
        found = linprog(np.eye(n + 1)[n], A_ub=A, b_ub=b, bounds=[(0, 1)] * n + [(None, None)], method="highs")
        if found.x is None:
            return _Choice(torch.ones_like(self.up), inf, np.zeros(n))
        weight = -found.ineqlin.marginals
        positive, negative = weight[:q] @ F, weight[q:] @ F
        excess = self.up[:, 0].cpu().numpy() * (positive - np.maximum(positive - negative, 0))
        theta = torch.from_numpy(np.clip(found.x[:n], 0, 1)).to(self.up)[:, None]
        if q > _POOL:
            tight = np.argsort(np.minimum(*found.slack.reshape(2, q)), kind="stable")[: _POOL // 2]
            self.known = self.known[torch.from_numpy(tight).to(self.known.device)]
        return _Choice(theta, float(found.fun), excess)
