"""Oracles for networks on patches."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.numerics.rounding import gamma, length, rounded_up
from bidual.operators.patches import Patches
from bidual.polar.base import NeuronOracle, Neurons, SteepestNeurons
from bidual.types import Matrix

Make = Callable[[Float[Tensor, "n d"]], NeuronOracle]


class Pooled(NeuronOracle):
    """max |V^T L[(X u)_+]|_F = max |(L* V)^T (X u)_+|_2 over |u| <= 1, by an oracle for the distinct rows of X.

    It bounds the dual constraints of BM (23) and (136) over all activation patterns of patches or tokens.
    """

    def __init__(self, patches: Patches, make: Make) -> None:
        self.readout, self._exact = patches, patches.to(torch.float64)
        self._rows = patches.rows().to(torch.float64)  # made in the precision of the patches, as in the problem
        distinct, self._index = patches.distinct
        self.inner = make(distinct.to(torch.float64))
        if (self.inner.hidden_norm.order, self.inner.output_norm.order) != (2, 2):
            raise ValueError("networks on patches are priced in Euclidean norms only; give an oracle for those.")
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

    def merged(self, V: Matrix) -> Matrix:
        """L* V, added up over equal rows."""
        spread = self._exact.spread(V.to(self._rows))
        return spread.new_zeros(len(self.X), spread.shape[1]).index_add_(0, self._index, spread)

    def _of_readout(self, V: Matrix) -> float:
        r"""The rounding of L* V, of its sums over equal patches, and of scaling in :meth:`NeuronOracle.steepest`.

        The entry (a, k) of V^T L[(X u)_+] is sum_r sum_N V_Nk L_Nar (x_r u)_+, of which (L* V)_r is computed: its terms
        go through a quotient and a product in L*, at most as many sums as there are equal patches, and ten operations
        of scaling; rows that are products of tokens are rounded once. So the entry is off by at most gamma times
        sum_N |V_Nk| R_Na with R_Na = sum_r |L_Nar| |x_r|, the readout's reach, and all entries together by
        gamma |R|_F |V|_F.
        """
        most = int(torch.bincount(self._index).max()) if len(self._index) else 0
        return rounded_up(gamma(most + self._exact.depth) * self._exact.magnitude * length(V))

    def _steepest(self, V: Tensor, above: float, seeds: Tensor | None) -> SteepestNeurons:
        return self.inner._steepest(V, above, seeds)


def oracle_for(X: Float[Tensor, "n d"], readout: Patches | None, make: Make) -> NeuronOracle:
    """``make(X)``, or with a readout the oracle of its dual points that calls ``make`` for the rows."""
    return make(X) if readout is None else Pooled(readout, make)
