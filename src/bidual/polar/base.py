"""Oracles for the steepest neuron, max { |V^T (X u)_+| : |u| <= 1 }: the polar of the ReLU gauge, also on patches."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bidual.gauges import Bracket
from bidual.numerics.norms import L2, LINF, Norm
from bidual.numerics.rounding import TINY, gamma, largest_sum, length, rounded_up
from bidual.operators.patches import Patches
from bidual.types import Matrix

Neurons = Float[Tensor, "q d"]
_SMALLEST = 1e-290  # factors below it may have lost digits
_SHORTEST = 2.0**-960  # rows that matter and are shorter may have lost digits of their lengths


@dataclass(frozen=True, eq=False)
class SteepestNeurons:
    """A bracket of max { |V^T (X u)_+| : |u| <= 1 }, and steep directions u.

    Attributes:
        bracket: ``lower`` is attained by an evaluated direction; ``upper`` is proved, or infinite.
        neurons: unit directions, best first.
        values: |V^T (X u)_+| of each.
    """

    bracket: Bracket
    neurons: Neurons
    values: Float[Tensor, " q"]

    @classmethod
    def ranked(
        cls,
        neurons: Neurons,
        values: Float[Tensor, " q"],
        above: float = -math.inf,
        upper: float = math.inf,
        most: int | None = None,
    ) -> Self:
        """The neurons with values above ``above``, best first, at most ``most``; the best one in any case."""
        lower = float(values.max()) if len(values) else 0.0
        order = torch.argsort(values, descending=True)[:most]
        order = order[values[order] > min(above, lower * (1 - 1e-12))]
        return cls(Bracket(lower, max(upper, lower)), neurons[order], values[order])

    def with_upper(self, upper: float) -> Self:
        return replace(self, bracket=Bracket(self.bracket.lower, upper))

    def scaled(self, factor: float) -> Self:
        """The result for ``factor`` times V; the upper bound is rounded up, and never underflows."""
        upper = rounded_up(max(factor, _SMALLEST) * self.bracket.upper)
        return type(self)(Bracket(factor * self.bracket.lower, upper), self.neurons, factor * self.values)

    def raised(self, allowance: float) -> Self:
        """The result with ``allowance`` added to the upper bound."""
        return self.with_upper(rounded_up(self.bracket.upper + allowance))


class NeuronOracle(ABC):
    r"""Cone-constrained PCA over all activation patterns (CP eq. 38-41): max over |u| <= 1 of |V^T (X u)_+|_2.

    It is the polar of the ReLU network's gauge, at -V or V alike. One oracle of X serves many V. Since
    (s x u)_+ v = (x u)_+ s v for s > 0, ``_steepest`` gets rows of X of length one, and V with their lengths in it: no
    row is lost beside longer ones, and squares stay in range.

    Attributes:
        X: the samples, scaled to length one; zero rows stay zero.
        lengths: their lengths before scaling.
    """

    proves: ClassVar[bool] = True  # False for a search, whose upper bound is infinite
    hidden_norm: Norm = L2  # of u
    output_norm: Norm = L2  # V^T (X u)_+ is measured in its dual
    readout: Patches | None = None  # between (X u)_+ and V; None for V with one row per row of X

    X: Float[Tensor, "n d"]
    lengths: Float[Tensor, " n"]

    def _take(self, X: Float[Tensor, "n d"]) -> None:
        """Store the samples; every constructor calls it."""
        self.X, self.lengths = _normalised(X)

    def is_for(self, X: Float[Tensor, "n d"]) -> bool:
        """Whether X equals the oracle's samples."""
        rows, lengths = _normalised(X)
        return self.X.shape == rows.shape and torch.equal(self.X, rows) and torch.equal(self.lengths, lengths)

    def steepest(self, V: Matrix, above: float = 0.0, seeds: Neurons | None = None) -> SteepestNeurons:
        """Bracket the maximum at V; list directions whose value exceeds ``above``; ``seeds`` start searches.

        Once nothing can exceed ``above``, the bracket may be as wide as [lower, ``above``].
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
        """The largest change of (x u)_+ per unit change of the row x, over neurons u of norm one."""
        return self.hidden_norm.times_l2(self.X.shape[1])

    def _rounding(self, W: Matrix, share: float = 1.0) -> float:
        r"""The error of scaling: entries of X are lengths_i X_ij up to three roundings and size * W_ij is
        lengths_i V_ij up to six, so the maximum of sum_i W_i (x_i u)_+ moves by gamma_9 sum_i |W_i| |x_i| at most; and
        by underflows before the division of W by ``share``. The rest of gamma_12 is for the rounding of |W_i|."""
        total = largest_sum(self.output_norm.dual.value(W))
        return (gamma(12) * total + 8 * W.numel() * W.shape[1] * TINY / share) * self.slope

    def _nothing(self, upper: float) -> SteepestNeurons:
        return SteepestNeurons(Bracket(0.0, upper), self.X.new_zeros(0, self.X.shape[1]), self.X.new_zeros(0))

    @abstractmethod
    def _steepest(self, V: Tensor, above: float, seeds: Tensor | None) -> SteepestNeurons: ...


Make = Callable[[Float[Tensor, "n d"]], NeuronOracle]


class Pooled(NeuronOracle):
    """max |V^T L[(X u)_+]|_F = max |(L* V)^T (X u)_+|_2 over |u| <= 1, by an oracle for the distinct rows of X.

    It bounds the dual constraints of BM (23) and (136) over all activation patterns of patches or tokens.
    """

    def __init__(self, patches: Patches, make: Make) -> None:
        self.readout, self._exact = patches, patches.to(torch.float64)
        self._rows = patches.rows().to(torch.float64)  # made in the precision of the patches, as in the problem
        distinct, self._index = patches.distinct
        self._answer_by(make(distinct.to(torch.float64)))

    def _answer_by(self, inner: NeuronOracle) -> None:
        """With an oracle for the distinct rows."""
        self.inner = inner
        if (self.inner.hidden_norm.order, self.inner.output_norm.order) != (2, 2):
            raise ValueError("rows are pooled for Euclidean norms only; give an oracle for those.")
        self.X, self.lengths = self.inner.X, self.inner.lengths
        self.proves = self.inner.proves  # type: ignore[misc]
        self.hidden_norm, self.output_norm = self.inner.hidden_norm, self.inner.output_norm

    def is_for(self, X: Float[Tensor, "n d"]) -> bool:
        return X.shape == self._rows.shape and torch.equal(X.to(self._rows), self._rows)

    def steepest(self, V: Matrix, above: float = 0.0, seeds: Neurons | None = None) -> SteepestNeurons:
        assert self.readout is not None
        if V.ndim != 2 or len(V) != self.readout.n_predictions:
            raise ValueError(
                f"V must have one row per prediction ({self.readout.n_predictions}), got shape {tuple(V.shape)}."
            )
        return self.inner.steepest(self.merged(V), above, seeds).raised(self._of_readout(V))

    def merged(self, V: Float[Tensor, "N c"]) -> Float[Tensor, "k ac"]:
        """L* V, added up over equal rows."""
        spread = self._exact.spread(V.to(self._rows))
        return spread.new_zeros(len(self.X), spread.shape[1]).index_add_(0, self._index, spread)

    def _of_readout(self, V: Matrix) -> float:
        r"""The rounding of L* V, of its sums over equal patches, and of scaling in :meth:`NeuronOracle.steepest`.

        The entry (a, k) of V^T L[(X u)_+] is sum_r sum_N V_Nk L_Nar (x_r u)_+, of which (L* V)_r is computed: its terms
        go through a quotient and a product in L*, at most as many sums as there are equal patches, and ten operations
        of scaling; rows that are products of tokens are rounded once. So the entry is off by at most gamma times
        sum_N |V_Nk| R_Na with R_Na = sum_r |L_Nar| |x_r|, the readout's reach, and all entries together by
        gamma |R|_F |V|_F; and by TINY |x_r| for every operation on an entry of (L* V)_r that underflows.
        """
        assert self.readout is not None
        operations = self._exact.depth + (int(torch.bincount(self._index).max()) if len(self._index) else 0)
        entries = len(self._rows) * self.readout.readouts * V.shape[1]
        flushed = 2 * operations * entries * TINY * length(self._rows)
        return rounded_up(gamma(operations) * self._exact.magnitude * length(V) + flushed)

    def _steepest(self, V: Tensor, above: float, seeds: Tensor | None) -> SteepestNeurons:
        return self.inner._steepest(V, above, seeds)


class Repeated(Pooled):
    """max |V^T (X u)_+| over |u| <= 1, by an oracle for the distinct rows of X.

    Equal rows share (x u)_+, so that their rows of V add up. A relaxation does not know that they are equal: a table of
    435 rows, 76 of them distinct, was certified to 52 % in 14 s as it is, and to 1.1 % in 8 s when they are merged
    (congressional-voting in ``benchmarks/uci_proofs.py``).
    """

    def __init__(self, X: Float[Tensor, "n d"], make: Make) -> None:
        self._rows = X.detach().to(torch.float64)
        distinct, self._index = torch.unique(self._rows, dim=0, return_inverse=True)
        self._answer_by(make(distinct))

    @property
    def index(self) -> Int[Tensor, " n"]:
        """Which distinct row every sample has."""
        return self._index

    def steepest(self, V: Matrix, above: float = 0.0, seeds: Neurons | None = None) -> SteepestNeurons:
        if V.ndim != 2 or len(V) != len(self._rows):
            raise ValueError(f"V must have one row per sample ({len(self._rows)}), got shape {tuple(V.shape)}.")
        return self.inner.steepest(self.merged(V), above, seeds).raised(self._of_sums(V))

    def merged(self, V: Float[Tensor, "n c"]) -> Float[Tensor, "k c"]:
        V = V.to(self._rows)
        return V.new_zeros(len(self.X), V.shape[1]).index_add_(0, self._index, V)

    def _of_sums(self, V: Matrix) -> float:
        r"""A sum of k rows of V is off by gamma_k times that of absolute values, so the maximum moves by
        gamma_k sum_i |V_i| |x_i| <= gamma_k |V|_F |X|_F; where tiny numbers are flushed to zero, by TINY for every
        entry read and every sum."""
        lost = gamma(int(torch.bincount(self._index).max())) * length(V) + 2 * V.numel() * TINY
        return rounded_up(lost * length(self._rows))


def oracle_for(X: Float[Tensor, "n d"], readout: Patches | None, make: Make) -> NeuronOracle:
    """``make(X)``, of the distinct rows where some come twice; or with a readout the oracle of its dual points that
    calls ``make`` for the rows."""
    if readout is not None:
        return Pooled(readout, make)
    return Repeated(X, make) if distinct_count(X) < len(X) else make(X)


def distinct_count(X: Float[Tensor, "n d"]) -> int:
    """How many rows differ."""
    return len(torch.unique(X, dim=0)) if X.numel() else len(X)


def _normalised(X: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
    """Rows of length one, and their lengths before, at any scale."""
    X = X.detach().to(torch.float64)
    near = LINF.unit(X)
    return L2.unit(near), LINF.value(X).clamp(min=TINY) * L2.value(near)


def steepness(X: Float[Tensor, "n d"], V: Matrix, neurons: Neurons) -> Float[Tensor, " q"]:
    """|V^T (X u)_+| / |u| for every neuron u, 0 for the zero neuron; each is a lower bound of the polar."""
    norm = torch.linalg.vector_norm(neurons, dim=1)
    value = torch.linalg.vector_norm((X @ neurons.T).clamp(min=0).T @ V, dim=1)
    return torch.where(norm > 0, value / norm.clamp(min=torch.finfo(X.dtype).tiny), 0.0)  # squares may underflow


def bound_near(X: Float[Tensor, "n d"], V: Matrix, polar: float) -> Callable[[Matrix], float]:
    """polar + |X|_F |W - V|_F bounds the polar at W, if ``polar`` bounds it at V: the ReLU is 1-Lipschitz."""
    size, V = length(X.to(torch.float64)), V.to(torch.float64)

    def bound(W: Matrix) -> float:
        distance = length(W.to(V) - V)  # one rounding of every entry is within what length rounds up by
        return rounded_up(polar + rounded_up(size * distance)) if distance else polar

    return bound
