"""One sign of v in exact pricing: all second-layer patterns phi, all choices of first-layer patterns with their signs,
and the best theta of each.

The bounds are those of :mod:`bidual.polar.subnetworks.pricing`. For computed slopes X^T D u, :meth:`FirstLayer.project`
proves those of single patterns, and the rounded product of theta in [0, 1] with v is the exact one for another theta.
ExactParallel allows for the rounding of slopes, and of sums of squares and their roots, gamma(m_1 + 8).
"""

from itertools import combinations_with_replacement, product
from math import comb, inf, sqrt
from time import perf_counter

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.linalg import block_diag
from scipy.optimize import lsq_linear

from bidual.numerics.rounding import gamma
from bidual.polar.subnetworks.first_layer import FirstLayer

MOST_POSITIVE = 16  # rows with v_i > 0: 2^16 choices of phi
MOST_CHOICES = 200_000  # of first-layer patterns for one phi
_AT_ONCE, _CHOICES_AT_ONCE = 4096, 24
_ENOUGH, _PER_PATTERN = 60, 4  # networks at which a query ends, and of one second-layer pattern
_SETTLED = 1e-8  # relative width at which a choice of patterns is settled
_TINY = 1e-300

Vector = Float[ndarray, " n"]
Thetas = Float[ndarray, "_k _negative"]
Choices = Int[ndarray, "_q _width"]  # places in ``Pricing.patterns``
Units = Float[ndarray, "_q _width _r"]


class Pricing:
    """One sign of v."""

    def __init__(
        self, layer: FirstLayer, v: Vector, width: int, above: float, steps: int, deadline: float = inf
    ) -> None:
        self.deadline = deadline
        self.layer, self.v, self.width, self.above, self.steps = layer, v, width, above, steps
        self.positive, self.negative = np.flatnonzero(v > 0), np.flatnonzero(v < 0)
        self.patterns = np.tile(np.arange(len(layer)), 2)  # every pattern with both signs
        self.signs = np.repeat([1.0, -1.0], len(layer))
        self.best = self.upper = 0.0
        self.found: list[Float[ndarray, "2 m r"]] = []

    @property
    def enough(self) -> bool:
        """Whether enough networks above ``above`` are known for one query, or no time is left; the bound covers the
        choices that are left."""
        return (self.above > 0 and len(self.found) >= _ENOUGH) or perf_counter() > self.deadline

    @property
    def threshold(self) -> float:
        return max(self.above, self.best)

    @property
    def settled(self) -> float:
        """Choices that are not above it are ruled out; the upper bound must cover it."""
        return self.threshold * (1 + _SETTLED)

    def price(self) -> None:
        if not len(self.positive) or not len(self.layer):
            return
        if len(self.positive) > MOST_POSITIVE:
            raise ValueError(
                f"exact pricing enumerates 2^{len(self.positive)} second-layer patterns here, more than "
                f"2^{MOST_POSITIVE}; use fewer samples, or a bound."
            )
        masks = np.array(list(product((0.0, 1.0), repeat=len(self.positive))))[1:]
        for start in range(0, len(masks), _AT_ONCE):
            self._some(masks[start : start + _AT_ONCE])

    def _some(self, masks: Float[ndarray, "k q"]) -> None:
        """Bound every phi by one theta for all patterns, and by :meth:`_closer` where that does not rule it out."""
        U = np.zeros((len(masks), len(self.v)))
        U[:, self.positive] = masks * self.v[self.positive]
        bound, theta = self._relaxed(U)
        for k in np.argsort(-bound):
            if bound[k] <= self.threshold or self.enough:
                self.upper = max(self.upper, float(bound[k]))
                break  # the others are no larger
            self._closer(U[k], theta[k], float(bound[k]))

    def _relaxed(self, U: Float[ndarray, "k n"], rounds: int = 60) -> tuple[Float[ndarray, " k"], Thetas]:
        """sqrt(m_1) max over patterns of |P_C(s X^T D u)| at a good theta, by subgradient steps."""
        theta = np.ones((len(U), len(self.negative)))
        bound, kept = np.full(len(U), np.inf), theta.copy()
        open_ = np.arange(len(U))
        for step in range(rounds):
            b, W = self._pattern_bounds(U[open_], theta[open_])
            top = sqrt(self.width) * b.max(1)
            better = open_[top < bound[open_]]
            bound[open_] = np.minimum(bound[open_], top)
            kept[better] = theta[better]
            if not len(self.negative):
                break
            slope = self._slope(b, W)
            length = np.maximum(np.linalg.norm(slope, axis=1, keepdims=True), _TINY)
            theta[open_] = np.clip(theta[open_] - 0.5 / (1 + step) ** 0.7 * slope / length, 0, 1)
            open_ = open_[bound[open_] > self.threshold]
            if not len(open_):
                break
        return bound, kept

    def _pattern_bounds(self, U: ndarray, theta: ndarray) -> tuple[Float[ndarray, "k c"], Float[ndarray, "k c r"]]:
        """|P_C(s X^T D u)| for every pattern and sign, and the points."""
        slopes = self.layer.slopes(self._filled(U, theta))
        signed = np.concatenate([slopes, -slopes], 1)
        W, bounds = self.layer.project(signed, np.broadcast_to(self.patterns, signed.shape[:2]))
        return bounds, W

    def _filled(self, U: Float[ndarray, "k n"], theta: Thetas) -> Float[ndarray, "k n"]:
        filled = U.copy()
        filled[:, self.negative] = theta * self.v[self.negative]
        return filled

    def _slope(self, b: Float[ndarray, "k c"], W: Float[ndarray, "k c r"], power: int = 24) -> Thetas:
        """A subgradient in theta of a smooth maximum over patterns."""
        weight = (b / np.maximum(b.max(1, keepdims=True), _TINY)) ** power
        weight /= np.maximum(weight.sum(1, keepdims=True), _TINY)
        units = W / np.maximum(b, _TINY)[:, :, None]
        active = np.maximum(units @ self.layer.X[self.negative].T, 0) * self.layer.D[self.patterns][:, self.negative]
        return np.einsum("kc,c,kcm->km", weight, self.signs, active) * self.v[self.negative]

    def _closer(self, u: Vector, theta: Float[ndarray, " m"], bound: float) -> None:
        """Bound all choices of m_1 patterns that this theta does not rule out: the largest ones at their own best
        theta, which rules out many of the others, until none is left."""
        b = self._pattern_bounds(u[None], theta[None])[0][0]
        choices = self._choices(b)
        if choices is None:
            self.upper = max(self.upper, bound)
            return
        bounds = np.sqrt(np.square(b[choices]).sum(1))
        while len(choices):
            if self.enough:
                self.upper = max(self.upper, float(bounds.max()), min(self.settled, bound))
                return
            top = np.argsort(-bounds)[:_CHOICES_AT_ONCE]
            better = self._solve(u, theta, choices[top])
            bounds[top] = -np.inf
            bounds = np.minimum(bounds, self._at(u, better, choices))
            open_ = bounds > self.settled
            choices, bounds = choices[open_], bounds[open_]
        self.upper = max(self.upper, min(self.settled, bound))  # of all choices that are ruled out

    def _at(self, u: Vector, theta: Thetas, choices: Choices) -> Float[ndarray, " q"]:
        """The bounds of all choices at some theta, the best of which rules them out."""
        b = self._pattern_bounds(np.tile(u, (len(theta), 1)), theta)[0]
        return np.sqrt(np.min([np.square(one[choices]).sum(1) for one in b], axis=0))

    def _choices(self, b: Float[ndarray, " c"]) -> Choices | None:
        """Multisets of patterns with sum of b^2 above the threshold; None if there are too many."""
        square, least = b**2, self.threshold**2
        slack = gamma(16) * (least + self.width * square.max())  # so that rounding drops no useful pattern
        useful = np.flatnonzero(square > least - (self.width - 1) * square.max() - slack)
        useful = useful[np.argsort(-square[useful])]
        if multisets(len(useful), self.width) > MOST_CHOICES:
            return None
        every = np.array(list(combinations_with_replacement(useful, self.width)), dtype=int).reshape(-1, self.width)
        total = square[every].sum(1)
        order = np.argsort(-total)
        return every[order[total[order] > least]]

    def _solve(self, u: Vector, theta: Float[ndarray, " m"], choices: Choices) -> Thetas:
        """min over theta of sum_j |P_Cj(s_j X^T D_j u)|^2 for every choice, by accelerated projected gradient."""
        maps = (
            self.signs[choices][:, :, None, None] * self.layer.D[self.patterns[choices]][:, :, :, None] * self.layer.X
        )
        down = maps[:, :, self.negative] * self.v[self.negative, None]
        step = 1 / np.maximum(np.square(down).sum((1, 2, 3)), _TINY)
        at, ahead = np.tile(theta, (len(choices), 1)), np.tile(theta, (len(choices), 1))
        momentum, value = np.ones(len(choices)), np.full(len(choices), np.inf)
        reached, units = np.zeros(len(choices)), np.zeros((*choices.shape, self.layer.X.shape[1]))
        open_ = np.arange(len(choices))
        for _ in range(self.steps if len(self.negative) else 1):
            filled = self._filled(np.tile(u, (len(open_), 1)), ahead[open_])
            W, b = self.layer.project(np.einsum("qn,qjnr->qjr", filled, maps[open_]), self.patterns[choices[open_]])
            size = np.sqrt(np.square(W).sum((1, 2)))
            value[open_] = np.minimum(value[open_], np.sqrt(np.square(b).sum(1)))
            self._improve(open_, _unit(W, size), choices, reached, units)
            slope = np.einsum("qjr,qjnr->qn", W, down[open_])
            moved = np.clip(ahead[open_] - step[open_, None] * slope, 0, 1)
            turned = ((ahead[open_] - moved) * (moved - at[open_])).sum(1) > 0  # restart: momentum points uphill
            t = np.where(turned, 1.0, momentum[open_])
            following = (1 + np.sqrt(1 + 4 * t**2)) / 2
            ahead[open_] = np.clip(moved + ((t - 1) / following)[:, None] * (moved - at[open_]), 0, 1)  # or no bound
            at[open_], momentum[open_] = moved, following
            level = np.maximum(self.threshold, reached[open_]) * (1 + _SETTLED)
            open_ = open_[value[open_] > level]
            if not len(open_):
                break
        for k in open_:  # slow convergence: solve exactly
            at[k] = self._exactly(u, maps[k], down[k], self.patterns[choices[k]])
            filled = self._filled(u[None], at[k][None])[0]
            W, b = self.layer.project(np.einsum("n,jnr->jr", filled, maps[k]), self.patterns[choices[k]])
            value[k] = min(value[k], float(np.linalg.norm(b)))
            self._improve(np.array([k]), _unit(W[None], np.array([np.linalg.norm(W)])), choices, reached, units)
        self.upper = max(self.upper, float(value.max(initial=0.0)))
        for k in np.argsort(-reached)[:_PER_PATTERN]:
            if reached[k] > self.above * (1 + 1e-12):
                self.found.append(_slots(units[k], self.signs[choices[k]]))
        return at

    def _exactly(self, u: Vector, maps: Units, down: Units, patterns: Int[ndarray, " _width"]) -> Float[ndarray, " _m"]:
        """The best theta as a bounded least squares problem: |P_C(c)| is the least |c + K^T l| over l >= 0 (Moreau)."""
        slopes = np.einsum("n,mnr->mr", u, maps).ravel()
        cones = block_diag(*(self.layer.normals[pattern].T for pattern in patterns))
        A = np.hstack([down.transpose(0, 2, 1).reshape(len(slopes), -1), cones])
        count = down.shape[1]
        upper = np.concatenate([np.ones(count), np.full(A.shape[1] - count, np.inf)])
        return np.clip(lsq_linear(A, -slopes, (np.zeros(A.shape[1]), upper), method="bvls").x[:count], 0, 1)

    def _improve(
        self, open_: Int[ndarray, " k"], W: Units, choices: Choices, reached: Float[ndarray, " q"], units: Units
    ) -> None:
        """Evaluate the networks with units W, and keep the best one of every choice."""
        hidden = np.maximum(W @ self.layer.X.T, 0)
        values = np.maximum((self.signs[choices[open_]][:, :, None] * hidden).sum(1), 0) @ self.v
        better = values > reached[open_]
        reached[open_[better]], units[open_[better]] = values[better], W[better]
        self.best = max(self.best, float(values.max()))


def _unit(W: Units, size: Float[ndarray, " k"]) -> Units:
    """W / |W|, and zero where W is so short that its squares underflow."""
    used = size > 1e-140
    return np.where(used[:, None, None], W / np.where(used, size, 1.0)[:, None, None], 0.0)


def _slots(units: Float[ndarray, "m r"], signs: Float[ndarray, " m"]) -> Float[ndarray, "2 m r"]:
    """Units of sign +1 first, then those of sign -1, each filled up with zeros."""
    slots = np.zeros((2, *units.shape))
    for half, sign in enumerate((1.0, -1.0)):
        own = units[signs == sign]
        slots[half, : len(own)] = own
    return slots


def multisets(kinds: int, size: int) -> float:
    """How many multisets there are; at most 1e300, so that it is a float."""
    return float(min(comb(kinds + size - 1, size), 10**300)) if kinds else 0.0
