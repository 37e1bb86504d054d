import torch
from torch import Tensor
from torch.nn.functional import softplus

from bidual.losses.base import ConeRows, Epigraph, MarginLoss
from bidual.numerics.rootfinding import increasing_root


class Logistic(MarginLoss):
    r"""l(p, y) = sum_k log(1 + exp(-y_k p_k)), targets +-1.

    With a = -y v in [0, 1]: l*(v) = sum a log a + (1 - a) log(1 - a).
    """

    name = "logistic"
    smoothness = 0.25
    slope = 1.0
    gives_probabilities = True

    def _probabilities(self, P: Tensor) -> Tensor:
        positive = torch.sigmoid(P)
        if P.shape[1] == 1:
            return torch.cat([1 - positive, positive], 1)
        return positive / positive.sum(1, keepdim=True)

    def _value(self, P: Tensor, Y: Tensor) -> Tensor:
        return softplus(-Y * P, threshold=40).sum(1)

    def _grad(self, P: Tensor, Y: Tensor) -> Tensor:
        return -Y * torch.sigmoid(-Y * P)

    def _conjugate(self, V: Tensor, Y: Tensor) -> Tensor:
        a = -Y * V
        inside = (a >= 0) & (a <= 1)
        b = a.clamp(0, 1)
        entropy = torch.xlogy(b, b) + torch.special.xlog1py(1 - b, -b)
        return torch.where(inside, entropy, torch.inf).sum(1)

    def _terms(self, V: Tensor, Y: Tensor) -> Tensor:
        r"""The slope of the entropy times a, and logarithms that are computed to four units.

        a log a is off by 8 roundings of the logarithm, one product and c + 2 sums and a weight, and, where a is off by
        two, by 2 a (|log a| + 1) u: by a |log a| (c + 13) u and 2 a u. (1 - a) log(1 - a) has one rounding more and is
        off by |log(1 - a)| ((1 - a) 10 + 2 a + c + 2) u and 2 a u. 1 - a is at least 64 roundings.
        """
        a = V.abs().clamp(max=1)
        return (a - torch.xlogy(a, a) - torch.log1p(-a)).sum(1)

    def _prox(self, P: Tensor, Y: Tensor, step: Tensor, start: Tensor) -> Tensor:
        # q - p - step * y * sigmoid(-y q) is increasing in q, and its root lies between p and p + step * y.
        def optimality(Q: Tensor) -> tuple[Tensor, Tensor]:
            s = torch.sigmoid(-Y * Q)
            return Q - P - step * Y * s, 1 + step * s * (1 - s)

        end = P + step * Y
        return increasing_root(optimality, torch.minimum(P, end), torch.maximum(P, end), start)

    def _into_domain(self, V: Tensor, Y: Tensor) -> Tensor:
        return -Y * (-Y * V).clamp(0, 1)

    def _curvature(self, P: Tensor, Y: Tensor) -> Tensor:
        s = torch.sigmoid(P)
        return s * (1 - s)

    def _epigraph(self, Y: Tensor) -> Epigraph:
        # log(1 + exp(m)) <= t  <=>  u + w <= 1, exp(m - t) <= u, exp(-t) <= w, with m = -y f, per output.
        n, c = Y.shape
        aux = Y.new_zeros(n, 3 * c)
        aux[:, :c] = 1.0  # the cost is t; the auxiliaries are (t, u, w)
        cones = []
        for k in range(c):
            t, u, w = k, c + k, 2 * c + k
            F, A, h = Y.new_zeros(n, 3, c), Y.new_zeros(n, 3, 3 * c), Y.new_zeros(n, 3)
            F[:, 0, k], A[:, 0, t], h[:, 1], A[:, 2, u] = -Y[:, k], -1, 1, 1
            cones.append(ConeRows("exponential", F, A, h))
            A2, h2 = Y.new_zeros(n, 3, 3 * c), Y.new_zeros(n, 3)
            A2[:, 0, t], h2[:, 1], A2[:, 2, w] = -1, 1, 1
            cones.append(ConeRows("exponential", torch.zeros_like(F), A2, h2))
            A3 = Y.new_zeros(n, 1, 3 * c)
            A3[:, 0, u] = A3[:, 0, w] = -1
            cones.append(ConeRows("nonnegative", Y.new_zeros(n, 1, c), A3, Y.new_ones(n, 1)))
        return Epigraph(0.0, torch.zeros_like(Y), Y.new_zeros(3 * c), aux, tuple(cones))
