"""Steep neurons by local search: lower bounds only, for data of any rank."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.numerics.norms import L2
from bidual.polar.base import NeuronOracle, Neurons, SteepestNeurons, steepness


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
