"""Oracles for networks on patches."""

from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.gauges import Bracket
from bidual.losses.base import Matrix
from bidual.patches import Patches
from bidual.polar.base import NeuronOracle, Neurons, Peaks
from bidual.rounding import gamma, length

Make = Callable[[Float[Tensor, "n d"]], NeuronOracle]


class Pooled(NeuronOracle):
    """max |V^T L[(X u)_+]|_F over |u| <= 1, by an oracle for the rows of X: it is max |(L* V)^T (X u)_+|_2.

    In BM (23) and (136) these are the dual's constraints over all activation patterns of patches or tokens.
    Patches that are equal are one row of the oracle.
    """

    def __init__(self, patches: Patches, make: Make) -> None:
        self.readout = patches
        self._rows = patches.rows()
        distinct, self._index = patches.distinct
        self.inner = make(distinct)
        self.X, self.lengths = self.inner.X, self.inner.lengths
        self.proves = self.inner.proves  # type: ignore[misc]
        self.hidden_norm, self.output_norm = self.inner.hidden_norm, self.inner.output_norm

    def is_for(self, X: Float[Tensor, "n d"]) -> bool:
        return X.shape == self._rows.shape and torch.equal(X.to(self._rows), self._rows)

    def peaks(self, V: Matrix, above: float = 0.0, seeds: Neurons | None = None) -> Peaks:
        assert self.readout is not None
        if V.ndim != 2 or len(V) != self.readout.n_predictions:
            raise ValueError(
                f"V must have one row per prediction ({self.readout.n_predictions}), got shape {tuple(V.shape)}."
            )
        spread = self.readout.spread(V.to(self._rows))
        merged = spread.new_zeros(len(self.X), spread.shape[1]).index_add_(0, self._index, spread)
        found = self.inner.peaks(merged, above, seeds)
        return replace(found, bracket=Bracket(found.bracket.lower, found.bracket.upper + self._rounding(V)))

    def _rounding(self, V: Matrix) -> float:
        """Of L* V, added up over patches that are equal."""
        assert self.readout is not None
        most = int(torch.bincount(self._index).max()) if len(self._index) else 0
        return gamma(most + self.readout.depth) * self.readout.magnitude * length(V)

    def _peaks(self, V: Tensor, above: float, seeds: Tensor | None) -> Peaks:
        return self.inner._peaks(V, above, seeds)


def oracle_for(X: Float[Tensor, "n d"], readout: Patches | None, make: Make) -> NeuronOracle:
    """The oracle that ``make`` makes for rows, for the dual points of a network with this readout."""
    return make(X) if readout is None else Pooled(readout, make)
