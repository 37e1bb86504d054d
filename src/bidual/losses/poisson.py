"""The loss of counts, whose mean is the exponential of the output."""

import math

import torch
from torch import Tensor

from bidual.losses.base import ConeRows, Epigraph, Loss
from bidual.losses.torch_form import TorchForm
from bidual.numerics.rootfinding import wright_omega
from bidual.types import Matrix

_SERIES = [1 / math.factorial(k + 2) for k in range(27)]  # of (exp(r) - 1 - r) / r^2, enough for |r| <= 3
_SMALL = 1e-8  # the v / y up to which y psi(v / y) is v^2 / (2 y), to a sixth of a rounding of v


class Poisson(Loss):
    r"""Half the Poisson deviance with a log link, l(p, y) = sum_k exp(p_k) - y_k p_k + y_k log y_k - y_k, for y >= 0.

    Outputs are logarithms of means (McCullagh and Nelder 1989, section 6.2). With a = v + y >= 0,

        l*(v) = sum_k a log a - a - (y log y - y) = sum_k v log y + y psi(v / y),   psi(t) = (1 + t) log(1 + t) - t.

    The gradient exp(p) - y exists everywhere and has no Lipschitz constant.
    """

    name = "poisson"
    torch_form = TorchForm("PoissonNLLLoss(log_input=True)")
    counts = True

    @property
    def smooth(self) -> bool:
        return True

    def check_targets(self, Y: Matrix) -> None:
        if not bool((Y >= 0).all()):
            raise ValueError(
                f"poisson loss needs targets of at least zero, got {float(Y.min()):g}; use 'squared', 'huber' or "
                "'absolute' for numbers that can be negative."
            )

    def mean(self, P: Tensor) -> Tensor:
        return P.clamp(max=math.log(torch.finfo(P.dtype).max) - 0.01).exp()

    def local_smoothness(self, P: Matrix, reach: float) -> float:
        """Twice the largest curvature, because a computed slope is that of a p which is off by less than ``reach``."""
        return 2.001 * float((P.max() + reach).exp()) if P.numel() else 0.0

    def compared_with(self, Y: Matrix) -> Matrix:
        r"""r = p - log y is off by 8 roundings of the logarithm and one of its own, and y r by at most 1.6 times what l
        changes where p is off by that: the p of a computed value is off by 14.4 u |log y| and 1.6 u |p|.
        """
        return 4 * _logarithm(Y)

    def _value(self, P: Tensor, Y: Tensor) -> Tensor:
        r"""y (exp(r) - 1 - r) with r = p - log y: a series where r is near 0, so that nothing cancels.

        Horner's rule is off by at most 6 roundings for -1 < r <= 3, times y r^2. Elsewhere exp(p) - y (1 + r) is a sum
        of positive terms, or the second is at most a fifth of the first: 12 roundings.
        """
        R, near = _distance(P, Y)
        around = torch.where(near, R, 0.0)
        series, *others = around.new_tensor(_SERIES).flip(0)
        for coefficient in others:
            series = torch.addcmul(coefficient, series, around)
        far = P.exp() - torch.where(Y > 0, Y * (1 + R), 0.0)
        return torch.where(near, Y * around * around * series, far).sum(1)

    def _grad(self, P: Tensor, Y: Tensor) -> Tensor:
        R, near = _distance(P, Y)
        return torch.where(near, Y * torch.where(near, R, 0.0).expm1(), P.exp() - Y)

    def _conjugate(self, V: Tensor, Y: Tensor) -> Tensor:
        inside = -Y * (1 + 4 * torch.finfo(V.dtype).eps) <= V  # V / w * w need not be V
        V = torch.maximum(V, -Y)
        near, v, y = _small_part(V, Y)
        t = v / y
        bent = torch.where(t.abs() <= _SMALL, 0.5 * v * t, y * (torch.special.xlog1py(1 + t, t) - t))
        a = torch.where(near, 1.0, V + Y)
        far = (torch.xlogy(a, a) - a) - (torch.xlogy(Y, Y) - Y)
        entries = torch.where(near, v * y.log() + bent, far)
        return torch.where(inside, entries, torch.inf).sum(1)

    def _terms(self, V: Tensor, Y: Tensor) -> Tensor:
        r"""Twice what is added up, for roundings of v and for logarithms that are computed to four units.

        For |v| <= y: v log y is off by (c + 12) u of it, and y psi(t) by (c + 13) u of y (1 + t) |log(1 + t)| and of
        |v|, and, because t = v / y is off by three roundings, by 3 u |v log(1 + t)|; 1 + t is at least 64 roundings,
        so that the logarithm changes by a twentieth meanwhile. For v > y, a is off by three roundings, a log a - a by
        (c + 14) u of a |log a| and a, and y log y - y likewise.
        """
        near, v, y = _small_part(V, Y)
        a = torch.where(near, 1.0, V + Y)
        close = (v * y.log()).abs() + (y + v.abs()) * torch.log1p(v / y).abs() + v.abs()
        far = torch.xlogy(a, a).abs() + a + torch.xlogy(Y, Y).abs() + Y
        return 2 * torch.where(near, close, far).sum(1)

    def _prox(self, P: Tensor, Y: Tensor, step: Tensor, start: Tensor) -> Tensor:
        # q + step exp(q) = z := p + step y, so that w = step exp(q) solves w + log w = z + log step
        Z, log_step = P + step * Y, step.log()
        w = wright_omega(Z + log_step)
        return torch.where(w > 1, w.log() - log_step, Z - w)  # each where nothing cancels

    def _into_domain(self, V: Tensor, Y: Tensor) -> Tensor:
        return torch.maximum(V, -Y)

    def _curvature(self, P: Tensor, Y: Tensor) -> Tensor:
        return P.exp()

    def best_offset(self, P: Tensor, Y: Tensor, weight: Tensor) -> Tensor:
        """The means add up to the counts. Where all of these are zero, an intercept at which means underflow."""
        lowest = math.log(torch.finfo(P.dtype).tiny) - P.amax(0)
        return torch.maximum((weight * Y).sum(0).log() - torch.logsumexp(P + weight.log(), 0), lowest)

    def epigraph(self, Y: Tensor) -> Epigraph:
        # exp(f - log m) <= a and the cost m a - y f, with m = y, or 1 for y = 0, so that a is about one
        (n, c), size = Y.shape, torch.where(Y > 0, Y, 1.0)
        cones = []
        for k in range(c):
            F, A, h = Y.new_zeros(n, 3, c), Y.new_zeros(n, 3, c), Y.new_zeros(n, 3)
            F[:, 0, k], h[:, 0], h[:, 1], A[:, 2, k] = 1, -size[:, k].log(), 1, 1
            cones.append(ConeRows("exponential", F, A, h))
        return Epigraph(0.0, -Y, Y.new_zeros(c), size, tuple(cones))


def _logarithm(Y: Tensor) -> Tensor:
    """log y, and 0 for y = 0."""
    return torch.where(Y > 0, Y, 1.0).log()


def _distance(P: Tensor, Y: Tensor) -> tuple[Tensor, Tensor]:
    """r = p - log y, and where it is near 0; nowhere for y = 0."""
    R = P - _logarithm(Y)
    return R, (Y > 0) & (R > -1) & (R <= 3)


def _small_part(V: Tensor, Y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where v is at most y > 0, and both there; 0 and 1 elsewhere, so that no branch is infinite off its place."""
    near = (Y > 0) & (V <= Y)
    return near, torch.where(near, V, 0.0), torch.where(near, Y, 1.0)
