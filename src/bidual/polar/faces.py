"""The exact oracle: a walk over all faces of the arrangement of the rows of X."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from torch import Tensor

from bidual.gauges import Bracket
from bidual.patterns import check_enumerable
from bidual.patterns.arrangement import MERGE, Arrangement, Flat
from bidual.patterns.reduction import reduce_rank
from bidual.polar.base import NeuronOracle, Peaks, steepness
from bidual.polar.planes import FLAT_FORM, LISTED, Planes, Tops, form_error, top_error
from bidual.rounding import gamma


class Faces(NeuronOracle):
    r"""max over |u| <= 1 of |V^T (X u)_+| by faces: O(n^(r-1)) of them for data of rank r.

    On a cell with pattern D the objective squared is the form of Q = X^T D V V^T D X, and a maximum in the interior of
    the cell, relative to its flat, can only be the top eigenvector of Q compressed to the flat; otherwise it is on a
    face of the cell, a cell of a smaller flat. Planes are swept by angle (:class:`Planes`), which covers the rays too.

    The bound is proved up to the rounding of these eigenvectors: one that is in its cell within that rounding counts
    as inside, one that is not determined (two top eigenvalues agree) is as good as some point of the cell's border.
    """

    def __init__(self, X: Float[Tensor, "n d"]) -> None:
        self._take(X)
        self._reduced = reduce_rank(self.X.cpu().numpy())
        if self.rank > 2:
            check_enumerable(len(X), self.rank)

    @property
    def rank(self) -> int:
        return self._reduced.rank

    @cached_property
    def _solids(self) -> list["_Solid"]:
        """Flats of dimension three and more, smallest first."""
        arrangement = self._arrangement
        flats = (flat for k in range(3, self.rank + 1) for flat in arrangement.flats(k))
        return [_Solid.of(flat, arrangement) for flat in flats]

    @cached_property
    def _planes(self) -> Planes | None:
        if self.rank < 2:
            return None
        flats = self._arrangement.flats(2)
        for flat in flats:
            self._arrangement.middles(flat)  # measures how narrow the arcs are that the sweep leaves out
        return Planes.of(flats)

    @cached_property
    def _arrangement(self) -> Arrangement:
        return Arrangement(self._reduced.samples)

    def _peaks(self, V: Tensor, above: float, seeds: Tensor | None) -> Peaks:
        found = self._tops(V.cpu().numpy(), above)
        neurons = torch.from_numpy(found.directions @ self._reduced.basis.T).to(self.X)
        if seeds is not None:
            neurons = torch.cat([neurons, seeds.to(self.X)])
        values = steepness(self.X, V, neurons)
        order, lower = torch.argsort(values, descending=True), float(values.amax()) if len(values) else 0.0
        order = order[values[order] > min(above, lower * (1 - 1e-12))]
        return Peaks(Bracket(lower, float(max(found.upper, lower)) + self._allowance(V)), neurons[order], values[order])

    def _tops(self, V: ndarray, above: float) -> Tops:
        if self._planes is None:
            return _two_directions(self._reduced.samples, V)
        found = [self._planes.tops(V, above)]
        upper = found[0].upper
        for solid in self._solids:
            upper = max(upper, above)  # what is not above is not looked at
            found.append(solid.tops(V, upper, above if above > 0 else upper))
            upper = found[-1].upper
        directions, values = (np.concatenate([part[i] for part in found]) for i in (0, 1))
        return Tops(directions, values, upper)

    def _allowance(self, V: Tensor) -> float:
        """Rounding of the forms, the rank cut, and rows that were merged because they nearly agree."""
        size = float(torch.linalg.vector_norm(V, dim=1).sum())
        cut = self._reduced.remainder * float(torch.linalg.matrix_norm(V, ord=2))
        return (8 * self.rank * self._arrangement.coarseness + gamma(64 * (sum(V.shape) + self.rank))) * size + cut


def _two_directions(samples: Float[ndarray, "n 1"], V: Float[ndarray, "n c"]) -> Tops:
    """Rank one: u = +1 or -1."""
    directions = np.array([[1.0], [-1.0]])
    values = np.linalg.norm(np.maximum(samples @ directions.T, 0).T @ V, axis=1)
    return Tops(directions, values, float(values.max()))


@dataclass(frozen=True, eq=False)
class _Solid:
    """A flat of dimension three or more with one cell of every antipodal pair."""

    basis: Float[ndarray, "r k"]
    rows: Float[ndarray, "n k"]
    lengths: Float[ndarray, " n"]
    active: Bool[ndarray, "p n"]
    vanishing: Bool[ndarray, " n"]

    @classmethod
    def of(cls, flat: Flat, arrangement: Arrangement) -> "_Solid":
        lengths = np.linalg.norm(flat.rows, axis=1)
        return cls(flat.basis, flat.rows, lengths, arrangement.cells(flat).active, flat.vanishing)

    def tops(self, V: Float[ndarray, "n c"], known: float, threshold: float) -> Tops:
        """Interior maxima beyond ``threshold``, and a bound on all of them, given that of all smaller faces."""
        M = (V[:, :, None] * self.rows[:, None, :]).reshape(len(V), -1)
        found: list[Tops] = []
        for chunk in self._chunks():
            found.append(self._chunk(M, V, known, threshold, chunk))
            known = max(known, found[-1].upper)
        directions, values = (np.concatenate([part[i] for part in found]) for i in (0, 1))
        return Tops(directions, values, known)

    def _chunks(self, numbers: int = 4_000_000) -> list[slice]:
        size = max(1, numbers // self.active.shape[1])
        return [slice(start, start + size) for start in range(0, len(self.active), size)]

    def _chunk(self, M: ndarray, V: ndarray, known: float, threshold: float, chunk: slice) -> Tops:
        active = self.active[chunk]
        half = active.astype(np.float64) @ M
        G = np.concatenate([half, M.sum(0) - half]).reshape(2 * len(active), V.shape[1], -1)
        steep = np.flatnonzero(np.einsum("pck,pck->p", G, G) > threshold**2)  # the Frobenius norm bounds the spectral
        top, gap, u = _principal(G[steep])
        order = np.argsort(-top)
        order = order[top[order] > threshold**2]
        error = top_error(top, form_error(V), sum(G.shape[1:]))
        flat = gap <= np.maximum(FLAT_FORM * top, 16 * error)
        if flat.any():  # no better than the cell's border, but for the gap
            known = float(np.sqrt(known**2 + (gap + 4 * error)[flat].max()))
        slack = np.where(flat, 1e-6, 4 * error / np.maximum(gap, 1e-300) + MERGE)
        return self._climb_down(active, steep[order], top[order], slack[order], u[order], known)

    def _climb_down(
        self, active: ndarray, cell: ndarray, top: ndarray, slack: ndarray, u: ndarray, known: float, batch: int = 500
    ) -> Tops:
        """Which of the tops, highest first, are in their cells; down to where neither the bound nor the list gains."""
        directions, values = [np.zeros((0, len(self.basis)))], [np.zeros(0)]
        for start in range(0, len(cell), batch):
            part = slice(start, start + batch)
            if sum(map(len, values)) >= LISTED and top[start] <= known**2:
                break
            inside, turned = self._inside(active, cell[part], slack[part], u[part])
            directions.append(turned[inside] @ self.basis.T)
            values.append(np.sqrt(top[part][inside]))
            known = max(known, float(values[-1].max(initial=0.0)))
        return Tops(np.concatenate(directions), np.concatenate(values), known)

    def _inside(
        self, active: ndarray, cell: ndarray, slack: ndarray, u: ndarray
    ) -> tuple[Bool[ndarray, " q"], Float[ndarray, "q k"]]:
        """Whether u or -u is in its cell, up to ``slack``, the angle by which u may be off, and turned into it."""
        signs = np.where(active[cell % len(active)], 1.0, -1.0)
        signs[cell >= len(active)] *= -1
        hidden, room = signs * (u @ self.rows.T), slack[:, None] * self.lengths
        ahead, behind = (hidden >= -room).all(1), (hidden <= room).all(1)
        return ahead | behind, np.where((behind & ~ahead)[:, None], -u, u)


def _principal(G: Float[ndarray, "p c k"]) -> tuple[ndarray, ndarray, ndarray]:
    """The top eigenvalue of G^T G, its distance to the next, and its eigenvector."""
    p, c, k = G.shape
    if c == 1:
        square = np.einsum("pk,pk->p", G[:, 0], G[:, 0])
        return square, square, G[:, 0] / np.sqrt(np.maximum(square, 1e-300))[:, None]
    if not p:
        return np.zeros(0), np.zeros(0), np.zeros((0, k))
    Q = np.einsum("pck,pcl->pkl", G, G, optimize=True)
    values, vectors = np.linalg.eigh(Q)
    return np.maximum(values[:, -1], 0), values[:, -1] - values[:, -2], vectors[:, :, -1]
