"""The steepest neuron under any norms of its weights, for data of any size: found by search, bounded from l2."""

from dataclasses import dataclass
from math import inf

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.numerics.norms import Norm
from bidual.numerics.rounding import gamma, rounded_up
from bidual.polar.base import NeuronOracle, Neurons, SteepestNeurons
from bidual.polar.exact.norms import ranked, steepness_in
from bidual.polar.search.local import LocalSearch

_STEPS = (1.0, 0.5, 0.2, 0.05, 0.01)


@dataclass(eq=False)
class NormSearch(NeuronOracle):
    r"""max over |u|_C <= 1 of |V^T (X u)_+|_R*, climbed from many starts and bounded by a Euclidean oracle.

    A start climbs towards the u of norm one that is steepest for the linear function which supports the objective on
    its pattern (a Frank-Wolfe step; the best of a few step lengths is taken). The upper bound is that of
    ``euclidean`` times the least k and k' with |u|_2 <= k |u|_C and |z|_R* <= k' |z|_2; infinite without it. It is
    loose by up to k k', so training ends by the search, and the certificate states the proved bound.
    """

    X: Float[Tensor, "n d"]
    hidden_norm: Norm
    output_norm: Norm
    euclidean: NeuronOracle | None = None
    starts: int = 256
    rounds: int = 40
    seed: int = 0
    proves = False

    def __post_init__(self) -> None:
        self._take(self.X)
        if self.euclidean is not None and not self.euclidean.hidden_norm.order == self.euclidean.output_norm.order == 2:
            raise ValueError("euclidean must be an oracle for l2 norms, such as Faces(X) or DiagonalBound(X).")

    def _steepest(self, V: Tensor, above: float, seeds: Tensor | None) -> SteepestNeurons:
        U = self._starts(V, seeds)
        top = steepness_in(self, V, U)
        for _ in range(self.rounds):
            before = top
            U, top = self._climbed(U, top, V)
            if not bool((top > before * (1 + 1e-9)).any()):
                break
        return ranked(self, V, U, above, self._upper(V, above))

    def _upper(self, V: Tensor, above: float) -> float:
        if self.euclidean is None:
            return inf
        factor = self.hidden_norm.times_l2(self.X.shape[1]) * self.output_norm.dual.over_l2(V.shape[1])
        plain = torch.where(self.lengths > 0, 1 / self.lengths, 0.0)[:, None] * V  # for unscaled samples
        upper = factor * (1 + gamma(8)) * self.euclidean.steepest(plain, above / factor).bracket.upper
        return rounded_up(upper + self._rounding(V))  # two roundings of every entry are less than those of a scaling

    def _starts(self, V: Tensor, seeds: Tensor | None) -> Neurons:
        """Steep directions in l2, the corner of the ball nearest to each, and the caller's neurons."""
        steep = LocalSearch(self.X, self.starts, rounds=5, seed=self.seed).steepest(V).neurons
        known = [] if seeds is None else [seeds.to(self.X)]
        return self.hidden_norm.unit(torch.cat([steep, self.hidden_norm.aligned(steep), *known]))

    def _climbed(self, U: Neurons, top: Float[Tensor, " q"], V: Tensor) -> tuple[Neurons, Float[Tensor, " q"]]:
        towards = self._corners(U, V) - U
        for step in _STEPS:
            moved = self.hidden_norm.unit(U + step * towards)
            value = steepness_in(self, V, moved)
            better = value > top
            U, top = torch.where(better[:, None], moved, U), torch.where(better, value, top)
        return U, top

    def _corners(self, U: Neurons, V: Tensor) -> Neurons:
        """argmax over |u|_C <= 1 of <g, u> with g = X^T D V s, where s supports the dual norm at V^T (X u)_+."""
        hidden = self.X @ U.T
        support = self.output_norm.aligned(hidden.clamp(min=0).T @ V)
        return self.hidden_norm.aligned(((V @ support.T) * (hidden > 0)).T @ self.X)
