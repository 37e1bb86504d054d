"""The exact oracle: a walk over all faces of the arrangement of the rows of X."""

from dataclasses import dataclass
from functools import cached_property
from math import comb

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from bidual.numerics.gram import row_lengths
from bidual.numerics.rounding import gamma, largest_sum, rounded_up
from bidual.patterns import check_enumerable, count_bound, enumeration_bytes
from bidual.patterns.arrangement import MERGE, Arrangement, Flat
from bidual.patterns.reduction import reduce_rank
from bidual.polar.base import NeuronOracle, SteepestNeurons, steepness
from bidual.polar.exact.planes import FLAT_FORM, LISTED, Planes, Tops, form_error, top_error
from bidual.runtime.memory import available_bytes

_AFFORDABLE_FACES = 1_500_000  # a query then takes a few seconds
_QUICK_FACES = 100_000
_AFFORDABLE_BYTES = 3_000_000_000
_NUMBERS = 4_000_000  # that are handled at a time


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
        return Planes.of(self._arrangement.flats(2))

    @cached_property
    def _arrangement(self) -> Arrangement:
        return Arrangement(self._reduced.samples)

    def _steepest(self, V: Tensor, above: float, seeds: Tensor | None) -> SteepestNeurons:
        found = self._tops(V.cpu().numpy(), above)
        neurons = torch.from_numpy(found.directions @ self._reduced.basis.T).to(self.X)
        if seeds is not None:
            neurons = torch.cat([neurons, seeds.to(self.X)])
        values = steepness(self.X, V, neurons)
        highest = float(max(found.upper, float(values.max()) if len(values) else 0.0))
        return SteepestNeurons.ranked(neurons, values, above, rounded_up(highest + self._allowance(V)))

    def _tops(self, V: ndarray, above: float) -> Tops:
        if self._planes is None:
            return _two_directions(self._reduced.samples, V)
        found = [self._planes.tops(V, above)]
        upper = found[0].upper
        for solid in self._solids:
            upper = max(upper, above)  # smaller values are skipped
            more = solid.tops(V, upper, above if above > 0 else upper)
            found, upper = [*found, more], more.upper
        return Tops.of(found, upper)

    @cached_property
    def _longest(self) -> float:
        """The longest row, at least one."""
        return max(1.0, float(row_lengths(torch.from_numpy(self._reduced.samples)).max()))

    def _allowance(self, V: Tensor) -> float:
        r"""Rounding of the forms, the rank cut, and rows that were merged because they nearly agree.

        In units of 2^-53 sum_i |v_i|, for rows x_i of length one: 4 n + 32 for G (:func:`form_error`), 2 c for |G u|,
        20 for the angles at which rows change sign, since a row that has the wrong one is smaller than that; and for
        every dimension that a flat has less than r, r^2 + 2 r^1.5 + 4 r + 16, by which rows on a flat and on a
        hyperplane in it differ (two products with bases and a reflection). That is 2 r^3 + 24 r together, and 4 r^3 +
        24 r with the rounding of the distance of two bases.
        """
        n, c, r = *V.shape, self.rank
        size = largest_sum(torch.linalg.vector_norm(V, dim=1)) * (1 + gamma(c)) * self._longest
        merged = max(self._arrangement.coarseness, 0.0 if self._planes is None else self._planes.narrow)
        steps = gamma(4 * n + 2 * c + 4 * r**3 + 24 * r + 96)
        merged = 8 * r * merged + 2 * r * self._arrangement.spread
        return rounded_up((merged + steps) * size + self._reduced.lost(V))


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

    @classmethod
    def of(cls, flat: Flat, arrangement: Arrangement) -> "_Solid":
        lengths = np.linalg.norm(flat.rows, axis=1)
        return cls(flat.basis, flat.rows, lengths, arrangement.cells(flat).active)

    def tops(self, V: Float[ndarray, "n c"], known: float, threshold: float) -> Tops:
        """Interior maxima beyond ``threshold``, and a bound on all of them, given that of all smaller faces."""
        M = (V[:, :, None] * self.rows[:, None, :]).reshape(len(V), -1)
        found: list[Tops] = []
        for chunk in self._chunks():
            found.append(self._chunk(M, V, known, threshold, chunk))
            known = max(known, found[-1].upper)
        return Tops.of(found, known)

    def _chunks(self) -> list[slice]:
        size = max(1, _NUMBERS // self.active.shape[1])
        return [slice(start, start + size) for start in range(0, len(self.active), size)]

    def _chunk(self, M: ndarray, V: ndarray, known: float, threshold: float, chunk: slice) -> Tops:
        active = self.active[chunk]
        half = active.astype(np.float64) @ M
        G = np.concatenate([half, M.sum(0) - half]).reshape(2 * len(active), V.shape[1], -1)
        steep = _steeper(G, threshold)
        top, gap, u, rounding = _principal(G[steep])
        beyond = top > threshold**2
        steep, top, gap, u, rounding = (part[beyond] for part in (steep, top, gap, u, rounding))
        order, error = np.argsort(-top), top_error(top, form_error(V), rounding)
        flat = gap <= np.maximum(FLAT_FORM * top, 16 * error)
        if flat.any():  # no better than the cell's border, but for the gap
            known = float(np.sqrt(known**2 + (gap + 4 * error)[flat].max()))
        slack = np.where(flat, 1e-6, 4 * error / np.maximum(gap, 1e-300) + MERGE)
        return self._climb_down(active, steep[order], top[order], slack[order], u[order], known)

    def _climb_down(
        self, active: ndarray, cell: ndarray, top: ndarray, slack: ndarray, u: ndarray, known: float, batch: int = 500
    ) -> Tops:
        """The tops that are in their cells, highest first; ends where neither the bound nor the list gains."""
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


def _steeper(G: Float[ndarray, "p c k"], threshold: float) -> Int[ndarray, " q"]:
    r"""Which spectral norms may exceed a threshold: for Q = G^T G they are at most (tr Q)^(1/2), and at most
    |Q Q|_F^(1/4), which hardly ever is much more. Products of Q are off by gamma_k |Q|_F^2 <= k gamma_k |Q|^2, and Q by
    k gamma_c |Q|."""
    c, k = G.shape[1:]
    steep = np.flatnonzero(np.einsum("pck,pck->p", G, G) > threshold**2 * (1 - gamma(c * k + 8)))
    if c == 1 or not len(steep):
        return steep
    Q = _squares(G[steep])
    return steep[_lengths(Q @ Q) > threshold**4 * (1 - gamma(8 * k * (k + c) + 64))]


def _principal(G: Float[ndarray, "p c k"]) -> tuple[ndarray, ndarray, ndarray, ndarray]:
    """A bound of the top eigenvalue of G^T G, its distance to the next, its eigenvector, and a bound of the distance of
    G^T G to a matrix that has exactly these eigenvalues and about this eigenvector."""
    p, c, k = G.shape
    if c == 1:
        square = np.einsum("pk,pk->p", G[:, 0], G[:, 0])
        rounding = gamma(k + 4) * square
        return square + rounding, square, G[:, 0] / np.sqrt(np.maximum(square, 1e-300))[:, None], rounding
    if not p:
        return np.zeros(0), np.zeros(0), np.zeros((0, k)), np.zeros(0)
    Q = _squares(G)
    values, W = np.linalg.eigh(Q)
    rounding = _eigen_error(Q, values, W) + gamma(c + 2) * np.trace(Q, axis1=1, axis2=2)
    return np.maximum(values[:, -1], 0) + rounding, values[:, -1] - values[:, -2], W[:, :, -1], rounding


def _squares(G: Float[ndarray, "p c k"]) -> Float[ndarray, "p k k"]:
    return np.asarray(G.transpose(0, 2, 1) @ G)


def _eigen_error(Q: Float[ndarray, "p k k"], values: Float[ndarray, "p k"], W: Float[ndarray, "p k k"]) -> ndarray:
    r"""Bounds of |Q - P diag(values) P^T|, P the orthogonal factor of W, for any values and W.

    |W - P| <= |W^T W - I| = e, so that it is at most |Q W - W diag(values)| + e (|Q| + max |values|). Both residuals
    have products of k terms, and |W|_F^2 is k up to a share of e.
    """
    k = Q.shape[1]
    residual, skew = _lengths(Q @ W - W * values[:, None, :]), _lengths(_squares(W) - np.eye(k))
    size = _lengths(Q) + np.abs(values).max(1)
    return 1.001 * (residual + (skew + gamma(k + 4) * 2 * (k + k**0.5)) * size)


def _lengths(A: Float[ndarray, "p k l"]) -> Float[ndarray, " p"]:
    """Frobenius norms."""
    return np.asarray(np.sqrt(np.einsum("pkl,pkl->p", A, A)))


def face_count(n: int, r: int) -> int:
    """The most cells that the flats of dimension two and more of n rows of rank r can have."""
    return sum(comb(n, r - k) * count_bound(n - (r - k), k) for k in range(2, r + 1)) if r > 1 else 2


def affordable(n: int, r: int) -> bool:
    """Whether the exact oracle is quick and small enough to be the default."""
    room = min(_AFFORDABLE_BYTES, available_bytes(torch.device("cpu")) // 2)
    return r <= 2 or (face_count(n, r) <= _AFFORDABLE_FACES and enumeration_bytes(n, r) <= room)


def slow(n: int, r: int) -> bool:
    """Whether a query of the exact oracle takes so long that a search should come first."""
    return face_count(n, r) > _QUICK_FACES
