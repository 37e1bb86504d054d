"""The exact oracle: a walk over all faces of the arrangement of the rows of X."""

from dataclasses import dataclass
from functools import cached_property
from math import comb
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from torch import Tensor

from bidual.numerics.forms import form_error, principal, principal_of_plane, steeper, top_error
from bidual.numerics.gram import row_lengths
from bidual.numerics.rounding import gamma, largest_sum, rounded_up
from bidual.patterns import check_enumerable, count_bound, enumeration_bytes
from bidual.patterns.arrangement import MERGE, Arrangement, Flat
from bidual.patterns.reduction import reduce_rank
from bidual.polar.base import NeuronOracle, SteepestNeurons, steepness
from bidual.runtime.memory import available_bytes

LISTED = 2000  # about how many directions are listed, highest first
_FLAT_FORM = 1e-8  # a quadratic form whose eigenvalues differ by less, relatively, is constant on a plane
_AFFORDABLE_FACES = 1_500_000  # a query then takes a few seconds
_QUICK_FACES = 100_000
_AFFORDABLE_BYTES = 3_000_000_000
_NUMBERS = 4_000_000  # that are handled at a time


class Tops(NamedTuple):
    """Directions u, their quadratic forms' values |G u|, and the proved largest."""

    directions: Float[ndarray, "q r"]
    values: Float[ndarray, " q"]
    upper: float

    @classmethod
    def of(cls, parts: "list[Tops]", upper: float) -> "Tops":
        """The directions of all parts, under a bound of their values."""
        directions, values = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        return cls(directions, values, upper)


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
    def _planes(self) -> "Planes | None":
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
class Planes:
    r"""Planes of an arrangement, with the angles at which rows of X change sign.

    Between two angles, |V^T (X u)_+| = |G u| with one matrix G (c, 2), and going round, every angle adds or removes one
    row's v_i x_i^T. A maximum of u^T G^T G u on an arc is at an end, or at the top eigenvector if that is on the arc.

    Attributes:
        basis: (f, r, 2).
        turns: (f, n), sorted angles in [0, pi); opposite arcs follow by symmetry.
        order: (f, n), which row changes there.
        change: (f, n), +1 if the row becomes active there, -1 if it stops.
        rows: (f, n, 2), X on the plane in the order of the angles.
        narrow: the width of the widest arc that counts as empty.
    """

    basis: Float[ndarray, "f r 2"]
    turns: Float[ndarray, "f n"]
    order: ndarray
    change: Float[ndarray, "f n"]
    rows: Float[ndarray, "f n 2"]
    narrow: float = 0.0

    @classmethod
    def of(cls, flats: list[Flat]) -> "Planes":
        rows = np.stack([flat.rows for flat in flats])
        normal = np.arctan2(rows[..., 1], rows[..., 0])
        turns = np.mod(normal + np.pi / 2, np.pi)
        change = np.where(np.cos(turns - np.pi / 2 - normal) > 0, -1.0, 1.0)
        order = np.argsort(turns, axis=1)
        sorted_rows = np.take_along_axis(rows, order[..., None], 1)
        basis, turns = np.stack([flat.basis for flat in flats]), np.take_along_axis(turns, order, 1)
        width = np.concatenate([turns[:, 1:], turns[:, :1] + np.pi], 1) - turns
        narrow = float(np.max(width, where=width <= MERGE + 1e-14, initial=0.0))
        return cls(basis, turns, order, np.take_along_axis(change, order, 1), sorted_rows, narrow)

    def tops(self, V: Float[ndarray, "n c"], above: float) -> Tops:
        """The best direction of every arc whose value exceeds ``above``, and a proved bound over all planes."""
        parts = [self._tops(V, chunk, above) for chunk in self._chunks(V.shape[1])]
        return Tops.of(parts, max(part.upper for part in parts))

    def _chunks(self, c: int) -> list[slice]:
        f, n = self.turns.shape
        size = max(1, _NUMBERS // (4 * n * c))
        return [slice(start, start + size) for start in range(0, f, size)]

    def _tops(self, V: ndarray, chunk: slice, above: float) -> Tops:
        G = self._forms(V, chunk)
        turns = self.turns[chunk]
        low = np.concatenate([turns, turns + np.pi], 1)
        width = np.concatenate([low[:, 1:], low[:, :1] + 2 * np.pi], 1) - low
        at_end = np.linalg.norm(_apply(G, low), axis=2)
        top, gap, angle = principal_of_plane(G)
        error = top_error(top, form_error(V), gamma(4 * V.shape[1] + 16) * top)
        inside, spread = _on_arc(angle, low, width, top, gap, error)
        upper = max(float(at_end.max()), float(np.sqrt(np.max(top, where=inside, initial=0.0))))
        upper = np.sqrt(upper**2 + spread)
        best_at_top = inside & (np.sqrt(top) > at_end)
        value = np.where(best_at_top, np.sqrt(top), at_end)
        listed = value > min(above, float(value.max()) * (1 - 1e-12))
        if listed.sum() > LISTED:
            listed &= value >= np.partition(value, value.size - LISTED, axis=None)[-LISTED]
        chosen = np.nonzero(listed)
        theta = np.where(best_at_top, low + np.mod(angle - low, np.pi), low)[chosen]
        directions = np.stack([np.cos(theta), np.sin(theta)], 1)
        lifted = np.einsum("qrk,qk->qr", self.basis[chunk][chosen[0]], directions)
        return Tops(lifted, value[chosen], float(upper))

    def _forms(self, V: ndarray, chunk: slice) -> Float[ndarray, "f m c 2"]:
        """G on each of the 2n arcs of every plane; the arc after the i-th angle comes i-th."""
        M = V[self.order[chunk]][..., None] * self.rows[chunk][:, :, None, :]
        change = self.change[chunk][..., None, None]
        before = (M * (change < 0)).sum(1, keepdims=True)
        half = before + np.cumsum(change * M, axis=1)
        return np.concatenate([half, M.sum(1, keepdims=True) - half], 1)


def _apply(G: Float[ndarray, "f m c 2"], angle: Float[ndarray, "f m"]) -> Float[ndarray, "f m c"]:
    return G[..., 0] * np.cos(angle)[..., None] + G[..., 1] * np.sin(angle)[..., None]


def _on_arc(
    angle: ndarray, low: ndarray, width: ndarray, value: ndarray, gap: ndarray, error: ndarray
) -> tuple[Bool[ndarray, "f m"], float]:
    """Whether the top direction (or its opposite) may be on the arc, and the cost of ignoring flat forms.

    The angle is known up to error / (gap - 2 error) (Davis & Kahan), and up to the rounding of angles, which is far
    below MERGE. Where the form is flat, the value at an end of the arc is as large up to the gap.
    """
    flat = gap <= np.maximum(_FLAT_FORM * value, 16 * error)
    slack = 4 * error / np.where(flat, np.inf, np.maximum(gap, np.finfo(float).tiny)) + MERGE
    offset = np.mod(angle - low, np.pi)
    inside = ((offset <= width + slack) | (offset >= np.pi - slack)) & (width > MERGE) & ~flat
    return inside, float(np.max(gap + 4 * error, where=flat, initial=0.0))


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
        steep = steeper(G, threshold)
        top, gap, u, rounding = principal(G[steep])
        beyond = top > threshold**2
        steep, top, gap, u, rounding = (part[beyond] for part in (steep, top, gap, u, rounding))
        order, error = np.argsort(-top), top_error(top, form_error(V), rounding)
        flat = gap <= np.maximum(_FLAT_FORM * top, 16 * error)
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
