"""Losses of the margin y p, for targets +1 and -1."""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from bidual.losses.base import ConeRows, Epigraph, Loss
from bidual.losses.torch_form import TorchForm
from bidual.numerics.rootfinding import increasing_root
from bidual.types import Matrix


class MarginLoss(Loss):
    """A loss l(y p) of the margin, targets +1 or -1."""

    classification = True
    other_class = -1.0

    def check_targets(self, Y: Matrix) -> None:
        if not bool(((Y == 1) | (Y == -1)).all()):
            raise ValueError(f"{self.name} loss needs targets -1 or +1, got other values. Encode the labels first.")


class Hinge(MarginLoss):
    r"""l(p, y) = sum_k (1 - y_k p_k)_+. With a = -y v in [0, 1]: l*(v) = -sum a."""

    name = "hinge"
    torch_form = TorchForm("MarginRankingLoss(margin=1)")
    slope = 1.0

    def _value(self, P: Tensor, Y: Tensor) -> Tensor:
        return (1 - Y * P).clamp(min=0).sum(1)

    def _grad(self, P: Tensor, Y: Tensor) -> Tensor:
        return torch.where(Y * P <= 1, -Y, torch.zeros_like(Y))

    def _conjugate(self, V: Tensor, Y: Tensor) -> Tensor:
        a = -Y * V
        return torch.where((a >= 0) & (a <= 1), -a, torch.inf).sum(1)

    def _terms(self, V: Tensor, Y: Tensor) -> Tensor:
        return 2 * V.abs().sum(1)

    def _prox(self, P: Tensor, Y: Tensor, step: Tensor, start: Tensor) -> Tensor:
        return P + Y * torch.minimum((1 - Y * P).clamp(min=0), step)

    def _into_domain(self, V: Tensor, Y: Tensor) -> Tensor:
        return -Y * (-Y * V).clamp(0, 1)

    def _curvature(self, P: Tensor, Y: Tensor) -> Tensor:
        return torch.zeros_like(P)

    def epigraph(self, Y: Tensor) -> Epigraph:
        return _slack_epigraph(Y, quadratic=0.0, linear=1.0)


class SquaredHinge(MarginLoss):
    r"""l(p, y) = 1/2 sum_k (1 - y_k p_k)_+^2. With a = -y v >= 0: l*(v) = sum a^2 / 2 - a."""

    name = "squared_hinge"
    smoothness = 1.0

    def _value(self, P: Tensor, Y: Tensor) -> Tensor:
        return 0.5 * (1 - Y * P).clamp(min=0).square().sum(1)

    def _grad(self, P: Tensor, Y: Tensor) -> Tensor:
        return -Y * (1 - Y * P).clamp(min=0)

    def _conjugate(self, V: Tensor, Y: Tensor) -> Tensor:
        a = -Y * V
        return torch.where(a >= 0, 0.5 * a.square() - a, torch.inf).sum(1)

    def _terms(self, V: Tensor, Y: Tensor) -> Tensor:
        return (V.square() + 2 * V.abs()).sum(1)

    def _prox(self, P: Tensor, Y: Tensor, step: Tensor, start: Tensor) -> Tensor:
        return P + Y * (1 - Y * P).clamp(min=0) * step / (1 + step)

    def _into_domain(self, V: Tensor, Y: Tensor) -> Tensor:
        return -Y * (-Y * V).clamp(min=0)

    def _curvature(self, P: Tensor, Y: Tensor) -> Tensor:
        return (Y * P < 1).to(P.dtype)

    def epigraph(self, Y: Tensor) -> Epigraph:
        return _slack_epigraph(Y, quadratic=1.0, linear=0.0)


def _slack_epigraph(Y: Tensor, quadratic: float, linear: float) -> Epigraph:
    """Slacks a >= 0 and a >= 1 - y f, paid linearly or quadratically."""
    n, c = Y.shape
    eye = torch.eye(c, dtype=Y.dtype, device=Y.device).expand(n, c, c)
    rows = (
        ConeRows("nonnegative", torch.zeros_like(eye), eye, torch.zeros_like(Y)),
        ConeRows("nonnegative", eye * Y[:, None, :], eye, -torch.ones_like(Y)),
    )
    return Epigraph(0.0, torch.zeros_like(Y), Y.new_full((c,), quadratic), torch.full_like(Y, linear), rows)


class Logistic(MarginLoss):
    r"""l(p, y) = sum_k log(1 + exp(-y_k p_k)), targets +-1.

    With a = -y v in [0, 1]: l*(v) = sum a log a + (1 - a) log(1 - a).
    """

    name = "logistic"
    torch_form = TorchForm("BCEWithLogitsLoss()")
    smoothness = 0.25
    slope = 1.0
    gives_probabilities = True

    def _probabilities(self, P: Tensor) -> Tensor:
        """The sigmoid of the output; several are a problem each, and their sigmoids are scaled to add up to one."""
        if P.shape[1] == 1:
            return torch.sigmoid(torch.cat([-P, P], 1))
        logs = logsigmoid(P)
        return torch.softmax(logs, 1)

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

    def epigraph(self, Y: Tensor) -> Epigraph:
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
