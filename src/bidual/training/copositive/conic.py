"""The dual of CP (19) over some of the patterns as a conic program: one matrix inequality of size r + c per pattern."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import clarabel
import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from scipy import sparse

from bidual.numerics.clarabel import clarabel_answer
from bidual.solvers.conic.interior_point import Attempt, clarabel_settings
from bidual.training.copositive.cones import Multipliers, PatternCones

_LOOSER = (1.0, 1e2, 1e4)  # multiples of the tolerance that are tried in turn where Clarabel fails


class ConicAnswer(NamedTuple):
    """V, the multipliers N_p and the moment matrices U_p = E u u^T of the given patterns."""

    V: Float[ndarray, "n c"]
    N: Multipliers
    U: Float[ndarray, "p r r"]
    value: float
    steps: int


@dataclass(frozen=True, eq=False)
class ConicDual:
    r"""max -1/2 sum v^2 / w - <V, Y> over V and N_p >= 0 such that, for every pattern p,

        [ beta I - K_p^T N_p K_p   x^T D_p V ]
        [ V^T D_p x                beta I    ]   is positive semidefinite,

    that is, x^T D_p V V^T D_p x + beta K_p^T N_p K_p <= beta^2 I (notes on CP (17)-(20)). N_p has no diagonal, since
    squares are non-negative. Its multipliers are the moment matrices of (u, w). With an intercept 1^T V = 0.

    Cones may be very thin. So each has its own frame T_p, in which K_p T_p has orthonormal columns up to one factor:
    the corner becomes beta T^T T - (K T)^T N (K T), and no N is large only because its cone is thin.

    Attributes:
        cones: of the patterns in question.
        targets, weights: Y and the sample weights, of squared loss.
    """

    cones: PatternCones
    targets: Float[ndarray, "n c"]
    weights: Float[ndarray, " n"]
    intercept: bool
    beta: float

    def solve(self, tol: float, time_limit: float | None = None) -> ConicAnswer:
        """By interior points; the point where Clarabel stops, accurate or not."""
        size = float(np.abs(self.targets).max()) or 1.0  # V in units of Y
        n, c = self.targets.shape
        G, cones, h = self._constraints(self.beta / size)
        others = np.zeros(len(self._pairs[0]))
        P = sparse.diags_array(np.concatenate([np.repeat(1 / self.weights, c), others])).tocsc()
        q = np.concatenate([self.targets.ravel() / size, others])
        for looser in _LOOSER:
            settings = clarabel_settings(looser * tol, Attempt(1.0, 1e-8), small=False, time_limit=time_limit)
            answer = clarabel_answer(P, q, G, h, cones, settings)
            if not answer.lost:
                break
        found, z = np.nan_to_num(answer.x), np.nan_to_num(answer.z)
        U = self._moments(z[len(z) - len(self.cones) * self._triangle :])
        V, N = size * found[: n * c].reshape(n, c), size * self.beta * self._multipliers(found[n * c :])
        return ConicAnswer(V, N, U, -(size**2) * answer.value, answer.iterations)

    @cached_property
    def _pairs(self) -> tuple[Int[ndarray, " k"], Int[ndarray, " k"], Int[ndarray, " k"]]:
        """Pattern and facets i < j of every multiplier."""
        there = np.asarray(self.cones.facets.any(2))
        pattern, i, j = np.nonzero(there[:, :, None] & there[:, None, :])
        upper = i < j
        return pattern[upper], i[upper], j[upper]

    def _multipliers(self, values: Float[ndarray, " k"]) -> Multipliers:
        pattern, i, j = self._pairs
        p, f, _ = self.cones.facets.shape
        N = np.zeros((p, f, f))
        N[pattern, i, j] = N[pattern, j, i] = values / self.cones.thinness[pattern] ** 2
        return N

    @property
    def _side(self) -> int:
        return self.cones.scaled.x.shape[1] + self.targets.shape[1]

    @property
    def _triangle(self) -> int:
        return self._side * (self._side + 1) // 2

    def _constraints(self, beta: float) -> tuple[sparse.csc_array, list[object], Float[ndarray, " m"]]:
        """G and h of h - G (V, N) in the cones: balance, N >= 0, one triangle per pattern."""
        (n, c), p, k = self.targets.shape, len(self.cones), len(self._pairs[0])
        balance = sparse.hstack([sparse.kron(np.ones((1, n)), sparse.eye_array(c)), sparse.csr_array((c, k))])
        signs = sparse.hstack([sparse.csr_array((k, n * c)), -sparse.eye_array(k)])
        parts = [*([balance] if self.intercept else []), signs, sparse.hstack([self._of_V(), self._of_N()])]
        cones: list[object] = [clarabel.ZeroConeT(c)] if self.intercept else []
        cones += [clarabel.NonnegativeConeT(k), *[clarabel.PSDTriangleConeT(self._side)] * p]
        level = np.zeros((p, self._triangle))
        squares = np.concatenate([(self.cones.frames**2).sum(1), np.ones((p, c))], axis=1)
        level[:, _place(np.arange(self._side), np.arange(self._side))] = beta * squares
        free = np.zeros(k + (c if self.intercept else 0))
        return sparse.csc_array(sparse.vstack(parts)), cones, np.concatenate([free, level.ravel()])

    def _of_V(self) -> sparse.csr_array:
        """T^T x^T D_p V in the upper right corners, entry (i, r + l) of pattern p from V[k, l]."""
        (n, r), c = self.cones.scaled.x.shape, self.targets.shape[1]
        pattern, sample = np.nonzero(self.cones.active)
        i, column = np.arange(r)[None, :, None], np.arange(c)[None, None, :]
        row = pattern[:, None, None] * self._triangle + _place(i, r + column)
        entry = sample[:, None, None] * c + column + 0 * i
        turned = np.einsum("ki,kij->kj", self.cones.scaled.x[sample], self.cones.frames[pattern])
        value = -np.sqrt(2) * turned[:, :, None] + 0.0 * column
        shape = (len(self.cones) * self._triangle, n * c)
        return sparse.csr_array((value.ravel(), (row.ravel(), entry.ravel())), shape=shape)

    def _of_N(self) -> sparse.csr_array:
        """(K T)^T N (K T) in the upper left corners: k_i k_j^T + k_j k_i^T for every pair."""
        pattern, first, second = self._pairs
        turned = self.cones.facets @ self.cones.frames / self.cones.thinness[:, None, None]
        one, other = turned[pattern, first], turned[pattern, second]
        i, j = np.triu_indices(one.shape[1])
        value = np.where(i == j, 1.0, np.sqrt(2)) * (one[:, i] * other[:, j] + one[:, j] * other[:, i])
        row = pattern[:, None] * self._triangle + _place(i, j)
        entry = np.arange(len(pattern))[:, None] + 0 * row
        shape = (len(self.cones) * self._triangle, len(pattern))
        return sparse.csr_array((value.ravel(), (row.ravel(), entry.ravel())), shape=shape)

    def _moments(self, z: Float[ndarray, " m"]) -> Float[ndarray, "p r r"]:
        """The upper left corners of the multipliers of the matrix inequalities, out of their frames."""
        p, r = len(self.cones), self.cones.scaled.x.shape[1]
        triangles, (i, j) = z.reshape(p, self._triangle), np.triu_indices(r)
        U = np.zeros((p, r, r))
        U[:, i, j] = triangles[:, _place(i, j)] * np.where(i == j, 1.0, np.sqrt(0.5))
        U = U + np.triu(U, 1).transpose(0, 2, 1)
        return np.asarray(self.cones.frames @ U @ self.cones.frames.transpose(0, 2, 1))


def _place(i: ndarray, j: ndarray) -> ndarray:
    """Where Clarabel keeps entry (i, j), i <= j, of a symmetric matrix."""
    return j * (j + 1) // 2 + i
