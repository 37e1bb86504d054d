"""A data term whose intercept is under weight decay too: one sample more, on which all neurons vanish."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bidual.losses.base import ConeRows, Epigraph, Loss, Repair, imbalances
from bidual.losses.datafit import Datafit
from bidual.losses.residuals import Squared
from bidual.numerics.rounding import length, rounded_up
from bidual.types import Matrix

_SQUARED = Squared()


def with_decayed_bias(datafit: Datafit, decay: float) -> Datafit:
    r"""min_b sum_i w_i l(p_i + b, y_i) + decay / 2 |b|^2, for predictions that end with a row of zeros.

    That row has target zero, the squared loss and the weight ``decay``: its loss is decay / 2 |0 + b|^2. The intercept
    itself is free, as solvers and certificates know it. Targets that are centred have their shift as a bias already.
    """
    Y, shift = datafit.targets, datafit.shift
    assert datafit.intercept
    assert shift is not None
    loss = datafit.loss if datafit.loss.half_square else DecayedBias(datafit.loss, len(Y))
    weight = torch.cat([datafit.weights[:, 0], Y.new_full((1,), decay)])
    return Datafit(loss, torch.cat([Y, -shift[None]]), weight, True, shift)


@dataclass(frozen=True)
class DecayedBias(Loss):
    """``loss`` on the first ``n`` rows, half of the square on a row after them: see :func:`with_decayed_bias`."""

    loss: Loss
    n: int

    @property
    def name(self) -> str:  # type: ignore[override]
        """That of the loss of the samples: nobody asks for this one by name."""
        return self.loss.name

    @property
    def smoothness(self) -> float | None:  # type: ignore[override]
        own = self.loss.smoothness
        return None if own is None else max(own, 1.0)

    @property
    def smooth(self) -> bool:
        return self.loss.smooth

    @property
    def separable(self) -> bool:  # type: ignore[override]
        return self.loss.separable

    @property
    def translates(self) -> bool:  # type: ignore[override]
        return self.loss.translates

    def steepness(self, P: Matrix, Y: Matrix, weight: Tensor, reach: float) -> float:
        data, bias = ((P[part], Y[part], weight[part]) for part in (slice(self.n), slice(self.n, None)))
        of_bias = _SQUARED.steepness(*bias, reach) if len(bias[0]) else 0.0
        return rounded_up(self.loss.steepness(*data, reach) + of_bias)

    def local_smoothness(self, P: Matrix, reach: float) -> float | None:
        own = self.loss.local_smoothness(P[: self.n], reach)
        return None if own is None else max(own, 1.0)

    def compared_with(self, Y: Matrix) -> Matrix:
        return torch.cat([self.loss.compared_with(Y[: self.n]), Y[self.n :]])

    def check_targets(self, Y: Matrix) -> None:
        self.loss.check_targets(Y[: self.n])

    def hessian(self, P: Matrix, Y: Matrix) -> Tensor:
        n = self.n
        return torch.cat([self.loss.hessian(P[:n], Y[:n]), _SQUARED.hessian(P[n:], Y[n:])])

    def summed_hessian(self, P: Matrix, Y: Matrix, weight: Tensor) -> Tensor:
        n, bias = self.n, torch.eye(P.shape[1]).to(P) * weight[self.n :].sum()
        return self.loss.summed_hessian(P[:n], Y[:n], weight[:n]) + bias

    def balance(self, V: Matrix, Y: Matrix, weight: Tensor) -> Matrix:
        """The last row may be anything: it takes what the others lack."""
        data = V[: self.n]
        return torch.cat([data, -data.sum(0, keepdim=True)]) if len(V) > self.n else data

    def repair(self, V: Matrix, Y: Matrix, weight: Tensor, balanced: bool) -> Repair:
        r"""The samples' rows as their loss repairs them without an intercept; the last row takes the rest, delta.

        All columns together are off by at most |1^T V| and sqrt(n) times what the samples' rows move. The conjugate of
        the last row, with weight w, grows by (|v| |delta| + |delta|^2 / 2) / w + |delta| |y|.
        """
        n = self.n
        own = self.loss.repair(V[:n], Y[:n], weight[:n], False)
        if not balanced:
            return own
        delta = rounded_up(math.hypot(*imbalances(V)) * 1.001 + 1.001 * math.sqrt(n) * own.distance)
        size, w = length(V[n:]), float(weight[n:].min())
        cost = ((size + 0.5 * delta) / w + length(Y[n:])) * delta * 1.001
        return Repair(rounded_up(own.distance + delta), own.shrinks, rounded_up(own.cost + cost))

    def epigraph(self, Y: Matrix) -> Epigraph:
        """Auxiliaries r >= |f| more per output, half of whose squares are paid: zero for the samples."""
        return _with_squared_row(self.loss.epigraph(Y[: self.n]), Y, self.n)

    def _value(self, P: Tensor, Y: Tensor) -> Tensor:
        n = self.n
        return torch.cat([self.loss._value(P[:n], Y[:n]), _SQUARED._value(P[n:], Y[n:])])

    def _grad(self, P: Tensor, Y: Tensor) -> Tensor:
        n = self.n
        return torch.cat([self.loss._grad(P[:n], Y[:n]), _SQUARED._grad(P[n:], Y[n:])])

    def _conjugate(self, V: Tensor, Y: Tensor) -> Tensor:
        n = self.n
        return torch.cat([self.loss._conjugate(V[:n], Y[:n]), _SQUARED._conjugate(V[n:], Y[n:])])

    def _terms(self, V: Tensor, Y: Tensor) -> Tensor:
        n = self.n
        return torch.cat([self.loss._terms(V[:n], Y[:n]), _SQUARED._terms(V[n:], Y[n:])])

    def _prox(self, P: Tensor, Y: Tensor, step: Tensor, start: Tensor) -> Tensor:
        n, steps = self.n, step.expand(len(P), 1) if step.ndim == 0 else step
        data = self.loss._prox(P[:n], Y[:n], steps[:n], start[:n])
        return torch.cat([data, _SQUARED._prox(P[n:], Y[n:], steps[n:], start[n:])])

    def _into_domain(self, V: Tensor, Y: Tensor) -> Tensor:
        return torch.cat([self.loss._into_domain(V[: self.n], Y[: self.n]), V[self.n :]])

    def _curvature(self, P: Tensor, Y: Tensor) -> Tensor:
        n = self.n
        return torch.cat([self.loss._curvature(P[:n], Y[:n]), torch.ones_like(P[n:])])


def _with_squared_row(own: Epigraph, Y: Matrix, n: int) -> Epigraph:
    """The epigraph of a loss on n rows, and of 1/2 |f - y|^2 on those after them."""
    if own.quadratic_prediction:
        raise ValueError("a loss whose conic form is quadratic in predictions has none with a decayed bias.")
    rest, c, k = max(len(Y) - n, 0), Y.shape[1], len(own.quadratic_auxiliary)
    eye = torch.eye(c).to(Y).expand(len(Y), c, c)
    here = (torch.arange(len(Y), device=Y.device) >= n).to(Y)[:, None, None]
    none = Y.new_zeros(len(Y), c, k)
    rows = [_idle_after(each, rest, c) for each in own.constraints]
    for sign in (-1.0, 1.0):  # r + sign (f - y) >= 0
        rows.append(ConeRows("nonnegative", sign * eye * here, torch.cat([none, eye], 2), -sign * Y * here[:, 0]))
    quadratic = torch.cat([own.quadratic_auxiliary, Y.new_ones(c)])
    linear = torch.cat([own.linear_auxiliary, Y.new_zeros(len(Y) - rest, c)], 1)
    return Epigraph(
        0.0,
        torch.cat([own.linear_prediction, Y.new_zeros(rest, c)]),
        quadratic,
        torch.cat([linear, Y.new_zeros(rest, k + c)]),
        tuple(rows),
    )


def _idle_after(rows: ConeRows, rest: int, c: int) -> ConeRows:
    """The same constraints of n samples, with c auxiliaries more; always met by ``rest`` rows after them."""
    n, r, k = rows.on_auxiliary.shape
    A = torch.cat([rows.on_auxiliary, rows.offset.new_zeros(n, r, c)], 2)
    point = rows.offset.new_tensor([-1.0, 1.0, 1.0] if rows.cone == "exponential" else [1.0] * r)
    return ConeRows(
        rows.cone,
        torch.cat([rows.on_prediction, rows.offset.new_zeros(rest, r, c)]),
        torch.cat([A, rows.offset.new_zeros(rest, r, k + c)]),
        torch.cat([rows.offset, point.expand(rest, r)]),
    )
