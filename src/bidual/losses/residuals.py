"""Losses of the residual p - y."""

import math
from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor

from bidual.losses.base import ConeRows, Epigraph, Loss
from bidual.losses.torch_form import TorchForm
from bidual.numerics.simplex import onto_simplex


def _two_shares(f: Tensor, most: float) -> Tensor:
    """1 - q and q for one output f within [-1, 1], where q / (1 - q) = min(1 + f, most) / min(1 - f, most)."""
    sides = torch.cat([1 - f, 1 + f], 1).clamp(min=0)
    sides = torch.minimum(sides, torch.tensor(most, dtype=f.dtype, device=f.device))  # ONNX rounds plain numbers
    return sides / sides.sum(1, keepdim=True)


class Squared(Loss):
    r"""l(p, y) = 1/2 |p - y|^2, with l*(v) = 1/2 |v|^2 + <v, y> on the whole space."""

    name = "squared"
    smoothness = 1.0
    translates = True
    half_square = True
    torch_form = TorchForm("MSELoss()", times=2.0)
    gives_probabilities = True

    def _probabilities(self, P: Tensor) -> Tensor:
        """The nearest point of the simplex, which is no farther than P from any one-hot target.

        With such targets the loss is half the Brier score |p - e_y|^2, whose expectation is least at p = q (Brier
        1950). With one output f and targets -1 and +1 it is twice the squared error of (1 + f) / 2, clipped to [0, 1].
        """
        return _two_shares(P, 2.0) if P.shape[1] == 1 else onto_simplex(P)

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

    def best_offset(self, P: Tensor, Y: Tensor, weight: Tensor) -> Tensor:
        return (weight * (Y - P)).sum(0) / weight.sum()

    def balance(self, V: Tensor, Y: Tensor, weight: Tensor) -> Tensor:
        return V - weight * (V.sum(0) / weight.sum())

    def epigraph(self, Y: Tensor) -> Epigraph:
        none = Y.new_zeros(Y.shape[0], 0)
        return Epigraph(1.0, -Y, Y.new_zeros(0), none)


class Absolute(Loss):
    r"""l(p, y) = |p - y|_1, with l*(v) = <v, y> on the box |v| <= 1."""

    name = "absolute"
    torch_form = TorchForm("L1Loss()")
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

    def epigraph(self, Y: Tensor) -> Epigraph:
        n, c = Y.shape
        eye = torch.eye(c, dtype=Y.dtype, device=Y.device).expand(n, c, c)
        rows = (ConeRows("nonnegative", -eye, eye, Y), ConeRows("nonnegative", eye, eye, -Y))  # a >= |f - y|
        return Epigraph(0.0, torch.zeros_like(Y), Y.new_zeros(c), torch.ones_like(Y), rows)


@dataclass(frozen=True)
class Huber(Loss):
    r"""Quadratic within ``delta`` of the target, linear beyond; l*(v) = 1/2 |v|^2 + <v, y> on the box |v| <= delta."""

    delta: float = 1.0
    name = "huber"
    torch_form = TorchForm("HuberLoss(delta=delta)")
    smoothness = 1.0
    translates = True

    def __post_init__(self) -> None:
        if not isinstance(self.delta, Real) or not 0 < self.delta < math.inf:
            raise ValueError(
                f"delta must be a positive finite number, got {self.delta!r}; use loss='absolute' for the limit "
                "delta -> 0, and 'squared' for delta -> infinity."
            )
        object.__setattr__(self, "delta", float(self.delta))  # a float32 would round all that it meets

    @property
    def slope(self) -> float:  # type: ignore[override]
        return self.delta

    @property
    def gives_probabilities(self) -> bool:  # type: ignore[override]
        """Below delta = 1 the expected loss of two equally likely classes is least on a whole interval of outputs."""
        return self.delta >= 1

    def check_probabilities(self) -> None:
        if not self.gives_probabilities:
            raise ValueError(
                f"huber loss with delta={self.delta:g} gives no probabilities; use a delta of at least 1, "
                "loss='log_loss' or 'squared', or the scores of decision_function."
            )

    def _probabilities(self, P: Tensor) -> Tensor:
        """Where the expected slope is zero: q min(1 - f, delta) = (1 - q) min(1 + f, delta) for one output f.

        Residuals of one-hot targets reach 1 and not delta, so that several outputs are those of the squared loss.
        """
        return _two_shares(P, self.delta) if P.shape[1] == 1 else onto_simplex(P)

    def _value(self, P: Tensor, Y: Tensor) -> Tensor:
        r = (P - Y).abs()
        return torch.where(r <= self.delta, 0.5 * r.square(), self.delta * (r - 0.5 * self.delta)).sum(1)

    def _grad(self, P: Tensor, Y: Tensor) -> Tensor:
        return (P - Y).clamp(-self.delta, self.delta)

    def _conjugate(self, V: Tensor, Y: Tensor) -> Tensor:
        inside = V.abs() <= self.delta * (1 + 4 * torch.finfo(V.dtype).eps)  # V / w * w need not be V
        return torch.where(inside, 0.5 * V.square() + V * Y, torch.inf).sum(1)

    def _terms(self, V: Tensor, Y: Tensor) -> Tensor:
        return (V.square() + 2 * (V * Y).abs()).sum(1)

    def _prox(self, P: Tensor, Y: Tensor, step: Tensor, start: Tensor) -> Tensor:
        R = P - Y
        return P - step * (R / (1 + step)).clamp(-self.delta, self.delta)

    def _into_domain(self, V: Tensor, Y: Tensor) -> Tensor:
        return V.clamp(-self.delta, self.delta)

    def _curvature(self, P: Tensor, Y: Tensor) -> Tensor:
        return ((P - Y).abs() <= self.delta).to(P.dtype)

    def epigraph(self, Y: Tensor) -> Epigraph:
        # min 1/2 r^2 + delta e  with  e >= |f - y - r|; auxiliaries (r, e) per output.
        n, c = Y.shape
        eye = torch.eye(c, dtype=Y.dtype, device=Y.device).expand(n, c, c)
        rows = (
            ConeRows("nonnegative", -eye, torch.cat([eye, eye], 2), Y),
            ConeRows("nonnegative", eye, torch.cat([-eye, eye], 2), -Y),
        )
        quadratic = torch.cat([Y.new_ones(c), Y.new_zeros(c)])
        linear = torch.cat([torch.zeros_like(Y), torch.full_like(Y, self.delta)], 1)
        return Epigraph(0.0, torch.zeros_like(Y), quadratic, linear, rows)
