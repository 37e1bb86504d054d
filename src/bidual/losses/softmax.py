import math

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.losses.base import ConeRows, Epigraph, Loss, Repair, imbalances
from bidual.losses.torch_form import TorchForm
from bidual.numerics.rootfinding import increasing_root, wright_omega
from bidual.numerics.rounding import TINY, gamma, largest_sum, length, rounded_up


class Softmax(Loss):
    r"""Cross-entropy l(p, y) = logsumexp(p) - <y, p>, one-hot targets.

    With q = v + y in the probability simplex: l*(v) = sum q log q (so the rows of V sum to zero).
    """

    name = "softmax"
    torch_form = TorchForm("CrossEntropyLoss()", per_output=False, class_weights=True)
    smoothness = 0.5  # the largest eigenvalue of diag(q) - q q^T
    slope = 2**0.5  # |q - e_y| for q in the simplex
    separable = False
    shift_invariant = True
    classification = True
    one_output = False
    gives_probabilities = True

    def check_targets(self, Y: Tensor) -> None:
        if not bool((((Y == 0) | (Y == 1)).all(1) & (Y.sum(1) == 1)).all()):
            raise ValueError("softmax loss needs one-hot targets, got other values. Encode the labels first.")

    def _probabilities(self, P: Tensor) -> Tensor:
        return torch.softmax(P, 1)

    def _value(self, P: Tensor, Y: Tensor) -> Tensor:
        r"""p_top - p_y + log(1 + sum of exp(p_k - p_top) over k != top), to relative precision however small that is.

        exp and log1p to 4 units, the sum of c - 1 terms and the last one are c + 16 roundings, with a weight, of terms
        that are not negative. Those of the differences move every p_k by u |p_k - p_top|, and the value by at most
        2 u |p| (1 - q_top) <= 2 u |p| |gradient|, as other roundings of p do.
        """
        top = P.argmax(1, keepdim=True)
        highest = P.gather(1, top)
        others = (P - highest).exp().scatter(1, top, 0.0).sum(1)
        return (highest - (Y * P).sum(1, keepdim=True))[:, 0] + torch.log1p(others)

    def _grad(self, P: Tensor, Y: Tensor) -> Tensor:
        return torch.softmax(P, 1) - Y

    def _conjugate(self, V: Tensor, Y: Tensor) -> Tensor:
        """From the entries of the other classes, whose sum is what the own class lacks to one."""
        slack = 64 * torch.finfo(V.dtype).eps
        inside = ((-slack <= V + Y) & (1 + slack >= V + Y)).all(1) & (V.sum(1).abs() <= slack)
        Q = (V * (1 - Y)).clamp(0, 1)
        others = Q.sum(1).clamp(max=1)
        entropy = torch.xlogy(Q, Q).sum(1) + torch.special.xlog1py(1 - others, -others)
        return torch.where(inside, entropy, torch.inf)

    def _terms(self, V: Tensor, Y: Tensor) -> Tensor:
        r"""As for the logistic loss: slopes of the entropy times entries, and their logarithms.

        With s the sum of the entries q of other classes, to c + 2 roundings: q log q is off by q |log q| (c + 13) u and
        2 q u, and (1 - s) log(1 - s) by (c + 2) s (|log(1 - s)| + 1) u and 12 |log(1 - s)| u. An s that differs from
        one by less than 8 (c + 2) roundings, for which that would be too little, has no repair.
        """
        Q = (V * (1 - Y)).clamp(0, 1)
        others = Q.sum(1).clamp(max=1)
        return 2 * others - torch.xlogy(Q, Q).sum(1) - torch.log1p(-others)

    def _prox(self, P: Tensor, Y: Tensor, step: Tensor, start: Tensor) -> Tensor:
        # q + step * softmax(q) = a := p + step * y. With lam = logsumexp(q) every entry solves a scalar equation,
        # step * softmax(q)_k = omega(a_k - lam + log step), omega + log omega = identity; one root in lam is left.
        a, log_step = P + step * Y, step.log()

        def excess(mu: Tensor) -> tuple[Tensor, Tensor]:
            w = wright_omega(a - mu)
            total = w.sum(1, keepdim=True)
            return log_step - total.log(), (w / (1 + w)).sum(1, keepdim=True) / total

        top, share = a.amax(1, keepdim=True), step / P.shape[1]
        low, high = top - step - log_step, top - share - share.log()
        guess = torch.logsumexp(start, 1, keepdim=True) - log_step
        return a - wright_omega(a - increasing_root(excess, low, high, guess))

    def _into_domain(self, V: Tensor, Y: Tensor) -> Tensor:
        Q = (V + Y).clamp(min=0)
        total = Q.sum(1, keepdim=True)
        return torch.where(total > 0, Q / total.clamp(min=torch.finfo(Q.dtype).tiny), Y) - Y

    def _curvature(self, P: Tensor, Y: Tensor) -> Tensor:
        q = torch.softmax(P, 1)
        return q * (1 - q)

    def hessian(self, P: Tensor, Y: Tensor) -> Tensor:
        q = torch.softmax(P, 1)
        return torch.diag_embed(q) - q[:, :, None] * q[:, None, :]

    def summed_hessian(self, P: Tensor, Y: Tensor, weight: Tensor) -> Tensor:
        q = torch.softmax(P, 1)
        return torch.diag((weight * q).sum(0)) - (weight * q).T @ q

    def balance(self, V: Tensor, Y: Tensor, weight: Tensor) -> Tensor:
        r"""Flows between classes must balance (notes on CP A.6): M[k, l] = sum of v_il over samples i of class k.

        Newton's method on sum_kl M[k, l] exp(s_l - s_k) finds the diagonal similarity that balances M (Osborne 1960);
        scaled down until no flow exceeds M it is a circulation, and shrinking each v_il by its ratio keeps q in the
        simplex.
        """
        M = (Y.T @ V) * Y.any(0)  # nothing flows out of a class without samples, so nothing may flow in
        M.fill_diagonal_(0).clamp_(min=0)
        ratio = _circulation_ratio(M)
        off = V * (1 - Y) * (Y @ ratio)
        return off - Y * off.sum(1, keepdim=True)

    def repair(self, V: Tensor, Y: Tensor, weight: Tensor, balanced: bool) -> Repair:
        r"""Every row's own class takes what the sum of the row lacks to zero; its conjugate, which is computed from the
        other classes, is the one of the row that comes out.

        The columns then have sums S_l, which add up to zero; let T be that of |S_l|. All flows shrink by t = T / w,
        which leaves at least T for its own class to every sample of weight w or more, and the heaviest sample of each
        class l with S_l > 0 sends S_l on to classes that lack it; w is the lightest of them. Its other q grow by
        a = S_l / w_l together, for which q log q grows by at most a, because -(1 - a) log(1 - a) <= a; and its own q
        falls by a, for which q log q grows by at most a log(1 / a). Times w_l and with sum S_l <= T / 2, that is

            T / 2 (1 + log(W / T) + log 2 + log c)

        for c classes, W the largest weight, by the concavity of x log(1 / x). V moves by t |V|, and by T, and by t
        times what the rows lack.
        """
        others = (V * (1 - Y)).sum(1)
        inside = others * (1 + gamma(V.shape[1] + 8)) <= weight[:, 0] * (1 - gamma(32 + 4 * V.shape[1]))
        empty = balanced and bool(V[:, ~Y.any(0)].any())
        if empty or not bool(inside.all()) or bool(((1 - Y) * V < 0).any()):
            return Repair(cost=math.inf)
        lacking = V.sum(1).abs() + gamma(V.shape[1] + 4) * V.abs().sum(1)
        nearest = length(lacking)
        return self._circulating(V, nearest, largest_sum(lacking), weight * Y) if balanced else Repair(nearest)

    def _circulating(self, V: Tensor, nearest: float, lacking: float, weight: Tensor) -> Repair:
        """See :meth:`repair`; T is at most what columns and rows lack."""
        flow = (sum(imbalances(V)) + lacking) * (1 + gamma(V.shape[1] + 8))
        heaviest = weight.amax(0)
        share = rounded_up(flow / float(heaviest[heaviest > 0].min()))
        if not share <= 0.5:
            return Repair(cost=math.inf)
        logs = math.log(2 * V.shape[1]) - math.log(max(flow / float(weight.max()), TINY))
        cost = flow * (1 + logs)  # twice what is needed, so that it does not matter how logarithms are rounded
        return Repair(rounded_up(nearest + share * length(V) + 2 * flow), share, rounded_up(cost))

    def epigraph(self, Y: Tensor) -> Epigraph:
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


def _circulation_ratio(M: Float[Tensor, "c c"], steps: int = 60) -> Float[Tensor, "c c"]:
    """C / M for a circulation 0 <= C <= M (equal row and column sums); zero if none is found."""
    s, eps = torch.zeros(len(M), dtype=M.dtype, device=M.device), torch.finfo(M.dtype).eps
    C = M
    for _ in range(steps):
        into, out = C.sum(0), C.sum(1)
        if (into - out).abs().max() <= 2 * eps * C.sum():
            break
        laplacian = torch.diag(into + out) - C - C.T
        direction = torch.linalg.pinv(laplacian, hermitian=True) @ (into - out)
        length = 1.0
        while length > 1e-6 and not _flows(M, s - length * direction).sum() <= C.sum() * (1 + 4 * eps):
            length *= 0.5
        s = s - length * direction
        C = _flows(M, s)
    ratio = torch.exp(s[None, :] - s[:, None]) * (M > 0)
    ratio = ratio / ratio.max().clamp(min=torch.finfo(M.dtype).tiny)
    C = M * ratio
    balanced = bool(torch.isfinite(ratio).all()) and bool((C.sum(0) - C.sum(1)).abs().max() <= 64 * eps * C.sum())
    return ratio if balanced else torch.zeros_like(M)


def _flows(M: Tensor, s: Tensor) -> Tensor:
    return M * torch.exp(s[None, :] - s[:, None])
