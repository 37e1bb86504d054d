"""Limited-memory BFGS: the two-loop recursion, for variables that come and go, with two ways to choose a step.

scipy's L-BFGS-B serves where variables stay and the function is finite everywhere.
"""

from collections.abc import Callable
from functools import partial
from math import inf, isfinite
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

Rows = Float[Tensor, "r k"]
Objective = Callable[[Tensor], Tensor]  # a number, infinity outside the domain
Slope = Callable[[Tensor], tuple[float, Tensor]]  # value and gradient at a point
Step = tuple[Tensor, float, Tensor]  # a point with both
_FLAT = 0.3  # a step is long enough where the slope has fallen to this share


class Pair(NamedTuple):
    """A step s, the change of the gradient y along it, and s^T y."""

    step: Tensor
    change: Tensor
    curvature: float


class Memory:
    """The last steps and changes of the gradient.

    Args:
        size: how many pairs are kept.
        flat: a pair with s^T y below this share of |s| |y| is rounding, and is not kept.
        dtype: in which pairs are kept, by default their own. Reading them is most of the time of a long vector.
    """

    def __init__(self, size: int, flat: float = 1e-8, dtype: torch.dtype | None = None) -> None:
        self.size, self.flat, self.dtype = size, flat, dtype
        self.pairs: list[Pair] = []

    def reset(self) -> None:
        self.pairs = []

    def remember(self, step: Tensor, change: Tensor) -> None:
        self.pairs = [*self.pairs, *self._curved([(step, change)])][-self.size :]

    def keep(self, rows: Tensor) -> None:
        """Forget the other rows; pairs that then have no curvature go too."""
        self.pairs = self._curved([(pair.step[rows], pair.change[rows]) for pair in self.pairs])

    def grow(self, count: int) -> None:
        """New rows behind the others, that have not moved yet."""
        self.pairs = [Pair(_longer(s, count), _longer(y, count), curvature) for s, y, curvature in self.pairs]

    def divide(self, gradient: Tensor, divide_first: Callable[[Tensor], Tensor] = lambda x: x) -> Tensor:
        """B^-1 gradient by the two loops (Nocedal and Wright, Algorithm 7.4), from an initial inverse up to its scale.

        The scale is s^T y / y^T B_0^-1 y of the last pair.
        """
        q, weights = gradient.to(self.dtype or gradient.dtype, copy=True), []
        for step, change, curvature in reversed(self.pairs):
            weights.append(_dot(step, q) / curvature)
            q.sub_(change, alpha=weights[-1])
        q = self._scale(divide_first) * divide_first(q)
        for step, change, curvature in self.pairs:
            q.add_(step, alpha=weights.pop() - _dot(change, q) / curvature)
        return q.to(gradient.dtype)

    def _scale(self, divide_first: Callable[[Tensor], Tensor]) -> float:
        if not self.pairs:
            return 1.0
        _, change, curvature = self.pairs[-1]
        return curvature / _dot(change, divide_first(change))

    def _curved(self, pairs: list[tuple[Tensor, Tensor]]) -> list[Pair]:
        found = [Pair(s, y, _dot(s, y)) for s, y in pairs]
        bent = [pair for pair in found if pair.curvature > self.flat * float(pair.step.norm() * pair.change.norm())]
        if self.dtype is None:
            return bent
        rounded = [Pair(s.to(self.dtype), y.to(self.dtype), curvature) for s, y, curvature in bent]
        return [pair for pair in rounded if _dot(pair.change, pair.change) > 0]


def minimise(
    slope: Slope,
    start: Float[Tensor, " p"],
    steps: int,
    tol: float = 1e-6,
    memory: int = 10,
    patience: int = 10,
    go_on: Callable[[], bool] = lambda: True,
    pairs: torch.dtype | None = None,
) -> Float[Tensor, " p"]:
    """A point of lower value than ``start``, after at most ``steps`` steps, when ``patience`` of them gain less than
    ``tol`` each, or when ``go_on`` says no.

    L-BFGS with backtracking, for a smooth function that is infinite outside an open set, where scipy's line search
    fails. ``slope`` gives value and gradient; ``pairs`` is the type in which its memory is kept. The first step is a
    tenth long.
    """
    point, (value, gradient) = start, slope(start)
    known, values = Memory(memory, flat=1e-12, dtype=pairs), [value]
    for _ in range(steps):
        direction = -known.divide(gradient)
        if not known.pairs or not float(gradient @ direction) < 0:
            known.reset()
            direction = -gradient / (10 * torch.linalg.vector_norm(gradient).clamp(min=1e-300))
        found = _backtracked(slope, point, value, float(gradient @ direction), direction)
        if found is None:
            break
        trial, value, new = found
        known.remember(trial - point, new - gradient)
        point, gradient = trial, new
        values.append(value)
        gain = values[-patience - 1] - value if len(values) > patience else inf
        if gain <= patience * tol * abs(value) or not go_on():
            break
    return point


def descend(
    objective: Objective, start: Float[Tensor, " p"], steps: int, tol: float = 1e-6, memory: int = 20
) -> Float[Tensor, " p"]:
    """:func:`minimise` for a function whose gradient autograd finds."""
    return minimise(partial(_slope, objective), start, steps, tol, memory, patience=1)


def _slope(objective: Objective, point: Tensor) -> tuple[float, Tensor]:
    point = point.detach().requires_grad_(True)
    value = objective(point)
    if not isfinite(float(value.detach())):
        return inf, torch.zeros_like(point)
    (gradient,) = torch.autograd.grad(value, point)
    return float(value.detach()), torch.nan_to_num(gradient)


def _backtracked(slope: Slope, point: Tensor, value: float, decrease: float, direction: Tensor) -> Step | None:
    """The first step that decreases the value enough (Armijo), with value and gradient there; None if there is none.

    A step that fails is shortened to where a parabola is lowest, by a factor of 2 to 10.
    """
    length = 1.0
    while length > 1e-10:
        trial = point + length * direction
        new, gradient = slope(trial)
        if new <= value + 1e-4 * length * decrease:
            return trial, new, gradient
        bend = new - value - length * decrease
        shorter = -0.5 * length * decrease / bend if isfinite(new) and bend > 0 else 0.5
        length *= min(max(shorter, 0.1), 0.5)
    return None


def step_length(slope: Callable[[float], float], at_zero: float, tries: int = 40) -> float:
    """A t > 0 where the slope of a function that falls at 0 has flattened, by secants; 0 if there is none.

    Slopes keep their meaning where differences of values are below rounding.
    """
    low, high = (0.0, at_zero), None
    t = 1.0
    for _ in range(tries):
        here = slope(t)
        if abs(here) <= _FLAT * abs(at_zero):
            return t
        low, high = ((t, here), high) if here < 0 else (low, (t, here))
        t = _longer_step(low, at_zero) if high is None else _between(low, high)
    return low[0]


def _longer_step(low: tuple[float, float], at_zero: float) -> float:
    t, here = low
    guess = t * at_zero / (at_zero - here) if here > at_zero else 4 * t
    return min(max(guess, 1.5 * t), 4 * t)


def _between(low: tuple[float, float], high: tuple[float, float]) -> float:
    """The root of the secant, not too close to either end."""
    share = -low[1] / (high[1] - low[1]) if isfinite(high[1]) else 0.5
    return low[0] + min(max(share, 0.1), 0.9) * (high[0] - low[0])


def _dot(first: Tensor, second: Tensor) -> float:
    return float(first.flatten() @ second.flatten())


def _longer(rows: Rows, count: int) -> Float[Tensor, "q k"]:
    return torch.nn.functional.pad(rows, (0, 0, 0, count))
