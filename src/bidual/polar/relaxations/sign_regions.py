"""Parts of the sphere where the signs of some rows are known, and rigorous bounds on them from multipliers."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray

from bidual.numerics.eigenvalue_bounds import least_eigenvalues
from bidual.numerics.rounding import TINY, gamma, length, rounded_up

Square = Float[ndarray, "m m"]


@dataclass(frozen=True, eq=False)
class SignRegion:
    r"""The directions u with x_i u >= 0 where ``signs[i]`` is 1 and x_i u <= 0 where it is -1; 0 leaves row i free.

    With a = (x u)_+ and b = (-x u)_+ the region's variable is z = (u, a_i of the free rows), and h = (a, b) = H z is
    linear in it: a_i = x_i u, b_i = 0 for a positive row, a_i = 0, b_i = -x_i u for a negative one, b_i = a_i - x_i u
    for a free one. On the region h >= 0 and a_i b_i = 0 (notes on CP eq. 17-20).
    """

    x: Float[ndarray, "n r"]
    signs: Int[ndarray, " n"]

    @classmethod
    def whole(cls, x: Float[ndarray, "n r"]) -> Self:
        return cls(x, np.zeros(len(x), dtype=np.int64))

    def split(self, row: int) -> tuple[Self, Self]:
        """The two halves where row ``row`` is positive and negative."""
        return self._fixed(row, 1), self._fixed(row, -1)

    def _fixed(self, row: int, sign: int) -> Self:
        signs = self.signs.copy()
        signs[row] = sign
        return type(self)(self.x, signs)

    @cached_property
    def free(self) -> Int[ndarray, " f"]:
        return np.flatnonzero(self.signs == 0)

    @cached_property
    def H(self) -> Float[ndarray, "m p"]:
        n, r = self.x.shape
        H = np.zeros((2 * n, r + len(self.free)))
        H[:n, :r] = self.x * (self.signs > 0)[:, None]
        H[n:, :r] = -self.x * (self.signs <= 0)[:, None]
        H[self.free, r + np.arange(len(self.free))] = 1
        H[n + self.free, r + np.arange(len(self.free))] = 1
        return H

    def bound(self, V: Float[ndarray, "n c"], N: Square) -> float:
        r"""An upper bound of |V^T (x u)_+| over unit u in the region, proved by the multipliers N (2n, 2n).

        N is clipped to be symmetric and non-negative, except that the entries (i, n + i), which multiply a_i b_i = 0,
        are free. If M = lambda E - H^T ([V V^T, 0; 0, 0] + N) H is positive semidefinite, where E selects |u|^2, then
        |V^T a|^2 <= lambda. The free entries are shifted by a common amount to make that possible, and lambda is the
        Schur complement's. Any values are valid: M >= -eta I gives z^T M z >= -eta |z|^2, so that

            |V^T a|^2 <= max(lambda, 0) + eta (1 + |x_free|_F^2),   since |z|^2 = |u|^2 + |a_free|^2.

        The bound holds for all V and N; it is infinite if they are not finite.
        """
        if not (np.isfinite(V).all() and np.isfinite(N).all()):
            return math.inf
        if not self.x.size:
            return 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            N = clipped(N)
            form = _form(self.H, V, N)
        if not np.isfinite(form).all():
            return math.inf
        shift, level = _best_shift(form, self.x[self.free])
        if not math.isfinite(level):
            return math.inf
        far = size_of(self.x[self.free])
        square = max(level, 0.0) + self._excess(V, N, form, shift, level) * (1 + far * far)
        return rounded_up(math.sqrt(rounded_up(square)))

    def _excess(
        self, V: Float[ndarray, "n c"], N: Square, form: Float[ndarray, "p p"], shift: float, level: float
    ) -> float:
        r"""An eta with M >= -eta I, from the least eigenvalue of the computed matrix and the errors of its entries.

        Every row of x is in H once, beside columns of two ones, so | |H| |_2^2 <= |x|_F^2 + 2. A term of H^T N H goes
        through 4 n operations, one of H^T V V^T H through 2 n + c, both through four more, others through few:

            |errors|_F <= gamma_(4 n + c + 8) (|N|_F + |V|_F^2) (|x|_F^2 + 2)
                          + gamma_8 (shift (sqrt(f) + |x_free|_F) + |lambda| sqrt(r)).

        Underflows cost far less than the root of the smallest number.
        """
        (n, c), x = V.shape, self.x[self.free]
        M = level * np.diag(np.arange(len(form)) < self.x.shape[1]) - _shifted(form, x, shift)
        steep, wide = size_of(V), size_of(self.x)
        terms = (size_of(N) + steep * steep) * (wide * wide + 2)
        others = shift * (math.sqrt(len(x)) + size_of(x)) + abs(level) * math.sqrt(self.x.shape[1])
        error = gamma(4 * n + c + 8) * terms + gamma(8) * others + TINY**0.5
        return rounded_up(max(0.0, -float(least_eigenvalues(torch.from_numpy(M)[None]))) + rounded_up(error))


def size_of(A: Float[ndarray, "..."]) -> float:
    """An upper bound of |A|_F."""
    return length(torch.from_numpy(A))


def clipped(N: Square) -> Square:
    """The nearest valid multipliers: symmetric, and non-negative except for entries that multiply a_i b_i = 0."""
    N = 0.5 * (N + N.T)
    n = len(N) // 2
    pair = np.arange(n)
    free = N[pair, n + pair]
    N = np.maximum(N, 0)
    N[pair, n + pair] = N[n + pair, pair] = free
    return N


def _form(H: ndarray, V: ndarray, N: ndarray) -> ndarray:
    """H^T ([V V^T, 0; 0, 0] + N) H."""
    slope = H[: len(V)].T @ V
    form = slope @ slope.T + H.T @ N @ H
    return 0.5 * (form + form.T)


def _shifted(form: ndarray, x: ndarray, shift: float) -> ndarray:
    """The form after adding -shift * a_i b_i for the free rows: a_i b_i = a_i^2 - a_i x_i u."""
    f, r = x.shape
    form = form.copy()
    form[r:, r:] -= shift * np.eye(f)
    form[r:, :r] += 0.5 * shift * x
    form[:r, r:] += 0.5 * shift * x.T
    return form


class _Schur(NamedTuple):
    """A form with its block of free rows diagonalised."""

    top: ndarray
    cross: ndarray
    cross_shift: ndarray
    values: ndarray

    def level(self, shift: float) -> float:
        r"""The smallest lambda with lambda E - form >= 0 after a shift, infinity if there is none."""
        gap = shift - self.values
        if len(gap) and gap.min() <= 0:
            return np.inf
        cross = self.cross + 0.5 * shift * self.cross_shift
        return float(np.linalg.eigvalsh(self.top + (cross.T / gap) @ cross)[-1])


def _best_shift(form: ndarray, x: ndarray) -> tuple[float, float]:
    """(shift, lambda) of the smallest lambda, a convex function of the shift: a scan, then golden section."""
    r = x.shape[1]
    values, vectors = np.linalg.eigh(form[r:, r:])
    schur = _Schur(form[:r, :r], vectors.T @ form[r:, :r], vectors.T @ x, values)
    if not len(values):
        return 0.0, schur.level(0.0)
    least, size = max(float(values[-1]), 0.0), max(float(np.abs(values).max()), 1e-300)
    steps = size * np.logspace(-12, 4, 49)
    levels = [schur.level(least + step) for step in steps]
    k = int(np.argmin(levels))
    low, high = np.log(steps[max(k - 1, 0)]), np.log(steps[min(k + 1, len(steps) - 1)])
    for _ in range(12):
        left, right = low + 0.382 * (high - low), low + 0.618 * (high - low)
        if schur.level(least + np.exp(left)) < schur.level(least + np.exp(right)):
            high = right
        else:
            low = left
    trials = [*steps[k : k + 1], np.exp(0.5 * (low + high))]
    level, shift = min((schur.level(least + float(step)), least + float(step)) for step in trials)
    return shift, level
