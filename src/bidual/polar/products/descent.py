r"""The majorant and its slopes once more, as functions of one vector of coordinates, with few calls and kept memory.

:class:`Majorant` says what is computed. A descent asks for it thousands of times, and with some hundred rows torch
spends more on calls than on arithmetic: a step of two cells took 17 ms in torch and takes 6 ms here, with numpy, at
n = 200, 40 and 26 ms at n = 426.
"""

from itertools import accumulate, pairwise

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.linalg.blas import dsymv
from scipy.sparse import csr_array

from bidual.polar.products.coordinates import Coordinates

Array = NDArray[np.float64]


class Workspace:
    """Matrices that are written over: those of some hundred rows cost more to allocate than to fill."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], Array] = {}

    def square(self, name: str, count: int) -> Float[np.ndarray, "p p"]:
        if (name, count) not in self._kept:
            self._kept[name, count] = np.empty((count, count))
        return self._kept[name, count]


def slices(sizes: list[int]) -> list[slice]:
    """Of a vector whose parts have these sizes."""
    ends = [0, *accumulate(sizes)]
    return [slice(*pair) for pair in pairwise(ends)]


def _times(A: Array, B: Array, out: Array | None = None) -> Array:
    """A B, by torch: its library is twice as fast as numpy's at these shapes, in factorisations too."""
    found = None if out is None else torch.from_numpy(out)
    return np.asarray(torch.mm(torch.from_numpy(A), torch.from_numpy(B), out=found))


class _Clusters:
    """S with S_ik = shares_i where row i is in cluster k; the identity without labels."""

    def __init__(self, labels: NDArray[np.int64] | None, count: int) -> None:
        self.labels = labels
        self.shares: Array | None = None
        if labels is not None:
            self.order = np.argsort(labels, kind="stable")
            ends = np.concatenate([[0], np.bincount(labels, minlength=count).cumsum()])
            self.transposed = csr_array((np.ones(len(labels)), self.order, ends), shape=(count, len(labels)))

    def take(self, shares: Array) -> None:
        self.shares = shares
        np.take(shares, self.order, out=self.transposed.data)

    def down(self, A: Array) -> Array:
        """S^T A."""
        return A if self.labels is None else self.transposed @ A

    def up(self, B: Array) -> Array:
        """S B."""
        if self.shares is None:
            return B
        return (self.shares if B.ndim == 1 else self.shares[:, None]) * B[self.labels]


class _Pairs:
    """Where weights of pairs of rows (or clusters) go, for matrices that are made from them."""

    def __init__(self, place: Coordinates, space: Workspace) -> None:
        support, self.count, self.space = place.pairs.support, place.pairs.count, space
        self.where = [where.numpy() for where in support.where]
        self.places, slots = np.unique(support.places.numpy(), return_inverse=True)
        self.slots = slots + len(self.places) * np.repeat(range(3), [len(where) for where in self.where])
        self.by_kind = np.zeros((3, len(self.places)))
        self.below, self.times = support.below.numpy(), support.times.numpy()

    def take(self, values: Array) -> None:
        self.by_kind.ravel()[self.slots] = values
        total = np.bincount(self.below, values * self.times, minlength=self.count**2)
        self.N = total.reshape(self.count, self.count)  # its lower triangle

    def combined(self, plus: float, minus: float, mixed: float) -> Float[np.ndarray, "p p"]:
        """A sum of the kinds, where plus and minus have one triangle each; the next call writes over it."""
        matrix = self.space.square("combined", self.count)
        matrix.fill(0.0)
        matrix.ravel()[self.places] = np.array([plus, minus, mixed]) @ self.by_kind
        return matrix

    def N_times(self, x: Array) -> Array:
        return np.asarray(dsymv(1.0, self.N.T, x)) if self.count else x

    def at_places(self, matrix: Float[np.ndarray, "p p"], kind: int) -> Array:
        return np.take(matrix.ravel(), self.where[kind])


class CellDescent:
    """C of one cell at a V and a vector of coordinates, then its slopes there."""

    def __init__(self, place: Coordinates, space: Workspace) -> None:
        cell = place.cell
        self.c, self.signed, self.parts = cell.n_outputs, cell.signs is not None, slices(place.sizes)
        self.free, self.positive = cell.free.numpy(), cell.positive.numpy()
        self.X, self.forms = cell.pre[:, self.c :].contiguous().numpy(), cell.forms.numpy()
        self.X_positive = cell.X[cell.positive].numpy()
        self.kappa, self.balance = cell.norm_form[: self.c].numpy(), cell.balance.numpy()
        self.space, self.pairs = space, _Pairs(place, space)
        self.clusters = _Clusters(None if place.pairs.labels is None else place.pairs.labels.numpy(), self.pairs.count)
        self.X_down = self.X

    def form(self, V: Float[np.ndarray, "n c"], vector: Array) -> Float[np.ndarray, "z z"] | None:
        """C; None where H is not positive definite in floating point."""
        self._take(vector)
        c, X, V_free = self.c, self.X, V[self.free]
        plus, minus = (self._rows(root, cone) for root, cone in (self.on_plus, self.on_minus))
        skew, even = self._products()
        L = -0.5 * (plus + minus)
        L[:, :c] -= 0.5 * V_free
        L[:, c:] -= skew
        met = plus - minus
        met[:, :c] += V_free
        met[:, c:] += self.D[:, None] * X + 2 * even
        solved = self._solved(L)
        if solved is None:
            return None
        C = self.forms.T @ (np.square(self.form_pairs) @ self.forms + self._cones(self.form_cones))
        C[c:] += X.T @ met
        C[c:, :c] += 2 * self.X_positive.T @ V[self.positive]
        C = 0.5 * (C + C.T) + solved
        C.ravel()[:: len(C) + 1] += self.scale * self.balance
        return C

    def _take(self, vector: Array) -> None:
        """The parts of the vector, in the order of :class:`Coordinates`."""
        slack, omega, *rest = (vector[part] for part in self.parts)
        m, k, d = len(slack), len(self.forms), self.X.shape[1] if self.signed else 0
        self.slack, self.omega = np.exp(slack), np.exp(omega)
        if self.clusters.labels is not None:
            self.clusters.take(np.exp(rest.pop(0)))
            self.X_down = self.clusters.down(self.X)
        scale, plus, minus, cone_plus, cone_minus, cones, pairs, *roots = rest
        self.scale = float(scale[0])
        self.on_plus = plus.reshape(m, k), cone_plus.reshape(m, d)
        self.on_minus = minus.reshape(m, k), cone_minus.reshape(m, d)
        self.form_cones, self.form_pairs = cones.reshape(k, d), pairs.reshape(k, k)
        self.roots = roots
        self.pairs.take(np.square(vector[self.parts[-3].start :]))
        weighed = self.pairs.N_times(self.clusters.down(self.omega))
        self.D = (self.slack + self.clusters.up(weighed)) / self.omega

    def _rows(self, root: Array, cone: Array) -> Float[np.ndarray, "m z"]:
        rows: Array = np.square(root) @ self.forms
        return rows + self._cones(cone) if self.signed else rows

    def _cones(self, r: Array) -> Float[np.ndarray, "m z"] | float:
        """|g| kappa + g u with g = |r| r."""
        if not self.signed:
            return 0.0
        square = np.einsum("ij,ij->i", r, r)[:, None]
        return np.concatenate([square * self.kappa, np.sqrt(square) * r], 1)

    def _products(self) -> tuple[Array, Array]:
        """(N_aa - N_bb - N_ab + N_ab^T) X, and half of (N_aa + N_bb - N_ab - N_ab^T) X up to what is antisymmetric."""
        pairs, X = self.pairs, self.X_down
        skew = _times(pairs.combined(1.0, -1.0, -1.0), X)
        skew += _times(pairs.combined(1.0, -1.0, 1.0).T, X)
        even = _times(pairs.combined(1.0, 1.0, -1.0), X)
        return self.clusters.up(skew), self.clusters.up(even)

    def _solved(self, L: Array) -> Float[np.ndarray, "z z"] | None:
        """L^T H^-1 L, and Y = -H^-1 L is kept; with clusters by Woodbury's formula as in :class:`Majorant`."""
        if self.clusters.shares is None:
            found = self._divided(self.D, L)
            if found is None:
                return None
            self.Y = -found[1]
            return found[0]
        shrunk = L / self.D[:, None]
        inverse = 1 / np.maximum(self.clusters.down(self.clusters.shares / self.D), 1e-100)
        sums = self.clusters.down(shrunk)
        z = inverse[:, None] * sums
        found = self._divided(inverse, z)
        if found is None:
            return None
        self.Y = -(shrunk + self.clusters.up(inverse[:, None] * found[1] - z) / self.D[:, None])
        quadratic: Array = found[0] + L.T @ shrunk - sums.T @ z
        return quadratic

    def _divided(self, diagonal: Array, z: Array) -> tuple[Array, Array] | None:
        """z^T G^-1 z and G^-1 z, where G is the diagonal less N; None where it is not positive definite."""
        if not len(z):
            return np.zeros((z.shape[1], z.shape[1])), z
        G = np.negative(self.pairs.N, out=self.space.square("root", len(z)))
        G.ravel()[:: len(z) + 1] += diagonal
        root, info = torch.linalg.cholesky_ex(torch.from_numpy(G))
        if int(info) or not bool(root[-1, -1].isfinite()):
            return None
        half = torch.linalg.solve_triangular(root, torch.from_numpy(z), upper=False)
        whole = torch.linalg.solve_triangular(root.T, half, upper=True)
        return np.asarray(half.T @ half), np.asarray(whole)

    def weighed(self, R: Float[np.ndarray, "z r"], shape: tuple[int, ...]) -> tuple[Array, Array]:
        """:meth:`slopes` in the coordinates and in a V of this shape; zero where R has no columns."""
        on_V = np.zeros(shape)
        return self.slopes(R, on_V) if R.size else np.zeros(self.parts[-1].stop), on_V

    def slopes(self, R: Float[np.ndarray, "z r"], on_V: Float[np.ndarray, "n c"]) -> Array:
        """The derivatives of <C, M> in the coordinates, M = R R^T; those in V are added to ``on_V``."""
        c, clusters, M = self.c, self.clusters, R @ R.T
        A, B = self.Y.copy(), self.Y.copy()
        A[:, c:] += self.X
        B[:, c:] -= self.X
        MA, MB = A @ M, B @ M
        of_D = -np.einsum("ij,ij->i", MA, B)  # t^2 - h^2 = -a b
        f = of_D / self.omega
        on_V[self.free] += MA[:, :c]
        on_V[self.positive] += 2 * self.X_positive @ M[c:, :c]
        down_f, down_omega = clusters.down(f), clusters.down(self.omega)
        weighed = self.pairs.N_times(down_f)
        of_omega = clusters.up(weighed) - of_D * self.D / self.omega
        form_slopes = self.forms @ M
        parts = [f * self.slack, of_omega * self.omega]
        if clusters.shares is not None:
            met = self._met(A, B, clusters.down(MA), clusters.down(MB))
            of_N = f * self.pairs.N_times(down_omega)[clusters.labels] + self.omega * weighed[clusters.labels]
            parts.append(clusters.shares * (met + of_N))
        parts += [np.array([M.diagonal() @ self.balance])]
        parts += [2 * self.on_plus[0] * (MA @ self.forms.T), 2 * self.on_minus[0] * (MB @ self.forms.T)]
        cones = ((self.on_plus[1], MA), (self.on_minus[1], MB), (self.form_cones, form_slopes))
        parts += [self._of_cones(root, slope) for root, slope in cones]
        parts += [
            2 * self.form_pairs * (form_slopes @ self.forms.T),
        ]
        parts += self._of_pairs(clusters.down(A @ R), clusters.down(B @ R), down_f, down_omega)
        return np.concatenate([part.ravel() for part in parts])

    def _of_cones(self, r: Array, slope: Float[np.ndarray, "m z"]) -> Array:
        """The derivative of |g| (slope kappa) + g slope_u, with g = |r| r."""
        if not self.signed:
            return r
        on_u = slope[:, self.c :]
        length = np.maximum(np.sqrt(np.einsum("ij,ij->i", r, r)), 1e-150)[:, None]
        along = np.einsum("ij,ij->i", r, on_u)[:, None] / length
        return r * (2 * (slope[:, : self.c] @ self.kappa)[:, None] + along) + length * on_u

    def _of_pairs(self, A: Array, B: Array, f: Array, omega: Array) -> list[Array]:
        """2 root times the derivative 2 <left_i, right_j> + f_i omega_j + f_j omega_i."""
        out = self.space.square("combined", len(A))
        found = []
        for kind, (left, right) in enumerate(((A, A), (B, B), (A, B))):
            _times(np.column_stack([2 * left, f, omega]), np.column_stack([right, omega, f]).T, out)
            found.append(2 * self.roots[kind] * self.pairs.at_places(out, kind))
        return found

    def _met(self, A: Array, B: Array, MA: Array, MB: Array) -> Array:
        """What weights of pairs of clusters meet in the moments of every row, twice; MA, MB are sums over clusters."""
        labels = self.clusters.labels
        plus = self.pairs.combined(1.0, 0.0, 0.0)
        of_a = plus @ MA + plus.T @ MA
        minus = self.pairs.combined(0.0, 1.0, 0.0)
        of_b = minus @ MB + minus.T @ MB
        mixed = self.pairs.combined(0.0, 0.0, 1.0)
        of_a += mixed @ MB
        of_b += mixed.T @ MA
        met: Array = 2 * (np.einsum("ij,ij->i", of_a[labels], A) + np.einsum("ij,ij->i", of_b[labels], B))
        return met
