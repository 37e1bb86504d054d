"""The data term F: a loss bound to its targets, sample weights and unpenalised intercept."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.losses import Loss
from bidual.numerics.rootfinding import increasing_root
from bidual.numerics.rounding import TINY, gamma, largest_sum, length, rounded_up
from bidual.types import Matrix


@dataclass(frozen=True, eq=False)
class Datafit:
    r"""F(P) = sum_i w_i l(p_i, y_i), a plain sum over samples as in the papers.

    With ``intercept=True`` it is the partial minimum F(P) = min_b sum_i w_i l(p_i + b, y_i), which is again a convex
    function of P: its gradient is that of the sum at the best b, and its conjugate is that of the sum, restricted to
    1^T V = 0. No solver needs to know about the intercept to be certified.

    For losses of p - y the targets are then centred, which changes neither F nor F* but keeps large offsets out of the
    arithmetic: ``targets`` and :meth:`offset` are in centred units, ``shift`` is what to add to the latter.
    """

    loss: Loss
    targets: Matrix
    weight: Float[Tensor, " n"] | None = None
    intercept: bool = False
    shift: Float[Tensor, " c"] | None = None

    def __post_init__(self) -> None:
        Y, w = self.targets, self.weight
        if Y.ndim != 2:
            raise ValueError(f"targets must have shape (n, c), got {tuple(Y.shape)}. Reshape a vector to (n, 1).")
        if not bool(torch.isfinite(Y).all()):
            raise ValueError("targets must be finite, got NaN or infinity. Drop or impute those samples.")
        if w is not None and (w.shape != Y.shape[:1] or not bool((torch.isfinite(w) & (w > 0)).all())):
            raise ValueError("weight must be one positive finite number per sample. Drop samples of weight zero.")
        self.loss.check_targets(Y)
        if self.shift is None:
            shift = self._mean(Y) if self.intercept and self.loss.translates else Y.new_zeros(Y.shape[1])
            object.__setattr__(self, "shift", shift)
            object.__setattr__(self, "targets", Y - shift)

    def _mean(self, Y: Matrix) -> Float[Tensor, " c"]:
        """The weighted mean of every output; of a constant one the constant, which a mean has to a rounding only."""
        mean = (self.weights / self.weights.sum() * Y).sum(0)
        return torch.where((Y[:1] == Y).all(0), Y[:1].sum(0), mean)

    @cached_property
    def weights(self) -> Float[Tensor, "n 1"]:
        """The sample weights as a column, ones if none were given."""
        w = self.targets.new_ones(len(self.targets)) if self.weight is None else self.weight
        return w[:, None].to(self.targets)

    @property
    def smoothness(self) -> float | None:
        """A Lipschitz constant of grad F, or None if there is none."""
        L = self.loss.smoothness
        return None if L is None else L * float(self.weights.max())

    @cached_property
    def bend(self) -> float:
        """About how fast grad F changes: its Lipschitz constant, or where there is none the largest curvature at the
        best constant; one for a loss with kinks."""
        if self.smoothness is not None or not self.loss.smooth:
            return self.smoothness or 1.0
        constant = torch.zeros_like(self.targets) + self.offset(torch.zeros_like(self.targets))
        return float((self.weights * self.loss.curvature(constant, self.targets)).max()) or 1.0

    @property
    def lipschitz(self) -> float | None:
        """A Lipschitz constant of F in the Frobenius norm of the predictions, or None if F grows faster."""
        return self.loss.lipschitz(self.weights, self.targets.shape[1])

    def fits(self, dtype: torch.dtype) -> bool:
        """Whether a precision has such large targets and such weights, so that none becomes infinite or zero."""
        range_ = torch.finfo(dtype)
        sizes, w = self.targets.abs(), self.weights
        return not len(w) or bool(sizes.max() <= range_.max and w.max() <= range_.max and w.min() >= range_.tiny)

    def to(self, dtype: torch.dtype) -> Self:
        weight = None if self.weight is None else self.weight.to(dtype)
        assert self.shift is not None
        return type(self)(self.loss, self.targets.to(dtype), weight, self.intercept, self.shift.to(dtype))

    @cached_property
    def scale(self) -> float:
        """The loss of predicting zero for the (centred) targets: what rounding of F is relative to."""
        return self.value_at(torch.zeros_like(self.targets), self.targets.new_zeros(self.targets.shape[1]))

    def value(self, P: Matrix) -> float:
        """F(P)."""
        return self.value_at(P, self.offset(P))

    def value_at(self, P: Matrix, b: Float[Tensor, " c"]) -> float:
        """The sum at a given intercept, an upper bound of F(P)."""
        return float((self.weights[:, 0] * self.loss.value(P + b, self.targets)).sum())

    def upper_bound(self, P: Matrix, error: float) -> float:
        """An upper bound of F, in real arithmetic, at all predictions within ``error`` of P."""
        b = self.offset(P)
        rows = self.weights[:, 0] * self.loss.value(P + b, self.targets)
        if error == 0 and not any(bool(part.any()) for part in (P, b, self.targets, rows)):
            return 0.0  # nothing but zeros went in, and on those no operation rounds
        sizes = length(P) + length(b) * len(P) ** 0.5 + length(self.loss.compared_with(self.targets))
        moved = rounded_up(error + gamma(4) * sizes)
        value = largest_sum(rows) * (1 + gamma(P.shape[1] + 16)) + self._underflow
        steepness = self.loss.steepness(P + b, self.targets, self.weights, moved)
        return rounded_up(value + steepness * moved)

    @property
    def _underflow(self) -> float:
        """What losses and conjugates can lose below the smallest number, before it is multiplied with weights."""
        return 8 * self.targets.numel() * TINY * (1 + float(self.weights.max())) if len(self.targets) else 0.0

    def dual_lower_bound(self, V: Matrix) -> tuple[float, float]:
        """A lower bound of -F*(W), in real arithmetic, for some W of the domain, and a bound of |W - V|_F.

        V must be in the interior of the domain up to rounding, as into_domain(V) times a number just below one is.
        """
        repair = self.loss.repair(V, self.targets, self.weights, self.intercept)
        terms = largest_sum(self.weights[:, 0] * self.loss.terms(V / self.weights, self.targets))
        error = (gamma(V.shape[1] + 16) + repair.shrinks) * terms + repair.cost + self._underflow
        value = largest_sum(self.conjugate_rows(V)) + error
        return -rounded_up(value) if math.isfinite(value) else -math.inf, repair.distance

    def grad(self, P: Matrix) -> Matrix:
        """grad F(P). A loss with kinks is replaced by its Moreau envelope of tiny width, so that samples at a kink get
        the subgradient that balances the intercept instead of an arbitrary end of the subdifferential."""
        if self.loss.smooth:
            return self.weights * self.loss.grad(P + self.offset(P), self.targets)
        slope = _envelope_slope(self.loss, width=1e-7 * (1 + float(P.abs().max())))
        b = _root_per_output(self, P, slope) if self.intercept else P.new_zeros(P.shape[1])
        return self.weights * slope(P + b, self.targets)

    def conjugate(self, V: Matrix) -> float:
        """F*(V), +inf off the domain. With an intercept V must be balanced, 1^T V = 0 (up to rounding)."""
        unbalanced = V.sum(0).abs() > 4096 * torch.finfo(V.dtype).eps * V.abs().sum()
        if self.intercept and bool(unbalanced.any()):
            return float("inf")
        return float(self.conjugate_rows(V).sum())

    def conjugate_rows(self, V: Matrix) -> Float[Tensor, " n"]:
        """The summands w_i l*(v_i / w_i) of F*(V)."""
        return self.weights[:, 0] * self.loss.conjugate(V / self.weights, self.targets)

    def into_domain(self, V: Matrix) -> Matrix:
        """A point of dom F* near V: clipped sample by sample, then balanced if there is an intercept."""
        V = self.weights * self.loss.into_domain(V / self.weights, self.targets)
        return self.loss.balance(V, self.targets, self.weights) if self.intercept else V

    def prox(self, P: Matrix, step: float, start: Matrix | None = None) -> Matrix:
        """argmin_q step * sum_i w_i l(q_i, y_i) + 1/2 |q - p|^2, without the intercept."""
        return self.loss.prox(P, self.targets, step * self.weights, start)

    def offset(self, P: Matrix) -> Float[Tensor, " c"]:
        """The best intercept for the predictions P, in the units of the centred targets; zeros where there is none."""
        if not self.intercept:
            return P.new_zeros(P.shape[1])
        formula = self.loss.best_offset(P, self.targets, self.weights)
        if formula is not None:
            return formula
        return _root_per_output(self, P, self.loss.grad) if self.loss.separable else _newton_intercept(self, P)


Slope = Callable[[Tensor, Tensor], Tensor]


def _envelope_slope(loss: Loss, width: float) -> Slope:
    """The gradient of the Moreau envelope of a loss, (p - prox(p)) / width."""
    return lambda P, Y: (P - loss.prox(P, Y, width)) / width


def _root_per_output(fit: Datafit, P: Tensor, slope_of: Slope) -> Tensor:
    """The b where the summed slope vanishes, all outputs in parallel; the slope is monotone in b."""

    def slope(b: Tensor) -> tuple[Tensor, Tensor]:
        curvature = fit.loss.curvature(P + b, fit.targets)
        return (fit.weights * slope_of(P + b, fit.targets)).sum(0), (fit.weights * curvature).sum(0)

    width = 1 + (fit.targets - P).abs().amax(0)
    low, high = -width, width
    for _ in range(40):  # logistic loss may have its optimum outside the range of the residuals
        outside_low, outside_high = slope(low)[0] > 0, slope(high)[0] < 0
        if not bool((outside_low | outside_high).any()):
            break
        low, high = torch.where(outside_low, 2 * low, low), torch.where(outside_high, 2 * high, high)
    return increasing_root(slope, low, high, start=torch.zeros_like(width))


def _newton_intercept(fit: Datafit, P: Tensor, steps: int = 300) -> Tensor:
    """Levenberg-Marquardt in the c intercepts of a loss that couples the outputs (softmax)."""
    b, damping, flat = P.new_zeros(P.shape[1]), 1e-3, 4 * torch.finfo(P.dtype).eps * float(fit.weights.sum())
    current, rejected = fit.value_at(P, b), False
    for _ in range(steps):
        slope = (fit.weights * fit.loss.grad(P + b, fit.targets)).sum(0)
        if float(slope.abs().max()) <= flat:
            break
        values, vectors = torch.linalg.eigh(fit.loss.summed_hessian(P + b, fit.targets, fit.weights))
        direction = vectors @ ((vectors.T @ slope) / (values.clamp(min=0) + damping))
        direction = direction - direction.mean() * fit.loss.shift_invariant
        decrease, value = float(slope @ direction), fit.value_at(P, b - direction)
        small = decrease <= 4 * torch.finfo(P.dtype).eps * abs(current)
        if small and (damping <= 1e-3 or rejected):  # values can tell no more
            return b - direction if value <= current else b
        rejected = not value <= current - 1e-4 * decrease
        if not rejected:
            b, current, damping = b - direction, value, max(damping / 10, 1e-12)
        else:
            damping *= 10
        if damping > 1e15:
            break
    return b
