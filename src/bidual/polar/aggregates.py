"""A cheap witness: one multiplier per row, and a few for sums of rows."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

_EPS = torch.finfo(torch.float64).eps


class Witness(NamedTuple):
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

    def level(self, witness: Witness, width: float) -> Tensor:
        """lambda, its top eigenvalue smoothed over ``width``, with a barrier of that weight where S turns singular."""
        root, core, cross, top = self._parts(witness)
        W = self.W / root
        Q = W.T @ W
        if not _contracts(Q.detach(), core.detach()):
            return witness.t.sum() * math.inf
        inner = W.T @ cross
        gap = torch.eye(len(Q), dtype=Q.dtype, device=Q.device) - core @ Q
        middle = torch.linalg.solve(gap, core @ inner)
        form = top + cross.T @ cross + inner.T @ middle
        if not bool(torch.isfinite(form).all()):  # a step went so far that numbers overflow
            return witness.t.sum() * math.inf
        top_value = torch.logsumexp(torch.linalg.eigvalsh(0.5 * (form + form.T)) / width, 0)
        return width * (top_value - torch.linalg.slogdet(gap).logabsdet)

    def bound(self, witness: Witness) -> float:
        r"""An upper bound of |V^T a|, rounding included; infinity if the witness proves nothing.

        S >= kappa diag(t) with kappa = 1 - y_max. An error of relative size e in S moves S^-1 by the factor
        1 + 2 e / kappa, and an error f in diag(t)^-1/2 C moves the form by (2 f |C| + f^2) / kappa.
        """
        if not all(bool(torch.isfinite(part).all()) for part in witness) or not bool((witness.t > 0).all()):
            return math.inf
        witness = Witness(witness.t, 0.5 * (witness.K + witness.K.T).clamp(min=0))
        root, core, cross, top = self._parts(witness)
        basis, triangle = torch.linalg.qr(self.W / root)
        small = triangle @ core @ triangle.T
        y, vectors = torch.linalg.eigh(0.5 * (small + small.T))
        rounding = 64 * sum(self.W.shape) * _EPS
        error = rounding * float(1 + triangle.square().sum() * core.norm())
        kappa = float(1 - y.max()) - error if len(y) else 1 - error
        if not kappa > 20 * error:
            return math.inf
        inner = vectors.T @ (basis.T @ cross)
        form = top + cross.T @ cross + (inner.T * (y / (1 - y))) @ inner
        level = max(float(torch.linalg.eigvalsh(0.5 * (form + form.T))[-1]), 0.0)
        drift = rounding * float(cross.norm() + (self.P / root).norm() * witness.K.norm() * self.G.norm())
        slack = (2 * drift * float(cross.norm()) + drift**2) / kappa
        slack += rounding * float(self.G.square().sum() * witness.K.norm() + form.norm())
        bound = math.sqrt(level * (1 + 4 * error / kappa) + slack)
        return bound if math.isfinite(bound) else math.inf

    def _parts(self, witness: Witness) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """sqrt(t) as a column, the core of S's low-rank part, diag(t)^-1/2 C, and G^T K G."""
        t, K = witness
        m = self.P.shape[1]
        root, sums = t.sqrt()[:, None], K[:m] + K[m:]
        core = torch.block_diag(torch.eye(self.outputs, dtype=t.dtype, device=t.device), sums[:, :m] + sums[:, m:])
        cross = (self.P / root) @ (sums @ self.G) - 0.5 * root * self.x
        return root, core, cross, self.G.T @ K @ self.G


def _contracts(Q: Tensor, core: Tensor) -> bool:
    """Whether I - Q^1/2 core Q^1/2 is positive definite, with a margin."""
    if not bool(torch.isfinite(Q).all() & torch.isfinite(core).all()):
        return False
    values, vectors = torch.linalg.eigh(Q)
    root = vectors * values.clamp(min=0).sqrt()
    return not len(Q) or bool(torch.linalg.eigvalsh(root.T @ core @ root)[-1] < 1 - 1e-7)
