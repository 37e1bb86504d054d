"""Steep neurons by local search: lower bounds only, for data of any rank."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from bidual.numerics.norms import L2
from bidual.patterns.reduction import Reduced, reduce_rank
from bidual.polar.base import NeuronOracle, Neurons, SteepestNeurons, steepness

Directions = Float[ndarray, "q r"]
_TINY = 1e-300
_NUMBERS = 30_000  # of starts times samples that are handled at a time: what fits into a cache
_AWAY = (0.06, 0.2, 0.6)  # how far from a seed of length one a search starts
_POWERS, _MARGIN = 6, 1.15  # steps to the largest eigenvalue, and what is added to it
_STEEP, _MORE_STEPS = 1e-3, 120  # where nothing is steeper than the threshold by this share, ascents take so many steps
_SAMPLE, _CLIMBS = 3000, 5  # samples that ascents see, and steps on all samples that follow where there are more


@dataclass(eq=False)
class LocalSearch(NeuronOracle):
    r"""Fixed points of u <- normalise(X^T D V V^T D X u), D the pattern of u, from many starts.

    Each step climbs the form of the current pattern. Starts are the caller's seeds (active neurons), the directions
    X^T V e_k of the outputs, the singular vectors of X^T V, samples, and random directions. A search only finds lower
    bounds of the maximum: its upper bound is infinite.
    """

    X: Float[Tensor, "n d"]
    starts: int = 256
    rounds: int = 40
    seed: int = 0
    proves = False
    _generator: torch.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._take(self.X)
        self._generator = torch.Generator().manual_seed(self.seed)

    def _steepest(self, V: Tensor, above: float, seeds: Tensor | None) -> SteepestNeurons:
        U = L2.unit(torch.cat([self._starts(V), *([] if seeds is None else [seeds.to(self.X)])]))
        return climbed(U, lambda W: steepness(self.X, V, W), lambda W: self._climb(W, V), self.rounds, above)

    def climbed_from(self, U: Neurons, V: Tensor) -> Neurons:
        """Neurons at least as steep as those given."""
        U = L2.unit(U)
        return climbed(U, lambda W: steepness(self.X, V, W), lambda W: self._climb(W, V), self.rounds, 0.0).neurons

    def _climb(self, U: Neurons, V: Tensor) -> Neurons:
        hidden = self.X @ U.T
        slope = V @ (V.T @ hidden.clamp(min=0))
        return L2.unit((slope * (hidden > 0)).T @ self.X)

    def _starts(self, V: Tensor) -> Neurons:
        outputs = V.T @ self.X
        _, _, singular = torch.linalg.svd(outputs, full_matrices=False)
        count = max(self.starts - 2 * len(outputs) - 2 * len(singular), 2)
        spread = self.X.square().mean(0).sqrt().clamp(min=1e-300)
        drawn = torch.randn(count, self.X.shape[1], generator=self._generator, dtype=torch.float64).to(self.X) / spread
        half = torch.randint(len(self.X), (count // 2,), generator=self._generator).to(self.X.device)
        drawn[: count // 2] = self.X[half] * torch.where(drawn[: count // 2, :1] > 0, 1.0, -1.0)
        return torch.cat([outputs, -outputs, singular, -singular, drawn])


def climbed(
    U: Neurons, value: Callable[[Neurons], Tensor], step: Callable[[Neurons], Neurons], rounds: int, above: float
) -> SteepestNeurons:
    """The best points on the paths from all starts, without an upper bound."""
    best, top = U, value(U)
    for _ in range(rounds):
        U = step(U)
        reached = value(U)
        better = reached > top * (1 + 1e-9)
        best, top = torch.where(better[:, None], U, best), torch.where(better, reached, top)
        if not bool(better.any()):
            break
    return SteepestNeurons.ranked(best, top, above)


@dataclass(eq=False)
class RidgeSearch(NeuronOracle):
    """Steep neurons by :func:`ascend`: from random directions, from those that a local search finds, and from around
    the seeds, where at the dual point of a trained network ten times as many starts lead to steep neurons.

    Slower than :class:`LocalSearch`, which never stops on a ridge; at such a dual point the steepest neurons are on
    ridges. Of many samples the ascents see some, drawn anew for every question, and a few steps on all of them follow:
    sums over many samples are nearly smooth. Where ascents of thirty steps find nothing above the threshold, the best
    of them take four times as many before the search says so. Lower bounds only.
    """

    X: Float[Tensor, "n d"]
    starts: int = 256
    seed: int = 0
    proves = False
    _reduced: Reduced = field(init=False, repr=False)
    _generator: np.random.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._take(self.X)
        self._reduced = reduce_rank(self.X.cpu().numpy())
        self._generator = np.random.default_rng(self.seed)

    def _steepest(self, V: Tensor, above: float, seeds: Tensor | None) -> SteepestNeurons:
        X, basis = self._reduced.samples, self._reduced.basis
        known = (
            LocalSearch(self.X, self.starts, seed=self.seed).steepest(V, 0.0, seeds).neurons[: max(self.starts // 4, 1)]
        )
        around = known if seeds is None or not len(seeds) else seeds
        starts = [known.cpu().numpy() @ basis, self._drawn(), self._around(around.cpu().numpy() @ basis)]
        some = self._sampled()
        samples, slopes = X[some], V.cpu().numpy()[some]
        found = ascend(samples, slopes, np.concatenate(starts))
        values = _objective(samples, slopes, found)[0]
        if not (values > (1 + _STEEP) * above).any():
            best = np.argsort(-values)[: self.starts]
            found[best] = ascend(samples, slopes, found[best], steps=_MORE_STEPS)
        climbed = torch.from_numpy(found @ basis.T).to(self.X)
        if len(X) > _SAMPLE:
            climbed = LocalSearch(self.X, 1, _CLIMBS).climbed_from(climbed, V)
        neurons = torch.cat([climbed, known[:1]])
        return SteepestNeurons.ranked(neurons, steepness(self.X, V, neurons), above)

    def _sampled(self) -> Int[ndarray, " m"] | slice:
        """Which samples ascents see."""
        n = len(self._reduced.samples)
        return slice(None) if n <= _SAMPLE else self._generator.choice(n, _SAMPLE, replace=False)

    def _drawn(self) -> Directions:
        X = self._reduced.samples
        drawn: Directions = self._generator.standard_normal((self.starts, X.shape[1])) / np.sqrt((X**2).mean(0))
        return drawn

    def _around(self, seeds: Float[ndarray, "m r"]) -> Directions:
        """Directions at several distances from seeds, twice as many as starts."""
        if not len(seeds):  # nothing is steep at all
            return seeds
        rng, count = self._generator, 2 * self.starts
        chosen = seeds[np.resize(rng.permutation(len(seeds)), count)]
        lengths = np.maximum(np.linalg.norm(chosen, axis=1, keepdims=True), _TINY)
        away = rng.choice(_AWAY, (count, 1)) / np.sqrt(seeds.shape[1])
        moved: Directions = chosen / lengths + away * rng.standard_normal(chosen.shape)
        return moved


def ascend(
    X: Float[ndarray, "n r"], V: Float[ndarray, "n c"], U: Directions, rounds: int = 6, steps: int = 30
) -> Directions:
    r"""Unit directions at least as steep as those of U, by the convex-concave procedure.

    With g the direction of z = V^T (X u)_+ and w_i = g v_i, |z| is at least sum_i w_i (x_i u)_+; rows of w_i > 0 are
    at least linear, as they are at u. The rest is concave in u. Its maximum over |u| <= 1 is the least length of
    b + sum_{w_i < 0} theta_i w_i x_i over theta in [0, 1]^n, and the direction of that vector is the next u. Where rows
    of X u vanish at a maximum, theta is fractional; a step along the slope of one pattern would jump over the ridge.
    """
    U = U / np.maximum(np.linalg.norm(U, axis=1, keepdims=True), _TINY)
    size = max(1, _NUMBERS // len(X))
    for start in range(0, len(U), size):
        _ascend(X, V, U[start : start + size], rounds, steps)
    return U


def _ascend(X: ndarray, V: ndarray, U: Directions, rounds: int, steps: int) -> None:
    """Move the rows of U, in place, as long as they rise."""
    values, g = _objective(X, V, U)
    rising, first = np.arange(len(U)), X.sum(0) + X.std(0)
    for _ in range(rounds):
        moved = _concave_step(X, first, g[rising] @ V.T, U[rising] @ X.T, steps)
        reached, ahead = _objective(X, V, moved)
        better = reached > values[rising] * (1 + 1e-9)
        rising = rising[better]
        U[rising], g[rising], values[rising] = moved[better], ahead[better], reached[better]
        if not len(rising):
            break


def _objective(X: ndarray, V: ndarray, U: ndarray) -> tuple[Float[ndarray, " q"], Float[ndarray, "q c"]]:
    """|z| and the direction of z."""
    z = np.maximum(U @ X.T, 0) @ V
    values = np.linalg.norm(z, axis=1)
    return values, z / np.maximum(values, _TINY)[:, None]


def _concave_step(
    X: ndarray, first: ndarray, w: Float[ndarray, "q n"], hidden: Float[ndarray, "q n"], steps: int
) -> Directions:
    """The direction of the shortest b + sum_i theta_i w_i x_i, by accelerated projected gradient from u's pattern.

    Steps are as long as the curvature allows, about: a bound of it by the trace took four times as many.
    """
    active, down = (hidden > 0).astype(float), np.minimum(w, 0)
    b = (np.maximum(w, 0) * active) @ X
    step = down / np.maximum(_MARGIN * _largest_eigenvalues(X, first, down), _TINY)
    theta = ahead = active
    momentum = 1.0
    for _ in range(steps):
        moved = (b + (ahead * down) @ X) @ X.T
        moved *= -step
        moved += ahead
        np.clip(moved, 0, 1, out=moved)
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = moved + (momentum - 1) / following * (moved - theta)
        theta, momentum = moved, following
    a = b + (theta * down) @ X
    return a / np.maximum(np.linalg.norm(a, axis=1, keepdims=True), _TINY)


def _largest_eigenvalues(X: ndarray, first: ndarray, weights: Float[ndarray, "q n"]) -> Float[ndarray, "q 1"]:
    """About those of X^T diag(w^2) X, by powers of it on a first vector."""
    squares, sizes = weights**2, np.zeros((len(weights), 1))
    at = np.broadcast_to(first, (len(weights), X.shape[1]))
    for _ in range(_POWERS):
        at = (squares * (at @ X.T)) @ X
        sizes = np.linalg.norm(at, axis=1, keepdims=True)
        at = at / np.maximum(sizes, _TINY)
    return sizes
