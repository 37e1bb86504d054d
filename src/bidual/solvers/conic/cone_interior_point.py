"""An interior point for the cone program CP (9) with squared loss: one small matrix per cone, one kernel."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray
from scipy.linalg import lapack

from bidual.losses.datafit import Datafit
from bidual.numerics.second_order_cones import Scaling, longest_step, product, quotient

Vectors = Float[ndarray, "g d"]
Slacks = Float[ndarray, "g k"]

_START = (0.1, 0.3)  # three times more or less of either changes the count of steps by less than a tenth
_BORDER = 0.99  # the share of the way to the border that a step may take
_STEPS, _IDLE = 100, 8


class Iterate(NamedTuple):
    """u = (w_1 .. w_P, v_1 .. v_P) as rows, multipliers l >= 0 of their inequalities, and their relative gap."""

    u: Vectors
    multipliers: Slacks
    gap: float


@dataclass(frozen=True, eq=False)
class SquaredCones:
    r"""min 1/2 |A (w - v) - y|^2 + beta sum_g |u_g| subject to S_g R u_g >= 0, where u stacks w and v (CP eq. 9).

    A = [D_1 X ... D_P X] is scaled by the roots of the sample weights, centred if there is an intercept, and replaced
    by the triangle of its QR factorisation if it has more rows than columns.

    Attributes:
        rows: R, samples at unit length.
        sides: the diagonals of S_g = 2 D_g - I, for w and again for v.
        rest: the squared length of the part of y outside the range of A, which this y lacks.
    """

    A: Float[ndarray, "m q"]
    y: Float[ndarray, " m"]
    rows: Float[ndarray, "k d"]
    sides: Slacks
    beta: float
    rest: float

    @classmethod
    def of(
        cls,
        X: Float[ndarray, "n d"],
        datafit: Datafit,
        patterns: Bool[ndarray, "p n"],
        used: Bool[ndarray, " n"],
        beta: float,
    ) -> Self:
        """``used`` selects the samples whose inequalities are imposed; these must not be zero."""
        w, y = (part.cpu().numpy() for part in (datafit.weights, datafit.targets))
        A = (patterns.T[:, :, None] * X[:, None, :]).reshape(len(X), -1)
        if datafit.intercept:
            A, y = A - (w * A).sum(0) / w.sum(), y - (w * y).sum(0) / w.sum()
        A, y, rest = _compressed(np.sqrt(w) * A, (np.sqrt(w) * y)[:, 0])
        sides, rows = 2.0 * patterns[:, used] - 1, X[used] / np.linalg.norm(X[used], axis=1, keepdims=True)
        return cls(A, y, rows, np.concatenate([sides, sides]), beta, rest)

    @cached_property
    def blocks(self) -> Float[ndarray, "p m d"]:
        """A_p."""
        return np.ascontiguousarray(self.A.reshape(len(self.y), -1, self.rows.shape[1]).swapaxes(0, 1))

    @cached_property
    def squares(self) -> Float[ndarray, "k dd"]:
        """r r^T for every row."""
        return (self.rows[:, :, None] * self.rows[:, None, :]).reshape(len(self.rows), -1)

    def forward(self, u: Vectors) -> Float[ndarray, " m"]:
        """A (w - v)."""
        half = len(u) // 2
        return self.A @ (u[:half] - u[half:]).ravel()

    def adjoint(self, V: Float[ndarray, " m"]) -> Vectors:
        """A^T V for w, its negative for v."""
        G = (V @ self.A).reshape(len(self.sides) // 2, -1)
        return np.concatenate([G, -G])

    def slacks(self, u: Vectors) -> Slacks:
        """S_g R u_g."""
        return self.sides * (u @ self.rows.T)

    def normals(self, multipliers: Slacks) -> Vectors:
        """R^T S_g l_g."""
        return (self.sides * multipliers) @ self.rows

    def gap(self, u: Vectors, multipliers: Slacks) -> float:
        r"""(primal - dual) / primal, with c V, c l for the dual point: V = A (w - v) - y, c <= 1 so that |A_g^T V -
        R^T S_g l_g| <= beta / c for all g, which is CP (9)'s dual constraint."""
        V = self.forward(u) - self.y
        peak = float(np.linalg.norm(self.adjoint(V) - self.normals(multipliers), axis=1).max())
        if not np.isfinite(peak):
            return np.inf
        c, square = min(1.0, self.beta / max(peak, 1e-300)), float(V @ V) + self.rest
        primal = 0.5 * square + self.beta * float(np.linalg.norm(u, axis=1).sum())
        dual = c * (self.rest - float(V @ self.y)) - 0.5 * c * c * square
        return abs(primal - dual) / max(primal, 1e-300)

    def iterates(self) -> Iterator[Iterate]:
        """Points of decreasing complementarity, until it stalls."""
        point, least, idle = _start(self), np.inf, 0
        for _ in range(_STEPS):
            u, size = point.x[:, 1:], point.complementarity
            idle = 0 if size < 0.9 * least else idle + 1
            if not (np.isfinite(u).all() and np.isfinite(point.l).all()) or idle > _IDLE:
                return
            least = min(size, least)
            yield Iterate(u, point.l, self.gap(u, point.l))
            try:
                point = _advanced(self, point)
            except np.linalg.LinAlgError:
                return


def _compressed(A: Float[ndarray, "n q"], y: Float[ndarray, " n"]) -> tuple[ndarray, ndarray, float]:
    """|A u - y|^2 = |T u - t|^2 + rest with no more rows than columns."""
    if len(A) <= A.shape[1]:
        return A, y, 0.0
    Q, T = np.linalg.qr(A)
    t = Q.T @ y
    return T, t, float(np.square(y - Q @ t).sum())


class _Point(NamedTuple):
    """x_g = (t_g, u_g) with |u_g| <= t_g, its multiplier z_g = (beta, .), slacks s, multipliers l; or a move of it."""

    x: Vectors
    z: Vectors
    s: Slacks
    l: Slacks  # noqa: E741

    def moved(self, step: float, move: "_Point") -> "_Point":
        return _Point(*(here + step * there for here, there in zip(self, move, strict=True)))

    def step_to_border(self, move: "_Point") -> float:
        """At most 1."""
        fastest = max(float((-m / p).max(initial=0.0)) for p, m in ((self.s, move.s), (self.l, move.l)))
        cones = min(longest_step(self.x, move.x), longest_step(self.z, move.z))
        return min(1.0, cones, 1 / fastest if fastest > 0 else np.inf)

    @property
    def complementarity(self) -> float:
        """mu, the mean of the products."""
        total = float((self.x * self.z).sum()) + float((self.s * self.l).sum())
        return total / (len(self.x) + self.s.size)


def _start(data: SquaredCones) -> _Point:
    """u = 0, all products alike; the objective allows a total of |u_g| of at most |y|^2 / 2 beta."""
    cones, d = len(data.sides), data.rows.shape[1]
    length = _START[0] * float(data.y @ data.y) / (data.beta * cones) or 1.0
    head, shape = np.eye(1, 1 + d).repeat(cones, 0), data.sides.shape
    return _Point(length * head, data.beta * head, np.full(shape, length), np.full(shape, _START[1] * data.beta))


@np.errstate(all="ignore")
def _advanced(data: SquaredCones, point: _Point) -> _Point:
    """Mehrotra's predictor and corrector."""
    system = _System(data, point)
    guess = system.direction(-point.s * point.l, -point.z, refined=False)  # only used to choose the centring
    aim = (1 - point.step_to_border(guess)) ** 3 * point.complementarity
    W = system.scaling
    scaled = W.forward(point.z)
    right = -product(scaled, scaled) - product(W.back(guess.x), W.forward(guess.z))
    right[:, 0] += aim
    move = system.direction(aim - point.s * point.l - guess.s * guess.l, W.back(quotient(scaled, right)))
    return point.moved(min(1.0, _BORDER * point.step_to_border(move)), move)


class _System:
    r"""Newton's equations at a point, after all but u and V = A (w - v) - y are eliminated:

        H du + A^T dV = r,   dV = A du,   H_g = R^T diag(l_g / s_g) R + (what remains of W_g^-2),

    solved by (I + A H^-1 A^T) dV = A H^-1 r. H is a small matrix per cone; those of w_p and v_p enter as a sum.
    """

    def __init__(self, data: SquaredCones, point: _Point) -> None:
        self.data, self.point, self.scaling = data, point, Scaling.of(point.x, point.z)
        self.ratio = point.l / point.s
        self.slope = data.adjoint(data.forward(point.x[:, 1:]) - data.y) - data.normals(point.l) - point.z[:, 1:]
        self.excess = data.slacks(point.x[:, 1:]) - point.s
        H = self.scaling.curvature
        self.root = _inverse_roots(H + (self.ratio @ data.squares).reshape(H.shape))
        self.factor = self._kernel_factor()

    def _kernel_factor(self) -> Float[ndarray, "m m"]:
        A, inverse = self.data.A, self.root.swapaxes(1, 2) @ self.root
        w, v = np.split(inverse, 2)
        K = A @ (self.data.blocks @ (w + v)).swapaxes(0, 1).reshape(A.shape).T
        K[np.diag_indices_from(K)] += 1
        factor, failed = lapack.dpotrf(K, lower=1, overwrite_a=1)
        if failed:
            raise np.linalg.LinAlgError("the kernel is not positive definite")
        return factor

    def direction(self, products: Slacks, q: Vectors, refined: bool = True) -> _Point:
        """The move to s l + ... = ``products`` and W^-2 dx + dz = ``q``, with the equations' residuals removed.

        Refined once with the equations themselves, since H is rounded more than they are where l / s is large.
        """
        data, s = self.data, self.point.s
        r = self.scaling.without_head(q) - self.slope + data.normals(products / s - self.ratio * self.excess)
        u, V = self._solve(r, np.zeros_like(data.y))
        if refined:
            again = r - data.normals(self.ratio * data.slacks(u)) - self.scaling.curve(u) - data.adjoint(V)
            more, rest = self._solve(again, V - data.forward(u))
            u, V = u + more, V + rest
        ds = data.slacks(u) + self.excess
        dl = products / s - self.ratio * ds
        dz = data.adjoint(V) - data.normals(dl) + self.slope
        return _Point(np.column_stack([self.scaling.head(q, u), u]), np.pad(dz, ((0, 0), (1, 0))), ds, dl)

    def _solve(self, r: Vectors, short: Float[ndarray, " m"]) -> tuple[Vectors, Float[ndarray, " m"]]:
        """H u + A^T V = r and A u - V = short."""
        free = self._by_inverse(r)
        V, _ = lapack.dpotrs(self.factor, self.data.forward(free) - short, lower=1)
        return free - self._by_inverse(self.data.adjoint(V)), V

    def _by_inverse(self, r: Vectors) -> Vectors:
        return (self.root.swapaxes(1, 2) @ (self.root @ r[:, :, None]))[:, :, 0]


def _inverse_roots(H: Float[ndarray, "g d d"]) -> Float[ndarray, "g d d"]:
    """L^-1 with H = L L^T, after its diagonal is raised by rounding size."""
    side = np.arange(H.shape[1])
    H[:, side, side] += 1e-15 * np.trace(H, axis1=1, axis2=2)[:, None]
    return np.linalg.inv(np.linalg.cholesky(H))
