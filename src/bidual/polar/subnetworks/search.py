"""Steep sub-networks by local search: lower bounds only, for any number of samples, outputs and layers."""

from dataclasses import dataclass, field
from math import inf
from time import perf_counter

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.numerics.norms import L2
from bidual.operators.parallel import Widths, as_widths, sub_network_features, sub_network_size
from bidual.polar.base import Neurons, SteepestNeurons
from bidual.polar.search import climbed
from bidual.polar.subnetworks.base import ParallelOracle, copies

_WORK = 20_000_000  # multiplications that a step may make
_POLISHED, _SHRINKING = 64, 120  # sub-networks that are led onto ridges, and steps of it


@dataclass(eq=False)
class ParallelSearch(ParallelOracle):
    r"""Fixed points of W <- grad_W 1/2 |V^T f_W(X)|^2, normalised, from many starts.

    Each step climbs the form of the current patterns, because on them f is linear in the first-layer weights W. Starts
    are the caller's seeds and random units with random signs. Its upper bound is infinite.
    """

    X: Float[Tensor, "n d"]
    widths: Widths
    starts: int = 512
    rounds: int = 60
    seed: int = 0
    proves = False
    _generator: torch.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.widths = as_widths(self.widths)
        self._take(self.X)
        self._generator = torch.Generator().manual_seed(self.seed)

    @property
    def _most(self) -> int:
        """Sub-networks that are climbed from."""
        each = sub_network_size(as_widths(self.widths), self.X.shape[1]) * len(self.X)
        return max(min(self.starts, _WORK // each), 16)

    def _steepest(self, V: Tensor, above: float, seeds: Neurons | None) -> SteepestNeurons:
        known = [] if seeds is None else [seeds.to(self.X)[: self._most]]
        U = L2.unit(torch.cat([self._starts(), *known]))
        found = climbed(U, lambda W: self._values(W, V), lambda W: self._climb(W, V), self.rounds, above)
        if not len(found.neurons):  # nothing climbs
            return self._nothing(inf)
        neurons = torch.cat([self._on_ridges(found.neurons[:_POLISHED], V), found.neurons])
        return SteepestNeurons.ranked(neurons, self._values(neurons, V), above)

    def _on_ridges(self, U: Neurons, V: Tensor) -> Neurons:
        """Shrinking steps, which reach maxima where a unit is at its kink; full steps jump across it."""
        best, top, deadline = U, self._values(U, V), self._deadline()
        for k in range(_SHRINKING):
            if perf_counter() > deadline:
                break
            U = L2.unit(U + 0.3 * 0.9**k * self._climb(U, V))
            reached = self._values(U, V)
            better = reached > top
            best, top = torch.where(better[:, None], U, best), torch.where(better, reached, top)
        return best

    def _values(self, U: Neurons, V: Tensor) -> Float[Tensor, " q"]:
        return torch.linalg.vector_norm(sub_network_features(self.X, U, as_widths(self.widths)).T @ V, dim=1)

    def _climb(self, U: Neurons, V: Tensor) -> Neurons:
        """One step; empty places stay empty, because their units are off."""
        with torch.enable_grad():
            W = U.detach().requires_grad_()
            response = sub_network_features(self.X, W, as_widths(self.widths)).T @ V
            (slope,) = torch.autograd.grad(0.5 * response.square().sum(), W)
        return L2.unit(slope)

    def _starts(self) -> Neurons:
        """Random weights in places of random signs, and copies of random units, which climb as two layers do."""
        widths, d, count = as_widths(self.widths), self.X.shape[1], self._most
        spread = self.X.square().mean(0).sqrt().clamp(min=1e-300)
        drawn = torch.randn(count, sub_network_size(widths, 1), d, generator=self._generator, dtype=torch.float64)
        drawn = drawn.to(self.X) / spread
        some = count // 4
        return torch.cat([copies(drawn[:some, 0], widths), (drawn * self._taken(count)[:, :, None]).flatten(1)[some:]])

    def _taken(self, count: int) -> Float[Tensor, "q p"]:
        """For every unit the places that are taken: the first of sign +1, the others of sign -1, m_l in all."""
        taken = self.X.new_ones(count, 1)
        for m in reversed(as_widths(self.widths)):
            positive = torch.randint(0, m + 1, (*taken.shape, 1), generator=self._generator)
            positive = torch.where(torch.rand(taken.shape, generator=self._generator)[..., None] < 0.3, m, positive)
            first = torch.arange(m) < positive
            both = torch.stack([first, ~first], 2).to(self.X)
            taken = (taken[:, :, None, None] * both).flatten(1)
        return taken
