import torch
from jaxtyping import Float
from torch import Tensor

from bidual.losses.base import ConeRows, Epigraph, Loss


class Softmax(Loss):
    r"""Cross-entropy l(p, y) = logsumexp(p) - <y, p>, one-hot targets.

    With q = v + y in the probability simplex: l*(v) = sum q log q (so the rows of V sum to zero).
    """

    name = "softmax"
    smoothness = 0.5  # the largest eigenvalue of diag(q) - q q^T
    separable = False

    def check_targets(self, Y: Tensor) -> None:
        if not bool((((Y == 0) | (Y == 1)).all(1) & (Y.sum(1) == 1)).all()):
            raise ValueError("softmax loss needs one-hot targets, got other values. Encode the labels first.")

    def _value(self, P: Tensor, Y: Tensor) -> Tensor:
        return torch.logsumexp(P, 1) - (Y * P).sum(1)

    def _grad(self, P: Tensor, Y: Tensor) -> Tensor:
        return torch.softmax(P, 1) - Y

    def _conjugate(self, V: Tensor, Y: Tensor) -> Tensor:
        Q = V + Y
        slack = 64 * torch.finfo(Q.dtype).eps
        inside = ((Q >= -slack) & (Q <= 1 + slack)).all(1) & (V.sum(1).abs() <= slack)
        Q = Q.clamp(0, 1)
        return torch.where(inside, torch.xlogy(Q, Q).sum(1), torch.inf)

    def _prox(self, P: Tensor, Y: Tensor, step: Tensor) -> Tensor:
        # Damped Newton per row on q -> step * l(q) + 1/2 |q - p|^2; the Hessian is diagonal minus rank one.
        Q = P.clone()
        for _ in range(60):
            probability = torch.softmax(Q, 1)
            residual = step * (probability - Y) + Q - P
            if residual.abs().max() <= 8 * torch.finfo(Q.dtype).eps * (1 + P.abs().max()):
                break
            h = step * probability + 1
            along = (probability * residual / h).sum(1, keepdim=True)
            curve = 1 - step * (probability.square() / h).sum(1, keepdim=True)
            direction = (residual + step * probability * (along / curve)) / h
            Q = Q - self._backtrack(Q, P, Y, step, direction, residual) * direction
        return Q

    def _backtrack(self, Q: Tensor, P: Tensor, Y: Tensor, step: Tensor, direction: Tensor, residual: Tensor) -> Tensor:
        """Step lengths 1, 1/2, 1/4, ... per row until the prox objective has fallen (Armijo, constant 1e-4)."""
        scale = step.reshape(-1) if step.ndim else step

        def objective(A: Tensor) -> Tensor:
            return scale * self._value(A, Y) + 0.5 * (A - P).square().sum(1)

        start, slope = objective(Q), (direction * residual).sum(1)
        length = torch.ones_like(start)
        floor = 16 * torch.finfo(Q.dtype).eps * (1 + start.abs())
        for _ in range(30):
            bad = objective(Q - length[:, None] * direction) > start - 1e-4 * length * slope + floor
            if not bool(bad.any()):
                break
            length = torch.where(bad, 0.5 * length, length)
        return length[:, None]

    def _into_domain(self, V: Tensor, Y: Tensor) -> Tensor:
        Q = (V + Y).clamp(min=0)
        total = Q.sum(1, keepdim=True)
        return torch.where(total > 0, Q / total.clamp(min=torch.finfo(Q.dtype).tiny), Y) - Y

    def _curvature(self, P: Tensor, Y: Tensor) -> Tensor:
        q = torch.softmax(P, 1)
        return q * (1 - q)

    def _summed_hessian(self, P: Tensor, Y: Tensor, weight: Tensor) -> Tensor:
        q = torch.softmax(P, 1)
        return torch.diag((weight * q).sum(0)) - (weight * q).T @ q

    def _balance(self, V: Tensor, Y: Tensor, weight: Tensor) -> Tensor:
        r"""Flows between classes must balance (notes on CP A.6): M[k, l] = sum of v_il over samples i of class k.

        Osborne's iteration finds a diagonal similarity that balances M; scaled down until no flow exceeds M it is a
        circulation, and shrinking each v_il by its ratio keeps q in the simplex.
        """
        M = Y.T @ V
        M.fill_diagonal_(0).clamp_(min=0)
        ratio = _circulation_ratio(M)
        off = V * (1 - Y) * (Y @ ratio)
        return off - Y * off.sum(1, keepdim=True)

    def _epigraph(self, Y: Tensor) -> Epigraph:
        # logsumexp(f) <= t  <=>  sum_k u_k <= 1, exp(f_k - t) <= u_k; auxiliaries (t, u_1..u_c).
        n, c = Y.shape
        cost = Y.new_zeros(n, 1 + c)
        cost[:, 0] = 1.0
        cones = []
        for k in range(c):
            F, A, h = Y.new_zeros(n, 3, c), Y.new_zeros(n, 3, 1 + c), Y.new_zeros(n, 3)
            F[:, 0, k], A[:, 0, 0], h[:, 1], A[:, 2, 1 + k] = 1, -1, 1, 1
            cones.append(ConeRows("exponential", F, A, h))
        total = Y.new_zeros(n, 1, 1 + c)
        total[:, 0, 1:] = -1
        cones.append(ConeRows("nonnegative", Y.new_zeros(n, 1, c), total, Y.new_ones(n, 1)))
        return Epigraph(0.0, -Y, Y.new_zeros(1 + c), cost, tuple(cones))


def _circulation_ratio(M: Float[Tensor, "c c"], sweeps: int = 400) -> Float[Tensor, "c c"]:
    """C / M for a circulation 0 <= C <= M (equal row and column sums); zero if none is found."""
    scale = torch.ones(len(M), dtype=M.dtype, device=M.device)
    tiny = torch.finfo(M.dtype).tiny
    for _ in range(sweeps):
        for k in range(len(M)):
            out = (M[k] * scale).sum() / scale[k]
            into = (M[:, k] / scale).sum() * scale[k]
            scale[k] *= ((out + tiny) / (into + tiny)).sqrt()
        C = M * scale[None, :] / scale[:, None]
        if (C.sum(0) - C.sum(1)).abs().max() <= 4 * torch.finfo(M.dtype).eps * C.sum():
            break
    ratio = scale[None, :] / scale[:, None]
    ratio = ratio / ratio[M > 0].max() if bool((M > 0).any()) else torch.zeros_like(M)
    C = M * ratio
    balanced = (C.sum(0) - C.sum(1)).abs().max() <= 1e-12 * C.sum() and bool(torch.isfinite(ratio[M > 0]).all())
    return torch.where(M > 0, ratio, 0.0) if balanced else torch.zeros_like(M)
