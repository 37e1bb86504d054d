"""Steep neurons at the dual points of trained networks, where the steepest are on ridges: lower bounds only."""

import math
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bidual.numerics.norms import L2
from bidual.patterns.reduction import reduce_rank
from bidual.polar.ascents import Directions, ascend, unit
from bidual.polar.base import NeuronOracle, Neurons, SteepestNeurons, steepness
from bidual.polar.search import LocalSearch

_AWAY = (0.06, 0.2, 0.6)  # how far from a seed of length one a search starts
_SEEDS = 4  # times the starts, how many seeds are climbed from themselves
_STEEP, _MORE_STEPS = 1e-3, 240  # where nothing is steeper than the threshold by this share, ascents take so many steps
_ENOUGH, _BATCHES = 0.25, 3  # of the starts, what a search may find before it ends; else it starts so many times
_SAMPLE, _CLIMBS = 3000, 5  # samples that ascents see, and steps on all samples that follow where there are more


@dataclass(eq=False)
class RidgeSearch(NeuronOracle):
    """Steep neurons by :func:`~bidual.polar.ascents.ascend`: from seeds, from around them, where at the dual point of a
    trained network ten times as many starts lead to steep neurons, from random directions, and from what the last
    search found.

    Slower than :class:`LocalSearch`, which never stops on a ridge; at such a dual point the steepest neurons are on
    ridges. Ascents are in single precision; what is reported of the directions found is evaluated in double precision.
    A search begins again with other random numbers until it has found enough neurons above the threshold; where
    it finds nothing, the best ascents go on in double precision before it says so. So the last search of a training is
    the longest. Of many samples the ascents see some, drawn anew for every question, and a few steps on all of them
    follow: sums over many samples are nearly smooth. Lower bounds only.
    """

    X: Float[Tensor, "n d"]
    starts: int = 256
    seed: int = 0
    proves = False
    _samples: Float[Tensor, "n r"] = field(init=False, repr=False)
    _basis: Float[Tensor, "d r"] = field(init=False, repr=False)
    _peaks: Directions = field(init=False, repr=False)
    _generator: torch.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._take(self.X)
        reduced = reduce_rank(self.X.cpu().numpy())
        self._samples, self._basis = torch.from_numpy(reduced.samples), torch.from_numpy(reduced.basis)
        self._peaks = self._samples[:0]
        self._generator = torch.Generator().manual_seed(self.seed)

    def _steepest(self, V: Tensor, above: float, seeds: Tensor | None) -> SteepestNeurons:
        known = seeds if seeds is not None and len(seeds) else self._local(V)
        around, some = known.cpu() @ self._basis, self._sampled()
        rows, slopes = self._samples[some], V.cpu()[some]
        starts = torch.cat([around[: _SEEDS * self.starts], self._peaks, self._fresh(around)])
        found = SteepestNeurons.ranked(known[:1], steepness(self.X, V, known[:1]))
        for _ in range(_BATCHES):
            found = self._joined(found, ascend(rows.float(), slopes.float(), starts.float()).double(), V)
            if int((found.values > above).sum()) >= _ENOUGH * self.starts:
                break
            starts = self._fresh(around)
        if found.bracket.lower <= (1 + _STEEP) * above:
            best = found.neurons[: self.starts].cpu() @ self._basis
            found = self._joined(found, ascend(rows, slopes, best, steps=_MORE_STEPS), V)
        self._peaks = found.neurons[: self.starts].cpu() @ self._basis
        return SteepestNeurons.ranked(found.neurons, found.values, above)

    def _joined(self, known: SteepestNeurons, U: Directions, V: Tensor) -> SteepestNeurons:
        """With neurons of these directions; how steep they are is evaluated on all samples, in double precision."""
        neurons = L2.unit((U @ self._basis.T).to(self.X))
        if len(self.X) > _SAMPLE:
            neurons = LocalSearch(self.X, 1, _CLIMBS).climbed_from(neurons, V)
        values = torch.cat([known.values, steepness(self.X, V, neurons)])
        return SteepestNeurons.ranked(torch.cat([known.neurons, neurons]), values)

    def _local(self, V: Tensor) -> Neurons:
        """What a search on the patterns themselves finds."""
        return LocalSearch(self.X, self.starts, seed=self.seed).steepest(V).neurons[: max(self.starts // 4, 1)]

    def _sampled(self) -> Int[Tensor, " m"] | slice:
        """Which samples ascents see."""
        n = len(self._samples)
        return slice(None) if n <= _SAMPLE else torch.randperm(n, generator=self._generator)[:_SAMPLE]

    def _fresh(self, seeds: Float[Tensor, "m r"]) -> Directions:
        return torch.cat([self._drawn(), self._around(seeds)])

    def _drawn(self) -> Directions:
        """Along which rows move alike."""
        X = self._samples
        return self._normal(self.starts) / X.square().mean(0).sqrt()

    def _around(self, seeds: Float[Tensor, "m r"]) -> Directions:
        """Directions at several distances from seeds, twice as many as starts."""
        if not len(seeds):  # nothing is steep at all
            return self._normal(0)
        count = 2 * self.starts
        order = torch.randperm(len(seeds), generator=self._generator)
        chosen = unit(seeds)[order.repeat(count // len(seeds) + 1)[:count]]
        away = torch.tensor(_AWAY, dtype=torch.float64) / math.sqrt(seeds.shape[1])
        away = away[torch.randint(len(_AWAY), (count, 1), generator=self._generator)]
        return chosen + away * self._normal(count)

    def _normal(self, count: int) -> Directions:
        return torch.randn(count, self._samples.shape[1], generator=self._generator, dtype=torch.float64)
