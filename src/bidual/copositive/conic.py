"""The dual of CP (19) over some of the patterns as a conic program: one matrix inequality of size r + c per pattern."""

from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

import clarabel
import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy import sparse

from bidual.copositive.cones import Multipliers, PatternCones
from bidual.solvers.interior_point import Attempt, clarabel_settings


class ConicAnswer(NamedTuple):
    """V, the multipliers N_p and the moment matrices U_p = E u u^T of the patterns that were given."""

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

    which says x^T D_p V V^T D_p x + beta K_p^T N_p K_p <= beta^2 I (notes on CP (17)-(20)). N_p has no diagonal:
    squares are not negative anyway. Its multipliers are the moment matrices of (u, w). With an intercept 1^T V = 0.

    Cones may be very thin. So u is measured in a frame T_p of its own for each, in which K_p T_p has orthonormal
    columns up to one factor: the corner becomes beta T^T T - (K T)^T N (K T), and no N is large only because its
    cone is thin.

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
        """By interior points; the point where Clarabel stops, good or not."""
        size = float(np.abs(self.targets).max()) or 1.0  # V in units of Y
        (n, c), (p, f) = self.targets.shape, self.cones.facets.shape[:2]
        pairs = np.triu_indices(f, 1)
        rows, cones, h = self._constraints(pairs, self.beta / size)
        count = n * c + p * len(pairs[0])
        P = sparse.diags_array(np.concatenate([np.repeat(1 / self.weights, c), np.zeros(count - n * c)])).tocsc()
        q = np.concatenate([self.targets.ravel() / size, np.zeros(count - n * c)])
        settings = clarabel_settings(tol, Attempt(1.0, 1e-8), small=False, time_limit=time_limit)
        answer = clarabel.DefaultSolver(P, q, rows, h, cones, settings).solve()
        found, z = np.nan_to_num(answer.x), np.nan_to_num(answer.z)
        N = np.zeros((p, f, f))
        N[:, pairs[0], pairs[1]] = found[n * c :].reshape(p, -1) * (self.beta * size / self.cones.thinness**2)[:, None]
        U = self._moments(z[len(z) - p * self._triangle :])
        V = size * found[: n * c].reshape(n, c)
        return ConicAnswer(V, N + N.transpose(0, 2, 1), U, -(size**2) * float(answer.obj_val), int(answer.iterations))

    @property
    def _side(self) -> int:
        return self.cones.scaled.x.shape[1] + self.targets.shape[1]

    @property
    def _triangle(self) -> int:
        return self._side * (self._side + 1) // 2

    def _constraints(
        self, pairs: tuple[ndarray, ndarray], beta: float
    ) -> tuple[sparse.csc_array, list[object], Float[ndarray, " m"]]:
        """G and h of h - G (V, N) in the cones: balance, N >= 0, one triangle per pattern."""
        (n, c), p, k = self.targets.shape, len(self.cones.active), len(pairs[0])
        balance = sparse.hstack([sparse.kron(np.ones((1, n)), sparse.eye_array(c)), sparse.csr_array((c, p * k))])
        signs = sparse.hstack([sparse.csr_array((p * k, n * c)), -sparse.eye_array(p * k)])
        blocks = sparse.hstack([self._of_V(), sparse.block_diag(list(map(self._of_N, self._turned, repeat(pairs))))])
        parts = [*([balance] if self.intercept else []), signs, blocks]
        cones: list[object] = [clarabel.ZeroConeT(c)] if self.intercept else []
        cones += [clarabel.NonnegativeConeT(p * k), *[clarabel.PSDTriangleConeT(self._side)] * p]
        level = np.zeros((p, self._triangle))
        squares = np.concatenate([(self.cones.frames**2).sum(1), np.ones((p, c))], axis=1)
        level[:, _place(np.arange(self._side), np.arange(self._side))] = beta * squares
        free = np.zeros(p * k + (c if self.intercept else 0))
        return sparse.csc_array(sparse.vstack(parts)), cones, np.concatenate([free, level.ravel()])

    def _of_V(self) -> sparse.csr_array:
        """T^T x^T D_p V in the upper right corners, entry (i, r + l) of pattern p from V[k, l]."""
        (n, r), c, p = self.cones.scaled.x.shape, self.targets.shape[1], len(self.cones.active)
        pattern, sample = np.nonzero(self.cones.active)
        i, column = np.arange(r)[None, :, None], np.arange(c)[None, None, :]
        row = pattern[:, None, None] * self._triangle + _place(i, r + column)
        entry = sample[:, None, None] * c + column + 0 * i
        turned = np.einsum("ki,kij->kj", self.cones.scaled.x[sample], self.cones.frames[pattern])
        value = -np.sqrt(2) * turned[:, :, None] + 0.0 * column
        shape = (p * self._triangle, n * c)
        return sparse.csr_array((value.ravel(), (row.ravel(), entry.ravel())), shape=shape)

    @property
    def _turned(self) -> Float[ndarray, "p f r"]:
        """K_p T_p over its size."""
        return self.cones.facets @ self.cones.frames / self.cones.thinness[:, None, None]

    def _of_N(self, K: Float[ndarray, "f r"], pairs: tuple[ndarray, ndarray]) -> sparse.csr_array:
        """(K T)^T N (K T) in the upper left corner: k_i k_j^T + k_j k_i^T for every pair."""
        r = K.shape[1]
        i, j = np.triu_indices(r)
        first, second = K[pairs[0]], K[pairs[1]]
        both = first[:, i] * second[:, j] + first[:, j] * second[:, i]
        dense = np.zeros((self._triangle, len(first)))
        dense[_place(i, j)] = (np.where(i == j, 1.0, np.sqrt(2)) * both).T
        return sparse.csr_array(dense)

    def _moments(self, z: Float[ndarray, " m"]) -> Float[ndarray, "p r r"]:
        """The upper left corners of the multipliers of the matrix inequalities."""
        r, triangles = self.cones.scaled.x.shape[1], z.reshape(len(self.cones.active), self._triangle)
        i, j = np.triu_indices(r)
        U = np.zeros((len(self.cones.active), r, r))
        U[:, i, j] = triangles[:, _place(i, j)] * np.where(i == j, 1.0, np.sqrt(0.5))
        U = U + np.triu(U, 1).transpose(0, 2, 1)
        return self.cones.frames @ U @ self.cones.frames.transpose(0, 2, 1)


def _place(i: ndarray, j: ndarray) -> ndarray:
    """Where Clarabel keeps entry (i, j), i <= j, of a symmetric matrix."""
    return j * (j + 1) // 2 + i
