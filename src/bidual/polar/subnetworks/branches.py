r"""Two-layer questions that bound the steepest sub-network, on parts of the set of sub-networks (docs/parallel.md).

Let t = side v, and let h be the input of the last hidden layer. For every row i,

    t_i (h_i)_+  <=  e_i (h_i)_+ + c_i (-h_i)_+

if e_i >= t_i or h_i <= 0 is known, and c_i >= 0 or h_i >= 0 is known. With e_i + c_i >= 0 the right side is convex in
h, which lies in sqrt(m) conv(+-f(X)), f the units of the first layer: so it is largest at h = +-sqrt(m) f(X), where it
is sqrt(m) e^T f(X) or sqrt(m) c^T f(X). Two questions about two layers, for every side and every branch.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

Row = Float[ndarray, " n"]


@dataclass(frozen=True)
class Branch:
    """Sub-networks on one side whose last hidden unit is known to be on or off for some rows.

    Attributes:
        side: 1 for sub-networks with v^T f >= 0, -1 for the others.
        rows, states: h_i >= 0 where the state is 1, h_i <= 0 where it is -1.
    """

    side: int
    rows: tuple[int, ...] = ()
    states: tuple[int, ...] = ()

    @property
    def fixed(self) -> tuple[tuple[int, int], ...]:
        """The rows with their states, in the order of the cuts."""
        return tuple(zip(self.rows, self.states, strict=True))

    def _known(self, n: int) -> tuple[Bool[ndarray, " n"], Bool[ndarray, " n"]]:
        """The rows that are on, and those that are off."""
        state = np.zeros(n)
        state[list(self.rows)] = self.states
        return state > 0, state < 0

    def questions(self, v: Row, weights: Row) -> tuple[Row, Row]:
        """e and c for weights that are not negative, those of open rows at most one.

        Open rows have e = t, c = 0 where t >= 0, and e = -c, c = weight |t| elsewhere; rows that are on e = t + weight
        and c = -e; rows that are off c = weight and e = -c. No rounding harms: products and sums are monotone.
        """
        t, (on, off) = self.side * v, self._known(len(v))
        c = np.where(off, weights, weights * np.maximum(-t, 0.0))
        e = np.where(on, t + weights, np.where((t > 0) & ~off, t, -c))
        return e, np.where(on, -e, c * ((t <= 0) | off))

    def pull(self, v: Row, weights: Row, of_e: Row, of_c: Row) -> tuple[Row, Row]:
        """The slopes in v and in the weights of a function with slopes ``of_e`` and ``of_c`` in the questions."""
        t, (on, off) = self.side * v, self._known(len(v))
        between, down = of_e - of_c, (t <= 0) & ~off & ~on
        of_t = np.where(on, between, np.where(off, 0.0, np.where(down, weights * between, of_e)))
        of_weights = np.where(on, between, np.where(off, -between, np.where(down, t * between, 0.0)))
        return self.side * of_t, of_weights

    def allows(self, weights: Row) -> bool:
        """Whether the weights make valid questions."""
        on, off = self._known(len(weights))
        return bool(((weights >= 0) & ((weights <= 1) | on | off) & np.isfinite(weights)).all())

    def halved(self, row: int) -> tuple[Self, Self]:
        """The row is on, and off."""
        on, off = ((*self.states, state) for state in (1, -1))
        rows = (*self.rows, row)
        return replace(self, rows=rows, states=on), replace(self, rows=rows, states=off)

    def inherited(self, v: Row, weights: Row, row: int, state: int) -> float:
        """The weight of an open row in a half where its questions are no larger than they are here."""
        e, c = self.questions(v, weights)
        return float(max(e[row] - self.side * v[row], 0.0) if state > 0 else c[row])
