import torch
from torch import Tensor

from bidual.losses.base import ConeRows, Epigraph, Loss


class Absolute(Loss):
    r"""l(p, y) = |p - y|_1, with l*(v) = <v, y> on the box |v| <= 1."""

    name = "absolute"
    slope = 1.0
    translates = True

    def _value(self, P: Tensor, Y: Tensor) -> Tensor:
        return (P - Y).abs().sum(1)

    def _grad(self, P: Tensor, Y: Tensor) -> Tensor:
        return torch.sign(P - Y)

    def _conjugate(self, V: Tensor, Y: Tensor) -> Tensor:
        return torch.where(V.abs() <= 1, V * Y, torch.inf).sum(1)

    def _terms(self, V: Tensor, Y: Tensor) -> Tensor:
        return 2 * (V * Y).abs().sum(1)

    def _prox(self, P: Tensor, Y: Tensor, step: Tensor, start: Tensor) -> Tensor:
        R = P - Y
        return Y + torch.sign(R) * (R.abs() - step).clamp(min=0)

    def _into_domain(self, V: Tensor, Y: Tensor) -> Tensor:
        return V.clamp(-1, 1)

    def _curvature(self, P: Tensor, Y: Tensor) -> Tensor:
        return torch.zeros_like(P)

    def _epigraph(self, Y: Tensor) -> Epigraph:
        n, c = Y.shape
        eye = torch.eye(c, dtype=Y.dtype, device=Y.device).expand(n, c, c)
        rows = (ConeRows("nonnegative", -eye, eye, Y), ConeRows("nonnegative", eye, eye, -Y))  # a >= |f - y|
        return Epigraph(0.0, torch.zeros_like(Y), Y.new_zeros(c), torch.ones_like(Y), rows)
