"""The cheap bound of the steepest neuron, for many samples: one multiplier per row, and a few for sums of rows."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.numerics.eigenvalue_bounds import largest_eigenvalues, orthogonality_error, symmetric
from bidual.numerics.lbfgs import descend
from bidual.numerics.rounding import TINY, gamma, length, rounded_up
from bidual.polar.base import SteepestNeurons
from bidual.polar.relaxations.reduction import ScaledOracle

_WIDTHS = (0.1, 0.03, 0.01, 0.003, 0.0003)  # smoothing of the top eigenvalue, as shares of it
_MOST_SUMS = 40


class RowMultipliers(NamedTuple):
    """Multipliers t > 0 of a_i b_i = 0, and K >= 0 (2m, 2m) of the products of (P^T a, P^T b)."""

    t: Float[Tensor, " n"]
    K: Float[Tensor, "k k"]


class Aggregated:
    r"""|V^T a|^2 <= lambda for a = (x u)_+, |u| <= 1, from the rows' complementarity and non-negative sums of rows.

    With b = a - x u, g = (P^T a, P^T b) >= 0 for a matrix P >= 0 (n, m), t > 0 and K >= 0, the form

        lambda |u|^2 - |V^T a|^2 + sum_i t_i a_i b_i - g^T K g

    is non-negative iff S = diag(t) - V V^T - P K_a P^T is positive definite, K_a the sum of the blocks of K, and
    lambda >= lambda_max(G^T K G + C^T S^-1 C), where G = (0, P^T x) and C = -1/2 diag(t) x + P (I I) K G. Then
    |V^T a|^2 <= lambda. S is diagonal plus rank c + m, so a value costs O(n (d + c + m)^2). With K = 0 it is

        lambda(t) = 1/4 lambda_max(x^T T x + x^T V (I - V^T T^-1 V)^-1 V^T x).
    """

    def __init__(self, x: Float[Tensor, "n r"], V: Float[Tensor, "n c"], P: Float[Tensor, "n m"]) -> None:
        self.x, self.P, self.outputs = x, P, V.shape[1]
        self.W = torch.cat([V, P], 1)
        self.G = torch.cat([x.new_zeros(P.shape[1], x.shape[1]), P.T @ x])

    def level(self, witness: RowMultipliers, width: float) -> Tensor:
        """lambda, its top eigenvalue smoothed over ``width``, with a barrier of that weight where S turns singular."""
        root, core, cross, top = self._parts(witness)
        W = self.W / root
        Q = W.T @ W
        if not _contracts(Q.detach(), core.detach()):
            return witness.t.sum() * math.inf
        inner = W.T @ cross
        gap = torch.eye(len(Q), dtype=Q.dtype) - core @ Q
        middle = torch.linalg.solve(gap, core @ inner)
        form = top + cross.T @ cross + inner.T @ middle
        if not bool(torch.isfinite(form).all()):  # a step went so far that numbers overflow
            return witness.t.sum() * math.inf
        top_value = torch.logsumexp(torch.linalg.eigvalsh(0.5 * (form + form.T)) / width, 0)
        return width * (top_value - torch.linalg.slogdet(gap).logabsdet)

    def bound(self, witness: RowMultipliers) -> float:
        r"""An upper bound of |V^T a| in real arithmetic; infinity if the witness proves nothing.

        For any matrix Y, a = Y u + e turns |V^T a|^2 + g^T K g - sum_i t_i a_i b_i, which is at least |V^T a|^2, into

            u^T Phi u + 2 e^T R u - e^T S e,   Phi = |V^T Y|^2 + Gamma^T K Gamma - Y^T diag(t) (Y - x),
            Gamma = (P^T Y, P^T (Y - x)),      R = V V^T Y + P (I I) K Gamma - diag(t) (Y - x / 2),

        so that S >= kappa diag(t) proves lambda_max(Phi) + |diag(t)^-1/2 R|^2 / kappa. The guess Y = -S^-1 C makes R
        zero but for rounding, which enters squared, and nothing has to be known about how Y was found.
        """
        if not all(bool(torch.isfinite(part).all()) for part in witness) or not bool((witness.t > 0).all()):
            return math.inf
        witness = RowMultipliers(witness.t, symmetric(witness.K).clamp(min=0))
        parts = self._parts(witness)
        if not all(bool(torch.isfinite(part).all()) for part in parts):
            return math.inf
        kappa, Y = self._rule(*parts[:3])
        if not kappa > 0 or not bool(torch.isfinite(Y).all()):
            return math.inf
        level, rest = self._value(witness, Y)
        square = rounded_up(max(level, 0.0) + rest * rest / kappa)
        return rounded_up(math.sqrt(square)) if math.isfinite(square) else math.inf

    def _rule(self, root: Tensor, core: Tensor, cross: Tensor) -> tuple[float, Tensor]:
        r"""A kappa with S >= kappa diag(t), and about -S^-1 C.

        With Q T + E = diag(t)^-1/2 (V, P) =: W for any Q and T, and the core J = diag(I, K_a),

            W J W^T <= max(lambda_max(T J T^T), 0) (1 + |Q^T Q - I|) + |J| |E| (2 |W| + 3 |E|) = 1 - kappa.

        The entries of W went through a root and a quotient, those of J through two sums: W J W^T is off by gamma(6).
        """
        W = self.W / root
        Q, T = torch.linalg.qr(W)
        small = symmetric(T @ core @ T.T)
        k, wide, deep, tall = len(core), length(W), length(core), length(T)
        off = length(W - Q @ T) + gamma(k + 4) * (length(Q) * tall + wide)
        top = float(largest_eigenvalues(small[None])) + gamma(2 * k + 4) * tall * tall * deep
        rest = 1.001 * deep * (off * (2 * wide + 3 * off) + gamma(8) * wide * wide)
        kappa = (1 - rounded_up(max(top, 0.0) * (1 + orthogonality_error(Q)) + rest)) * (1 - gamma(4))
        if not kappa > 0:
            return kappa, cross
        y, vectors = torch.linalg.eigh(small)
        inner = Q @ (vectors * (y / (1 - y))) @ (vectors.T @ (Q.T @ cross))
        return kappa, -(cross + inner) / root

    def _value(self, witness: RowMultipliers, Y: Tensor) -> tuple[float, float]:
        r"""Upper bounds of lambda_max(Phi) and of |diag(t)^-1/2 R|_F for any Y.

        Terms of Phi go through 2 n + 4 m + c + 8 operations at most, those of R through n + 3 m + c + 8; the sums of
        their absolute values are bounded by products of norms. Underflows cost far less than the root of the smallest
        number.
        """
        (t, K), x, P, V = witness, self.x, self.P, self.W[:, : self.outputs]
        (n, m), b = P.shape, Y - x
        slope, sums = V.T @ Y, torch.cat([P.T @ Y, P.T @ b])
        push = K @ sums
        phi = slope.T @ slope + sums.T @ push - Y.T @ (t[:, None] * b)
        R = V @ slope + P @ (push[:m] + push[m:]) - t[:, None] * (Y - 0.5 * x)
        root = t.sqrt()[:, None]
        long, heavy, rows = length(Y), length(root * Y), length(root * x)
        wide, far = length(V) * long, length(P) * math.hypot(long, long + length(x))
        size = wide * wide + length(K) * far * far + heavy * (heavy + rows)
        level = float(largest_eigenvalues(symmetric(phi)[None])) + gamma(2 * n + 4 * m + self.outputs + 16) * size
        size = length(V / root) * wide + 2 * length(P / root) * length(K) * far + heavy + rows
        rest = length(R / root) + gamma(n + 3 * m + self.outputs + 16) * size
        return rounded_up(level + TINY**0.5), rounded_up(rest + TINY**0.5)

    def _parts(self, witness: RowMultipliers) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """sqrt(t) as a column, the core of S's low-rank part, diag(t)^-1/2 C, and G^T K G."""
        t, K = witness
        m = self.P.shape[1]
        root, sums = t.sqrt()[:, None], K[:m] + K[m:]
        core = torch.block_diag(torch.eye(self.outputs, dtype=t.dtype), sums[:, :m] + sums[:, m:])
        cross = (self.P / root) @ (sums @ self.G) - 0.5 * root * self.x
        return root, core, cross, self.G.T @ K @ self.G


def _contracts(Q: Tensor, core: Tensor) -> bool:
    """Whether I - Q^1/2 core Q^1/2 is positive definite, with a margin."""
    if not bool(torch.isfinite(Q).all() & torch.isfinite(core).all()):
        return False
    values, vectors = torch.linalg.eigh(Q)
    root = vectors * values.clamp(min=0).sqrt()
    return not len(Q) or bool(torch.linalg.eigvalsh(root.T @ core @ root)[-1] < 1 - 1e-7)


@dataclass(eq=False)
class DiagonalBound(ScaledOracle):
    r"""An upper bound of max |V^T (X u)_+| from one multiplier per row and a few per output, O(n d^2) a step.

    It starts at t = |V|^2 + |V| |V^T X| / |X|, whose bound is the elementary 1/2 |V^T X| + 1/2 |V| |X|, and descends
    from there; ``sums=True`` adds the products of V_+^T a, V_-^T a, V_+^T b, V_-^T b (see :class:`Aggregated`).

    It is for where the product bound is too slow or too large, and for other devices: on 1000 normal samples of 30
    features it ends at 2.9 times the lower end in 0.6 s, the product bound at 1.9 times in 2.9 s; on 20,000 of them it
    takes 9 s. The product bound was tighter at all sizes measured, and as quick on 100 samples only.
    """

    X: Float[Tensor, "n d"]
    sums: bool = True
    steps: int = 80
    starts: int = 64

    def _steepest(self, V: Tensor, above: float, seeds: Tensor | None) -> SteepestNeurons:
        norm = float(torch.linalg.vector_norm(V))
        W = V.cpu() / norm
        bound = diagonal_bound(torch.from_numpy(self._scaled.x), W, self.sums, self.steps)
        return self._search(V, above, seeds).with_upper(self._in_units_of(V, W, norm, bound))


def diagonal_bound(x: Float[Tensor, "n r"], V: Float[Tensor, "n c"], sums: bool, steps: int) -> float:
    """The best proved bound of max |V^T (x u)_+| over unit u, for x and V of norm about one."""
    simple = Aggregated(x, V, x.new_zeros(len(x), 0))
    start = RowMultipliers(_elementary(x, V), x.new_zeros(0, 0))
    better = _minimised(simple, start, steps)
    bounds = [simple.bound(start), simple.bound(better)]
    P = _sums(V)
    if sums and P.shape[1]:
        full = Aggregated(x, V, P)
        small = x.new_full((2 * P.shape[1], 2 * P.shape[1]), 1e-4)
        options = (RowMultipliers(better.t * growth, small) for growth in (1.01, 1.1, 2.0, 10.0))
        inside = next((w for w in options if bool(torch.isfinite(full.level(w, 1.0)))), None)
        bounds += [full.bound(_minimised(full, inside, steps))] if inside is not None else []
    return min(bounds)


def _elementary(x: Tensor, V: Tensor) -> Tensor:
    """The constant t whose bound is 1/2 |V^T x| + 1/2 |V| |x|."""
    size, slope, cross = (float(torch.linalg.matrix_norm(part, 2)) for part in (x, V, V.T @ x))
    return x.new_full((len(x),), slope * (slope + cross / size) * (1 + 1e-6))


def _sums(V: Tensor) -> Tensor:
    """The positive and negative parts of the columns of V, summed over outputs where those are too many."""
    parts = torch.cat([V.clamp(min=0), (-V).clamp(min=0)], 1)
    if parts.shape[1] > _MOST_SUMS:
        parts = torch.stack([V.clamp(min=0).sum(1), (-V).clamp(min=0).sum(1)], 1)
    norms = torch.linalg.vector_norm(parts, dim=0)
    return parts[:, norms > 0] / norms[norms > 0]


def _minimised(bound: Aggregated, start: RowMultipliers, steps: int) -> RowMultipliers:
    """Descent on log t and the roots of K, while the smoothing of the top eigenvalue shrinks."""
    n, side = len(start.t), len(start.K)

    def unpack(point: Tensor) -> RowMultipliers:
        K = point[n:].reshape(side, side).square()
        return RowMultipliers(point[:n].exp(), 0.5 * (K + K.T))

    point = torch.cat([start.t.log(), start.K.sqrt().ravel()])
    for share in _WIDTHS:
        width = share * float(bound.level(unpack(point), 1e-9))
        if not 0 < width < math.inf:
            break
        point = descend(lambda p, width=width: bound.level(unpack(p), width), point, steps)  # type: ignore[misc]
    return unpack(point)
