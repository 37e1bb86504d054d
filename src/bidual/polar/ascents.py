r"""Ascent to steep neurons: the convex-concave procedure for max { |V^T (X u)_+| : |u| <= 1 }, for many starts at once.

With g the direction of z = V^T (X u)_+ and w_i = g v_i, |z| is at least sum_i w_i (x_i u)_+; rows of w_i > 0 are
at least linear, as they are at u. The rest is concave in u. Its maximum over |u| <= 1 is the least length of

    a = b - sum_{w_i < 0} t_i x_i,   b = sum_{w_i > 0, x_i u > 0} w_i x_i,   0 <= t_i <= -w_i,

and the direction of a is the next u. Where rows of X u vanish at a maximum, t is between its limits; a step along the
slope of one pattern would jump over such a ridge.

The shortest a is found by accelerated projected gradient steps in t (FISTA), t_i by |v_i| / L of the gradient with L
the largest eigenvalue of sum_i |v_i| x_i x_i^T: the metric in which a row that may go far goes fast, and the longest
steps that it allows. They begin at the t of the last round, so that an ascent which takes several rounds to its ridge
does not look for it anew. With one output w is v or -v, and either sign needs only the rows that fall. The precision
is that of X: single precision is enough to climb, and every value must be evaluated anew.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

Directions = Float[Tensor, "q r"]
_TINY = 1e-30  # also in single precision
_NUMBERS = 100_000  # of starts times samples that are handled at a time: what fits into a cache
_RISE = 1e-9  # at least, by which an ascent that goes on has risen


def ascend(
    X: Float[Tensor, "n r"], V: Float[Tensor, "n c"], U: Directions, rounds: int = 6, steps: int = 60
) -> Directions:
    """Unit directions at least as steep as those of U."""
    U = unit(U)
    values, g = objective(X, V, U)
    for some, question in _questions(X, V, g):
        for part in some.split(max(1, _NUMBERS // len(X))):
            U[part] = question.ascended(U[part], values[part], g[part], rounds, steps)
    return U


def objective(X: Tensor, V: Tensor, U: Directions) -> tuple[Float[Tensor, " q"], Float[Tensor, "q c"]]:
    """|z| and the direction of z."""
    z = (U @ X.T).clamp_(min=0) @ V
    values = torch.linalg.vector_norm(z, dim=1)
    return values, z / values.clamp(min=_TINY)[:, None]


def unit(U: Directions) -> Directions:
    return U / torch.linalg.vector_norm(U, dim=1, keepdim=True).clamp(min=_TINY)


@dataclass(frozen=True)
class _Question:
    """What ascents share.

    Attributes:
        X: all rows.
        V: their slopes.
        rising: rows whose w is positive for some start.
        falling: rows whose w is negative for some start.
        speeds: |v_i| / L of the falling rows.
        sign: of w = v with one output; None with several, where every start has its own w.
    """

    X: Float[Tensor, "n r"]
    V: Float[Tensor, "n c"]
    rising: Float[Tensor, "m r"]
    falling: Float[Tensor, "k r"]
    speeds: Float[Tensor, " k"]
    sign: float | None = None

    def ascended(
        self, U: Directions, values: Float[Tensor, " q"], g: Float[Tensor, "q c"], rounds: int, steps: int
    ) -> Directions:
        """The ends of the ascents from U, each as long as it rises."""
        best, rows, t = U.clone(), torch.arange(len(U)), None
        rise = max(_RISE, 10 * torch.finfo(U.dtype).eps)
        for _ in range(rounds):
            b, most, first = self._around(U, g)
            t = first if t is None else torch.minimum(t, most)
            a, t = shortest(self.falling, b, most, self.speeds, t, steps)
            moved = unit(a)
            reached, ahead = objective(self.X, self.V, moved)
            better = reached > values * (1 + rise)
            if not bool(better.any()):
                break
            rows, U, g, values, t = rows[better], moved[better], ahead[better], reached[better], t[better]
            best[rows] = U
        return best

    def _around(self, U: Directions, g: Float[Tensor, "q c"]) -> tuple[Directions, Tensor, Tensor]:
        """b, the limits of t, and the t of u's pattern."""
        if self.sign is None:
            w = g @ self.V.T
            up, most = w.clamp(min=0), (-w).clamp_(min=0)
        else:
            w = self.sign * self.V.T
            up, most = w[w > 0][None], -w[w < 0][None]
        b = (up * (U @ self.rising.T > 0)) @ self.rising
        return b, most, most * (U @ self.falling.T > 0)


def _questions(X: Tensor, V: Tensor, g: Float[Tensor, "q c"]) -> list[tuple[Int[Tensor, " k"], _Question]]:
    """Which starts share one: with one output those with the same sign of z."""
    sizes, everything = torch.linalg.vector_norm(V, dim=1), torch.arange(len(g))
    if V.shape[1] > 1:
        return [(everything, _Question(X, V, X, X, _speeds(X, sizes)))]
    found = []
    for sign in (1.0, -1.0):
        w, some = sign * V[:, 0], everything[sign * g[:, 0] > 0]
        falling = X[w < 0]
        if len(some):
            found.append((some, _Question(X, V, X[w > 0], falling, _speeds(falling, sizes[w < 0]), sign)))
    return found


def _speeds(X: Float[Tensor, "k r"], sizes: Float[Tensor, " k"]) -> Float[Tensor, " k"]:
    """|v_i| / L."""
    scaled = X * sizes.sqrt()[:, None]
    gram = scaled.T @ scaled if len(X) > X.shape[1] else scaled @ scaled.T
    largest = float(torch.linalg.eigvalsh(gram)[-1]) if gram.numel() else 0.0
    return sizes / max(largest, _TINY)


def shortest(
    X: Float[Tensor, "k r"],
    b: Directions,
    most: Float[Tensor, "#q k"],
    speeds: Float[Tensor, " k"],
    t: Float[Tensor, "q k"],
    steps: int,
) -> tuple[Directions, Float[Tensor, "q k"]]:
    """The shortest b - sum_i t_i x_i over 0 <= t_i <= most_i, about, and its t."""
    ahead, momentum = t, 1.0
    back = (speeds[:, None] * X).T.contiguous()
    for _ in range(steps):
        moved = torch.addmm(ahead, torch.addmm(b, ahead, X, alpha=-1), back)
        torch.minimum(moved.clamp_(min=0), most, out=moved)
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead = torch.lerp(t, moved, 1 + (momentum - 1) / following)
        t, momentum = moved, following
    return torch.addmm(b, t, X, alpha=-1), t
