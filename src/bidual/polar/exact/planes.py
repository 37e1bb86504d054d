"""The steepest neuron of a plane, by an angular sweep; many planes at once."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from bidual.numerics.rounding import gamma
from bidual.patterns.arrangement import MERGE, Flat

_NUMBERS = 4_000_000  # that are handled at a time
LISTED = 2000  # about how many directions are listed, highest first
FLAT_FORM = 1e-8  # a quadratic form whose eigenvalues differ by less, relatively, is constant on a plane


def form_error(V: Float[ndarray, "n c"]) -> float:
    """A bound of the error of G = sum_i v_i x_i^T over any rows x_i of length at most one, in the Frobenius norm.

    A row is added, subtracted, and subtracted from the sum of all: three times, by n + 3 operations at most.
    """
    return gamma(4 * len(V) + 32) * float(np.linalg.norm(V, axis=1).sum())


def top_error(value: ndarray, error: float, rounding: ndarray) -> ndarray:
    """A bound of the error of G^T G and its eigenvalues, the largest of which is ``value``: from an error of G, and
    from the ``rounding`` of the product and of its decomposition."""
    return 2 * np.sqrt(value) * error + error**2 + rounding


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
        top, gap, angle = _principal(G)
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


def _principal(G: Float[ndarray, "f m c 2"]) -> tuple[ndarray, ndarray, ndarray]:
    """The top eigenvalue of G^T G, its distance to the other one, and its angle.

    Both diagonal entries and the cross product are sums of c terms, off by gamma_c times their mean at most, so that
    the eigenvalues mean +- radius are off by gamma_(4 c + 16) of the larger one; the angle by that over the gap.
    """
    first, second = np.einsum("fmc,fmc->fm", G[..., 0], G[..., 0]), np.einsum("fmc,fmc->fm", G[..., 1], G[..., 1])
    cross = np.einsum("fmc,fmc->fm", G[..., 0], G[..., 1])
    mean, half = (first + second) / 2, (first - second) / 2
    radius = np.hypot(half, cross)
    return mean + radius, 2 * radius, np.arctan2(cross, half) / 2


def _on_arc(
    angle: ndarray, low: ndarray, width: ndarray, value: ndarray, gap: ndarray, error: ndarray
) -> tuple[Bool[ndarray, "f m"], float]:
    """Whether the top direction (or its opposite) may be on the arc, and the cost of ignoring flat forms.

    The angle is known up to error / (gap - 2 error) (Davis & Kahan), and up to the rounding of angles, which is far
    below MERGE. Where the form is flat, the value at an end of the arc is as large up to the gap.
    """
    flat = gap <= np.maximum(FLAT_FORM * value, 16 * error)
    slack = 4 * error / np.where(flat, np.inf, np.maximum(gap, np.finfo(float).tiny)) + MERGE
    offset = np.mod(angle - low, np.pi)
    inside = ((offset <= width + slack) | (offset >= np.pi - slack)) & (width > MERGE) & ~flat
    return inside, float(np.max(gap + 4 * error, where=flat, initial=0.0))
