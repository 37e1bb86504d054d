"""The question every ReLU certificate asks: how steep is the steepest neuron?"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.gauges import Bracket
from bidual.numerics.norms import L2, LINF, Norm
from bidual.numerics.rounding import TINY, gamma, length, rounded_up
from bidual.operators.patches import Patches
from bidual.types import Matrix

Neurons = Float[Tensor, "q d"]
_SMALLEST = 1e-290  # factors below it may have lost digits
_SHORTEST = 2.0**-960  # rows that matter and are shorter may have lost digits of their lengths


@dataclass(frozen=True, eq=False)
class SteepestNeurons:
    """What an oracle knows about max { |V^T (X u)_+| : |u| <= 1 }: a bracket, and directions u that climb high.

    Attributes:
        bracket: ``lower`` is attained by a direction that was evaluated; ``upper`` is proved, infinity if it is not.
        neurons: unit directions, best first.
        values: |V^T (X u)_+| of each.
    """

    bracket: Bracket
    neurons: Neurons
    values: Float[Tensor, " q"]

    def scaled(self, factor: float) -> "SteepestNeurons":
        """The answer for ``factor`` times V; the upper bound is rounded up, and never underflows."""
        upper = rounded_up(max(factor, _SMALLEST) * self.bracket.upper)
        return SteepestNeurons(Bracket(factor * self.bracket.lower, upper), self.neurons, factor * self.values)

    def raised(self, allowance: float) -> "SteepestNeurons":
        """The answer with an upper bound that leaves more room."""
        upper = rounded_up(self.bracket.upper + allowance)
        return SteepestNeurons(Bracket(self.bracket.lower, upper), self.neurons, self.values)


class NeuronOracle(ABC):
    r"""Cone-constrained PCA over all activation patterns (CP eq. 38-41): max over |u| <= 1 of |V^T (X u)_+|_2.

    It is the polar of the ReLU network's gauge, at -V or V alike. An oracle is made once for X and asked for many V.
    Since (s x u)_+ v = (x u)_+ s v for s > 0, it sees rows of X of length one only, and V with their lengths in it: no
    row is lost beside longer ones, and squares stay in range.

    Attributes:
        X: the samples, scaled to length one; zero rows stay zero.
        lengths: what they were scaled by.
    """

    proves: ClassVar[bool] = True  # False for a search, whose upper bound is infinity
    hidden_norm: Norm = L2  # of u
    output_norm: Norm = L2  # V^T (X u)_+ is measured in its dual
    readout: Patches | None = None  # what comes between (X u)_+ and V; None for V with one row per row of X

    X: Float[Tensor, "n d"]
    lengths: Float[Tensor, " n"]

    def _take(self, X: Float[Tensor, "n d"]) -> None:
        """Store the samples; every constructor calls it."""
        self.X, self.lengths = _normalised(X)

    def is_for(self, X: Float[Tensor, "n d"]) -> bool:
        """Whether these are the samples it was made for."""
        rows, lengths = _normalised(X)
        return self.X.shape == rows.shape and torch.equal(self.X, rows) and torch.equal(self.lengths, lengths)

    def steepest(self, V: Matrix, above: float = 0.0, seeds: Neurons | None = None) -> SteepestNeurons:
        """Bracket the maximum at V; list directions whose value exceeds ``above``, perhaps found from ``seeds``.

        The bracket may be as wide as [lower, ``above``] when all that is left to know is that nothing exceeds it.
        """
        if V.ndim != 2 or len(V) != len(self.X):
            raise ValueError(f"V must have one row per sample ({len(self.X)}), got shape {tuple(V.shape)}.")
        V = V.to(torch.float64)
        if not bool((V.any(1) & (self.lengths > 0)).any()):
            return self._nothing(0.0)
        steepest, longest = float(V.abs().max()), float(self.lengths.max())
        W = (V / steepest) * (self.lengths / longest)[:, None]
        share = float(W.abs().max())
        if not (math.isfinite(steepest * longest) and share > _SMALLEST and share * longest > _SHORTEST):
            return self._nothing(math.inf)  # out of the range of numbers
        size, W = steepest * longest * share, W / share
        found = self._steepest(W, above / size if size > 0 else math.inf, seeds)
        return found.raised(self._rounding(W, share)).scaled(size)

    @property
    def slope(self) -> float:
        """By how much the output of a row changes at most, per unit by which the row changes, for neurons of length
        one."""
        return self.hidden_norm.times_l2(self.X.shape[1])

    def _rounding(self, W: Matrix, share: float = 1.0) -> float:
        r"""What the scaling costs: entries of X are lengths_i X_ij up to three roundings and size * W_ij is
        lengths_i V_ij up to six, so the maximum of sum_i W_i (x_i u)_+ moves by gamma_9 sum_i |W_i| |x_i| at most; and
        by what underflows before W was divided by ``share``."""
        total = float(self.output_norm.dual.value(W).sum()) * (1 + gamma(sum(W.shape) + 8))
        return (gamma(12) * total + 8 * W.numel() * W.shape[1] * TINY / share) * self.slope

    def _nothing(self, upper: float) -> SteepestNeurons:
        return SteepestNeurons(Bracket(0.0, upper), self.X.new_zeros(0, self.X.shape[1]), self.X.new_zeros(0))

    @abstractmethod
    def _steepest(self, V: Tensor, above: float, seeds: Tensor | None) -> SteepestNeurons: ...


def _normalised(X: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
    """Rows of length one, and their lengths, at any scale: what rows are divided by."""
    X = X.detach().to(torch.float64)
    near = LINF.unit(X)
    return L2.unit(near), LINF.value(X).clamp(min=TINY) * L2.value(near)


def steepness(X: Float[Tensor, "n d"], V: Matrix, neurons: Neurons) -> Float[Tensor, " q"]:
    """|V^T (X u)_+| / |u| for every neuron u, 0 for the zero neuron: a lower bound of the polar each."""
    norm = torch.linalg.vector_norm(neurons, dim=1)
    value = torch.linalg.vector_norm((X @ neurons.T).clamp(min=0).T @ V, dim=1)
    return torch.where(norm > 0, value / norm.clamp(min=torch.finfo(X.dtype).tiny), 0.0)


def bound_near(X: Float[Tensor, "n d"], V: Matrix, polar: float) -> Callable[[Matrix], float]:
    """A bound for points W near a V whose polar is at most ``polar``: it grows by at most |X|_F |W - V|_F, because the
    ReLU is 1-Lipschitz and 0 at 0."""
    size, V = length(X.to(torch.float64)), V.to(torch.float64)

    def bound(W: Matrix) -> float:
        distance = length(W.to(V) - V)  # one rounding of every entry is within what length rounds up by
        return rounded_up(polar + rounded_up(size * distance)) if distance else polar

    return bound
