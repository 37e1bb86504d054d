"""L-BFGS for many small problems at once: one row each, with a memory and a step length of its own."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Points = Float[Tensor, "k p"]
Numbers = Float[Tensor, " k"]
RowSlope = Callable[[Points], tuple[Numbers, Points]]  # values and gradients, row by row
_TRIES = 12  # of a step, each of them shorter
_PATIENCE = 10  # steps that are judged together
_FLAT = 1e-12  # a pair with s^T y below this share of |s| |y| is rounding
_TINY = 1e-300


class _Pairs:
    """Steps s with changes y of the gradient and 1 / s^T y, zero for rows in which a pair does not count."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.kept: list[tuple[Points, Points, Numbers]] = []
        self.scale: Numbers | None = None  # of the initial inverse, s^T y / y^T y of the last pair

    def remember(self, step: Points, change: Points) -> None:
        curvature = _dots(step, change)
        bent = curvature > _FLAT * (_dots(step, step) * _dots(change, change)).sqrt()
        inverse = torch.where(bent, 1 / curvature.where(bent, torch.ones_like(curvature)), 0.0)
        scale = torch.where(bent, curvature / _dots(change, change).clamp(min=_TINY), 0.0)
        self.scale = scale if self.scale is None else scale.where(bent, self.scale)
        self.kept = [*self.kept, (step, change, inverse)][-self.size :]

    def forget(self, rows: Bool[Tensor, " k"]) -> None:
        self.kept = [(step, change, inverse.where(~rows, 0.0)) for step, change, inverse in self.kept]
        self.scale = None if self.scale is None else self.scale.where(~rows, 0.0)

    def divide(self, gradient: Points) -> Points:
        """B^-1 gradient by the two loops (Nocedal and Wright, Algorithm 7.4), a tenth of the unit step at first."""
        q, weights = gradient.clone(), []
        first = 0.1 / _dots(gradient, gradient).sqrt().clamp(min=_TINY)
        scale = first if self.scale is None else self.scale.where(self.scale > 0, first)
        for step, change, inverse in reversed(self.kept):
            weights.append(inverse * _dots(step, q))
            q.addcmul_(change, weights[-1][:, None], value=-1)
        q.mul_(scale[:, None])
        for step, change, inverse in self.kept:
            q.addcmul_(step, (weights.pop() - inverse * _dots(change, q))[:, None])
        return q


def minimise_rows(
    slope: RowSlope,
    start: Points,
    steps: int,
    tol: float = 1e-6,
    memory: int = 10,
    go_on: Callable[[], bool] = lambda: True,
) -> Points:
    """Points of lower value, after at most ``steps`` steps; a row rests once ten of them gain less than ``tol`` each.

    As in :func:`bidual.numerics.lbfgs.minimise`, values may be infinite outside an open set.
    """
    point, (value, gradient) = start, slope(start)
    known, before, moving = _Pairs(memory), value, torch.ones_like(value, dtype=torch.bool)
    for count in range(1, steps + 1):
        direction = -known.divide(gradient)
        uphill = ~(_dots(direction, gradient) < 0)
        if bool(uphill.any()):
            known.forget(uphill)
            direction = -known.divide(gradient)
        found, value, new = _backtracked(slope, (point, value, gradient), direction, moving)
        known.remember(found - point, new - gradient)
        point, gradient = found, new
        if count % _PATIENCE == 0:
            moving = moving & (before - value > _PATIENCE * tol * value.abs())
            before = value
        if not bool(moving.any()) or not go_on():
            break
    return point


def _backtracked(
    slope: RowSlope, at: tuple[Points, Numbers, Points], direction: Points, moving: Bool[Tensor, " k"]
) -> tuple[Points, Numbers, Points]:
    """For every moving row the first step that decreases its value enough (Armijo); a row without one stays."""
    point, value, gradient = at
    decrease, length = _dots(gradient, direction), torch.ones_like(value)
    best, lowest, there = point, value, gradient
    waiting = moving & (decrease < 0)
    for _ in range(_TRIES):
        trial = point + (length * waiting)[:, None] * direction
        reached, slopes = slope(trial)
        good = waiting & (reached <= value + 1e-4 * length * decrease)
        best, there = best.where(~good[:, None], trial), there.where(~good[:, None], slopes)
        lowest = lowest.where(~good, reached)
        waiting &= ~good
        if not bool(waiting.any()):
            break
        bend = reached - value - length * decrease
        shorter = (-0.5 * length * decrease / bend).nan_to_num(0.5)
        length = length * shorter.clamp(0.1, 0.5)
    return best, lowest, there


def _dots(first: Points, second: Points) -> Numbers:
    return torch.linalg.vecdot(first, second)
