"""Cones of activation patterns that cover all directions, and a bound of the error of a pattern on its cone."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from bidual import patterns
from bidual.numerics.linear_algebra import nonnegative_multipliers
from bidual.numerics.rounding import gamma, rounded_up
from bidual.patterns.cones import hyperplanes
from bidual.polar.relaxations.sign_regions import size_of

_GOOD = 1e-13  # a residual at which multipliers are good enough
_MERGES = (1e-11, 3e-11, 1e-10, 3e-10, 1e-9, 1e-8, 1e-7)  # distances up to which rows may count as one
_NOTHING = 1e-150  # a bound of all underflows


@dataclass(frozen=True, eq=False)
class Covering:
    r"""Patterns p with cones C_p = { u : s_j y_j u >= 0 for j in needed_p } that cover all u, complete or not.

    A row is *needed* by p if p with its sign flipped is in the list too. So every u is in some C_p, for any list: from
    any pattern, flip a needed row that has the wrong sign at u; each flip leaves one wrong sign less, and when no
    needed row has one, u is in the cone. Only other rows can be wrong there, within the bound of :meth:`missed`.

    Rows that point (nearly) one way or opposite ways share one hyperplane, that of their ``leader``; rows next to zero
    have none and count as active.

    Attributes:
        rows: y (n, r), unscaled in float64; those without a hyperplane are zero.
        leader, side: the row whose hyperplane a row shares, and whether it points to the same side (+1, -1) of it.
        lines: the leaders.
        signs: the bits of the leaders, every pattern once.
        inside: a unit direction in the middle of every cone.
    """

    rows: Float[ndarray, "n r"]
    leader: Int[ndarray, " n"]
    side: Int[ndarray, " n"]
    lines: Int[ndarray, " m"]
    signs: Bool[ndarray, "p m"]
    inside: Float[ndarray, "p r"]

    @classmethod
    def of(cls, rows: Float[ndarray, "n r"]) -> Self:
        """By enumeration, on whose completeness nothing relies; refused if it does not fit into memory.

        Enumeration does not separate rows that are closer than rounding allows. Where some are close, the merging with
        the least :meth:`missed` is taken.
        """
        every = patterns.enumerate(torch.from_numpy(rows))
        active, directions = every.active.numpy(), every.directions.numpy()
        finest = cls._merged(rows, active, directions, _MERGES[0])
        if len(cls._merged(rows, active, directions, _MERGES[-1]).lines) == len(finest.lines):
            return finest
        found = (cls._merged(rows, active, directions, same) for same in _MERGES)
        return min(found, key=lambda covering: covering.missed(rows))

    @classmethod
    def _merged(cls, rows: ndarray, active: ndarray, directions: ndarray, same: float) -> Self:
        """With rows within ``same`` on one hyperplane."""
        leader, side, nonzero = hyperplanes(rows, same)
        lines = np.flatnonzero(nonzero & (leader == np.arange(len(rows))))
        first = np.sort(np.unique(_keys(active[:, lines]), return_index=True)[1])
        rows = np.where(nonzero[:, None], rows, 0.0)
        return cls(rows, leader, side, lines, active[first][:, lines], directions[first])

    @cached_property
    def active(self) -> Bool[ndarray, "p n"]:
        """Every row on the side of its leader."""
        full = np.ones((len(self.signs), len(self.rows)), dtype=bool)
        full[:, self.lines] = self.signs
        return (full[:, self.leader] == (self.side > 0)) | ~self.rows.any(1)

    @cached_property
    def needed(self) -> Bool[ndarray, "p n"]:
        """The rows that bound every cone."""
        needed, known = np.zeros(self.active.shape, dtype=bool), np.sort(_keys(self.signs))
        for k, line in enumerate(self.lines):
            flipped = self.signs.copy()
            flipped[:, k] ^= True
            keys = _keys(flipped)
            place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
            needed[:, line] = known[place] == keys
        return needed

    def missed(self, x: Float[ndarray, "n r"]) -> float:
        r"""A bound of |(x u)_+ - D_p x u| over all p and all unit u in C_p.

        Entry i is max(0, -s_i x_i u). With x_i = +-c_i y_l + e_i, y_l its leader, c_i >= 0, that is at most |e_i| +
        c_i max(0, -s_l y_l u). The last term is zero if the list is known to be complete: as many patterns as m
        hyperplanes can have at all (Cover 1965), each with a direction that shows it. Otherwise it is at most
        |s_l y_l - sum_j lambda_j s_j y_j| over the needed rows j, for any lambda >= 0 (Farkas).
        """
        y = self.side[:, None] * self.rows[self.leader]
        square = (y * y).sum(1)
        c = np.maximum((x * y).sum(1), 0) / np.where(square > 0, square, 1.0)
        near = c[:, None] * y
        off = rounded_up(size_of(x - near) + gamma(4) * (size_of(x) + size_of(near)))
        if self.complete:
            return off
        share = np.bincount(self.leader, c * c, len(self.rows))[self.lines]
        wrong = float(np.sqrt((self._wrong**2 @ share).max(initial=0.0)))
        return rounded_up(off + wrong * (1 + gamma(2 * len(x) + 8)) + _NOTHING)

    @cached_property
    def complete(self) -> bool:
        """Whether all listed patterns exist beyond rounding, and there cannot be more."""
        m, r = len(self.lines), self.rows.shape[1]
        if len(self.signs) != patterns.count_bound(m, min(m, r)):
            return False
        lines, U = self.rows[self.lines], self.inside
        values = U @ lines.T
        error = gamma(r + 8) * np.outer(np.linalg.norm(U, axis=1), np.linalg.norm(lines, axis=1)) + _NOTHING
        return bool(((np.abs(values) > error) & ((values > 0) == self.signs)).all())

    @property
    def _wrong(self) -> Float[ndarray, "p m"]:
        """How far every leader's sign can be wrong on every cone."""
        signed = self.rows[self.lines] * np.where(self.signs, 1, -1)[:, :, None]
        return np.stack([_distances(*pair) for pair in zip(signed, self.needed[:, self.lines], strict=True)])


def _keys(bits: Bool[ndarray, "p m"]) -> ndarray:
    """The bits of a row as one value that can be compared."""
    packed = np.ascontiguousarray(np.packbits(bits, axis=1)) if bits.shape[1] else np.zeros((len(bits), 1), np.uint8)
    return packed.view(np.dtype((np.void, packed.shape[1])))[:, 0]


def _distances(Y: Float[ndarray, "m r"], needed: Bool[ndarray, " m"]) -> Float[ndarray, " m"]:
    r"""For every row of Y, a bound of max { -y u : |u| <= 1, K u >= 0 }, K the needed rows: |y - K^T lambda|.

    Multipliers lambda >= 0 are those of least squares, clipped, and scipy's where these are not good enough.
    """
    K, others = Y[needed], np.flatnonzero(~needed)
    found = np.zeros(len(Y))
    guess = np.maximum(np.linalg.pinv(K.T) @ Y[others].T, 0) if len(K) else np.zeros((0, len(others)))
    found[others] = _residuals(Y[others], K, guess.T)
    for i in np.flatnonzero(found > _GOOD) if len(K) else ():
        found[i] = min(found[i], float(_residuals(Y[i : i + 1], K, nonnegative_multipliers(K, Y[i])[None])[0]))
    return found


def _residuals(y: Float[ndarray, "q r"], K: Float[ndarray, "f r"], multipliers: Float[ndarray, "q f"]) -> ndarray:
    """|y - K^T lambda| of every row, rounded up."""
    sizes = np.linalg.norm(y, axis=1) + multipliers @ np.linalg.norm(K, axis=1)
    off = np.linalg.norm(y - multipliers @ K, axis=1) + gamma(len(K) + 4) * sizes
    return np.asarray(off * (1 + gamma(K.shape[1] + len(K) + 16)) + _NOTHING)
