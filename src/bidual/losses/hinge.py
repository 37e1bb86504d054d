import torch
from torch import Tensor

from bidual.losses.base import ConeRows, Epigraph, MarginLoss


class Hinge(MarginLoss):
    r"""l(p, y) = sum_k (1 - y_k p_k)_+. With a = -y v in [0, 1]: l*(v) = -sum a."""

    name = "hinge"
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

    def _epigraph(self, Y: Tensor) -> Epigraph:
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

    def _epigraph(self, Y: Tensor) -> Epigraph:
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
