"""Steep three-layer sub-networks by local search: lower bounds only, for any number of samples."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.gauges import Bracket
from bidual.norms import L2
from bidual.operators.parallel import sub_network_features
from bidual.polar.base import NeuronOracle, Neurons, Peaks
from bidual.polar.search import climbed


@dataclass(eq=False)
class ParallelSearch(NeuronOracle):
    r"""Fixed points of W_j <- s_j X^T D_j (1{h > 0} o V g), normalised together, from many starts.

    h = sum_j s_j (X w_j)_+ and g is the direction of V^T h_+. Each step climbs the form of the current patterns. Starts
    are the caller's seeds and random units with random signs. Its bracket ends at infinity: a search proves nothing.
    """

    X: Float[Tensor, "n d"]
    width: int
    starts: int = 512
    rounds: int = 60
    seed: int = 0
    proves = False
    _generator: torch.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._take(self.X)
        self._generator = torch.Generator().manual_seed(self.seed)

    def _nothing(self, upper: float) -> Peaks:
        return Peaks(Bracket(0.0, upper), self.X.new_zeros(0, self._size), self.X.new_zeros(0))

    @property
    def _size(self) -> int:
        return 2 * self.width * self.X.shape[1]

    def _peaks(self, V: Tensor, above: float, seeds: Neurons | None) -> Peaks:
        U = L2.unit(torch.cat([self._starts(), *([] if seeds is None else [seeds.to(self.X)])]))
        return climbed(U, lambda W: self._values(W, V), lambda W: self._climb(W, V), self.rounds, above)

    def _values(self, U: Neurons, V: Tensor) -> Float[Tensor, " q"]:
        return torch.linalg.vector_norm(sub_network_features(self.X, U, self.width).T @ V, dim=1)

    def _climb(self, U: Neurons, V: Tensor) -> Neurons:
        """One step; slots that are empty stay empty."""
        q, m, d = len(U), self.width, self.X.shape[1]
        before = (self.X @ U.reshape(-1, d).T).reshape(-1, q, 2, m)
        hidden = before.clamp(min=0)
        h = (hidden[:, :, 0] - hidden[:, :, 1]).sum(2)
        on = h > 0
        slope = (V @ (V.T @ h.clamp(min=0))) * on
        signed = torch.stack([slope, -slope], 2)[:, :, :, None] * (before > 0)
        moved = (signed.reshape(len(self.X), -1).T @ self.X).reshape(q, -1)
        return L2.unit(moved)

    def _starts(self) -> Neurons:
        m, d = self.width, self.X.shape[1]
        units = torch.randn(self.starts, m, d, generator=self._generator, dtype=torch.float64)
        spread = self.X.square().mean(0).sqrt().clamp(min=1e-300)
        positive = torch.randint(1, m + 1, (self.starts,), generator=self._generator)
        slots = torch.zeros(self.starts, 2, m, d, dtype=torch.float64)
        first = torch.arange(m) < positive[:, None]
        slots[:, 0][first], slots[:, 1][~first] = units[first], units[~first]
        return slots.flatten(1).to(self.X) / spread.repeat(2 * m)
