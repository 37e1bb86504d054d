import torch
from torch import Tensor

from bidual.losses.base import Epigraph, Loss


class Squared(Loss):
    r"""l(p, y) = 1/2 |p - y|^2, with l*(v) = 1/2 |v|^2 + <v, y> on the whole space."""

    name = "squared"
    smoothness = 1.0
    translates = True
    half_square = True

    def _value(self, P: Tensor, Y: Tensor) -> Tensor:
        return 0.5 * (P - Y).square().sum(1)

    def _grad(self, P: Tensor, Y: Tensor) -> Tensor:
        return P - Y

    def _conjugate(self, V: Tensor, Y: Tensor) -> Tensor:
        return (0.5 * V.square() + V * Y).sum(1)

    def _terms(self, V: Tensor, Y: Tensor) -> Tensor:
        return (V.square() + 2 * (V * Y).abs()).sum(1)

    def _prox(self, P: Tensor, Y: Tensor, step: Tensor, start: Tensor) -> Tensor:
        return (P + step * Y) / (1 + step)

    def _into_domain(self, V: Tensor, Y: Tensor) -> Tensor:
        return V

    def _curvature(self, P: Tensor, Y: Tensor) -> Tensor:
        return torch.ones_like(P)

    def _balance(self, V: Tensor, Y: Tensor, weight: Tensor) -> Tensor:
        return V - weight * (V.sum(0) / weight.sum())

    def _epigraph(self, Y: Tensor) -> Epigraph:
        none = Y.new_zeros(Y.shape[0], 0)
        return Epigraph(1.0, -Y, Y.new_zeros(0), none)
