r"""The arrangement of hyperplanes x_i^T u = 0: its flats, and the cells that they are cut into.

A *flat* is an intersection of hyperplanes; on it, some rows of X vanish and the others cut it into *cells*, the cones
on which an activation pattern is constant. Every cell of a flat of dimension k >= 3 has a facet, which is a cell of a
flat of dimension k - 1 inside it; so the cells of a flat are found from those of its children by stepping off to
either side, down to planes, where they are the arcs between sorted angles. Ties need no special care: rows that agree
on a flat form one hyperplane of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

# Rows of a flat that differ by less than this, relative to their length, count as one hyperplane; arcs narrower than
# this count as empty. How far apart such rows really were is kept in `Arrangement.coarseness`.
MERGE = 1e-11

# Two bases of a flat, found as a hyperplane of two others, count as one if they differ by less; `Arrangement.spread`.
SAME = 1e-13


@dataclass(frozen=True, eq=False)
class Flat:
    """A linear subspace on which the rows in ``vanishing`` are zero and no others.

    Attributes:
        basis: (r, k), orthonormal columns.
        rows: (n, k), X on the flat, exactly zero where vanishing.
        vanishing: (n,).
    """

    basis: Float[ndarray, "r k"]
    rows: Float[ndarray, "n k"]
    vanishing: Bool[ndarray, " n"]

    @property
    def dimension(self) -> int:
        return self.basis.shape[1]


@dataclass(frozen=True, eq=False)
class Cells:
    """One cell of every antipodal pair: which rows are positive on it, and a direction in its interior."""

    active: Bool[ndarray, "p n"]
    directions: Float[ndarray, "p r"]


class Arrangement:
    """All flats of dimension two and more of the rows of X (n, r), of length one or zero, with their cells.

    Attributes:
        coarseness: the largest relative distance that counted as zero so far, at most ``2 * MERGE``.
        spread: the largest distance between two bases that counted as one so far, at most ``SAME``. Where rows are
            nearly dependent, a flat that is found in two ways is kept twice: their roundings differ, and only together
            they have all the borders of the flats that contain them.
    """

    def __init__(self, X: Float[ndarray, "n r"]) -> None:
        self.X = X
        self.lengths = np.linalg.norm(X, axis=1)
        self._cells: dict[Flat, Cells] = {}
        self._children: dict[Flat, list[Flat]] = {}
        self._known: dict[bytes, list[Flat]] = {}
        self.coarseness = self.spread = 0.0
        self.whole = Flat(np.eye(X.shape[1]), X, self.lengths == 0)

    def flats(self, dimension: int) -> list[Flat]:
        """Every flat of a dimension."""
        level = [self.whole]
        for _ in range(self.whole.dimension - dimension):
            level = list(dict.fromkeys(child for flat in level for child in self.children(flat)))
        return level

    def children(self, flat: Flat) -> list[Flat]:
        """The flats of one dimension less inside this one."""
        if flat not in self._children:
            found = (self._shared(self._child(flat, *hyperplane)) for hyperplane in self._hyperplanes(flat))
            self._children[flat] = list(dict.fromkeys(found))
        return self._children[flat]

    def _shared(self, flat: Flat) -> Flat:
        """The flat with this basis that was found before, if any, or this one."""
        twins = self._known.setdefault(np.packbits(flat.vanishing).tobytes(), [])
        for twin in twins:
            apart = float(np.linalg.norm(flat.basis - twin.basis @ (twin.basis.T @ flat.basis)))
            if apart <= SAME:
                self.spread = max(self.spread, apart)
                return twin
        twins.append(flat)
        return flat

    def cells(self, flat: Flat) -> Cells:
        """One cell of every antipodal pair of the flat."""
        if flat not in self._cells:
            if flat.dimension > 2:
                parts = [_lifted(flat, child, self.cells(child)) for child in self.children(flat)]
                self._cells[flat] = _merged(flat, parts)
            else:
                self._cells[flat] = self._arcs(flat) if flat.dimension == 2 else _line(flat)
        return self._cells[flat]

    def _negligible(self, sizes: ndarray, limit: float = MERGE) -> Bool[ndarray, "..."]:
        """Which relative sizes count as zero; ``coarseness`` keeps the largest of them."""
        small = sizes <= limit
        self.coarseness = max(self.coarseness, float(np.max(sizes, where=small, initial=0.0)))
        return small

    def _child(self, flat: Flat, row: int, normal: Float[ndarray, " k"]) -> Flat:
        """The flat inside this one on which ``row`` vanishes, and every row that vanishes with it."""
        basis = flat.basis @ _complement(normal)
        rows = self.X @ basis
        # relative to the row on the parent too, where rows of any length were grouped by their directions
        there = np.minimum(self.lengths, np.linalg.norm(flat.rows, axis=1) * 2)
        sizes = np.linalg.norm(rows, axis=1) / np.where(flat.vanishing, 1.0, np.maximum(there, 1e-300))
        vanishing = flat.vanishing | self._negligible(np.where(flat.vanishing, 0.0, sizes), 2 * MERGE)
        vanishing[row] = True
        return Flat(basis, np.where(vanishing[:, None], 0.0, rows), vanishing)

    def _hyperplanes(self, flat: Flat) -> Iterator[tuple[int, Float[ndarray, " k"]]]:
        """A row, and its unit normal, of every distinct hyperplane that the rows cut the flat with."""
        rows = flat.rows[~flat.vanishing]
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        close = np.triu(np.abs(unit @ unit.T) > 1 - 1e-9, 1)
        repeated = np.zeros(len(unit), dtype=bool)
        for i, j in np.argwhere(close):
            if not repeated[i]:
                apart = min(np.linalg.norm(unit[i] - unit[j]), np.linalg.norm(unit[i] + unit[j]))
                repeated[j] |= bool(self._negligible(np.array([apart])).any())
        yield from zip(np.flatnonzero(~flat.vanishing)[~repeated].tolist(), unit[~repeated], strict=True)

    def middles(self, flat: Flat) -> Float[ndarray, " a"]:
        """The angles in the middle of the arcs of half a turn in a plane."""
        rows = flat.rows[~flat.vanishing]
        turn = np.sort(np.mod(np.arctan2(rows[:, 1], rows[:, 0]) + np.pi / 2, np.pi))
        ends = np.append(turn[1:], turn[0] + np.pi)
        return ((turn + ends) / 2)[~self._negligible(ends - turn)]

    def _arcs(self, flat: Flat) -> Cells:
        middle = self.middles(flat)
        directions = np.column_stack([np.cos(middle), np.sin(middle)])
        return Cells(directions @ flat.rows.T > 0, directions @ flat.basis.T)


def _complement(normal: Float[ndarray, " k"]) -> Float[ndarray, "k l"]:
    """An orthonormal basis of the hyperplane orthogonal to a unit vector, by one Householder reflection."""
    k = len(normal)
    pivot = int(np.argmax(np.abs(normal)))
    v = normal.copy()
    v[pivot] += np.copysign(1.0, normal[pivot])
    H = np.eye(k) - np.outer(v, v) * (2 / (v @ v))
    return np.delete(H, pivot, axis=1)


def _line(flat: Flat) -> Cells:
    """A line has one cell and its opposite; a point has one, where nothing is active."""
    if flat.dimension == 0:
        return Cells(np.zeros((1, len(flat.rows)), dtype=bool), np.zeros((1, len(flat.basis))))
    return Cells((flat.rows[:, 0] > 0)[None], flat.basis.T)


def _lifted(flat: Flat, child: Flat, cells: Cells) -> Cells:
    """The cells of a flat on both sides of the cells of a child: the rows that vanish only there take either sign."""
    new = child.vanishing & ~flat.vanishing
    across = flat.rows[new]
    side = across @ across[0] > 0
    active = np.repeat(cells.active[None], 2, axis=0)
    active[0][:, new], active[1][:, new] = side, ~side
    return Cells(active.reshape(-1, active.shape[2]), np.tile(cells.directions, (2, 1)))


def _merged(flat: Flat, parts: list[Cells]) -> Cells:
    """Cells found from several facets, once each; the mean of the facets' directions is in the interior."""
    active = np.concatenate([part.active for part in parts])
    directions = np.concatenate([part.directions for part in parts])
    first = int(np.argmin(flat.vanishing))
    flip = ~active[:, first]
    active ^= flip[:, None] & ~flat.vanishing
    directions = np.where(flip[:, None], -directions, directions)
    leader, label = _unique(active)
    total = np.stack([np.bincount(label, column, len(leader)) for column in directions.T], 1)
    return Cells(active[leader], total / np.linalg.norm(total, axis=1, keepdims=True))


def _unique(active: Bool[ndarray, "p n"]) -> tuple[ndarray, ndarray]:
    """The index of the first of every distinct row, and for every row which of them it equals; by 128-bit hashes."""
    first, second = _hash(active, 0x9E3779B97F4A7C15), _hash(active, 0xD1B54A32D192ED03)
    order = np.lexsort((second, first))
    change = (np.diff(first[order]) != 0) | (np.diff(second[order]) != 0)
    label = np.empty(len(active), dtype=np.int64)
    label[order] = np.concatenate([[0], np.cumsum(change)])
    return order[np.concatenate([[True], change])], label


def _hash(active: Bool[ndarray, "p n"], salt: int) -> ndarray:
    packed = np.packbits(active, axis=1)
    packed = np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8))).view(np.uint64)
    words: ndarray = packed + np.uint64(salt) * np.arange(1, packed.shape[1] + 1, dtype=np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return (words ^ (words >> np.uint64(31))).sum(axis=1, dtype=np.uint64)
