"""Second-order cones { x : x_0 >= |x_1| } in batches, one vector (x_0, x_1) per row: products, borders, scalings."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from jaxtyping import Float
from numpy import ndarray

Vectors = Float[ndarray, "g k"]
Numbers = Float[ndarray, " g"]


def determinant(x: Vectors) -> Numbers:
    """x_0^2 - |x_1|^2, without cancellation beyond that of x_0 - |x_1|."""
    length = np.sqrt(_dot(x[:, 1:], x[:, 1:]))
    return (x[:, 0] - length) * (x[:, 0] + length)


def product(x: Vectors, y: Vectors) -> Vectors:
    """The Jordan product (<x, y>, x_0 y_1 + y_0 x_1)."""
    out = x[:, :1] * y + y[:, :1] * x
    out[:, 0] = _dot(x, y)
    return out


def quotient(x: Vectors, y: Vectors) -> Vectors:
    """The v whose product with x is y."""
    head = (x[:, 0] * y[:, 0] - _dot(x[:, 1:], y[:, 1:])) / determinant(x)
    return np.column_stack([head, (y[:, 1:] - head[:, None] * x[:, 1:]) / x[:, :1]])


def longest_step(x: Vectors, move: Vectors) -> float:
    """The largest a such that all rows of x + a move are in the cone, if those of x are in its interior."""
    square = move[:, 0] ** 2 - _dot(move[:, 1:], move[:, 1:])
    half, constant = x[:, 0] * move[:, 0] - _dot(x[:, 1:], move[:, 1:]), determinant(x)
    inside = half * half - square * constant
    towards = np.sqrt(inside.clip(min=0)) - half
    hits = (inside >= 0) & (towards > 0)
    return float((constant[hits] / towards[hits]).min(initial=np.inf))


@dataclass(frozen=True, eq=False)
class Scaling:
    r"""The scaling of Nesterov and Todd (1997), W z = W^-1 x, for pairs x, z of interior points.

    W = eta [[w_0, w_1^T], [w_1, I + w_1 w_1^T / (1 + w_0)]] and W^-2 = (2 J w w^T J - J) / eta^2 with J = diag(1, -I)
    and a w of determinant 1. Where the row of x_0 is solved for x_0, what remains of W^-2 is
    (I - 2 w_1 w_1^T / (2 w_0^2 - 1)) / eta^2.
    """

    w: Vectors
    eta: Float[ndarray, "g 1"]

    @classmethod
    def of(cls, x: Vectors, z: Vectors) -> Self:
        size, other = np.sqrt(determinant(x))[:, None], np.sqrt(determinant(z))[:, None]
        x, z = x / size, z / other
        w = x - z
        w[:, 0] += 2 * z[:, 0]
        return cls(w / np.sqrt(2 + 2 * _dot(x, z))[:, None], np.sqrt(size / other))

    def forward(self, a: Vectors) -> Vectors:
        """W a."""
        return self.eta * self._turned(a, self.w[:, 1:])

    def back(self, a: Vectors) -> Vectors:
        """W^-1 a."""
        return self._turned(a, -self.w[:, 1:]) / self.eta

    def _turned(self, a: Vectors, w: Float[ndarray, "g d"]) -> Vectors:
        inner = _dot(w, a[:, 1:])
        out = a.copy()
        out[:, 0] = self.w[:, 0] * a[:, 0] + inner
        out[:, 1:] += (a[:, 0] + inner / (1 + self.w[:, 0]))[:, None] * w
        return out

    @property
    def curvature(self) -> Float[ndarray, "g d d"]:
        """What remains of W^-2, as matrices."""
        w = self.w[:, 1:] / self._height[:, None]
        return (np.eye(w.shape[1]) - 2 * w[:, :, None] * w[:, None, :]) / self.eta[:, :, None] ** 2

    def curve(self, a: Float[ndarray, "g d"]) -> Float[ndarray, "g d"]:
        """What remains of W^-2, times vectors."""
        w = self.w[:, 1:] / self._height[:, None]
        return (a - 2 * _dot(w, a)[:, None] * w) / self.eta**2

    def without_head(self, q: Vectors) -> Float[ndarray, "g d"]:
        """What remains of the right-hand side q of W^-2 x = q."""
        return q[:, 1:] + (2 * self.w[:, 0] * q[:, 0] / self._height**2)[:, None] * self.w[:, 1:]

    def head(self, q: Vectors, a: Float[ndarray, "g d"]) -> Numbers:
        """x_0 from x_1 = a."""
        right = self.eta[:, 0] ** 2 * q[:, 0] + 2 * self.w[:, 0] * _dot(self.w[:, 1:], a)
        return right / self._height**2

    @property
    def _height(self) -> Numbers:
        return np.sqrt(2 * self.w[:, 0] ** 2 - 1)


def _dot(x: Float[ndarray, "g k"], y: Float[ndarray, "g k"]) -> Numbers:
    return np.einsum("gk,gk->g", x, y)
