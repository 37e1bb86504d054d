"""L-BFGS with backtracking, for a smooth function that is infinite outside an open set."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

Point = Float[Tensor, " p"]
Objective = Callable[[Tensor], Tensor]  # a number, infinity outside the domain


def descend(objective: Objective, start: Point, steps: int, tol: float = 1e-6, memory: int = 20) -> Point:
    """A point of lower value than ``start``, after at most ``steps`` steps or when one gains less than ``tol``."""
    point, value, slope = start, *_slope(objective, start)
    pairs: list[tuple[Tensor, Tensor]] = []
    for _ in range(steps):
        direction = -_inverse_hessian(pairs, slope)
        if not float(slope @ direction) < 0:
            pairs, direction = [], -slope / (10 * torch.linalg.vector_norm(slope).clamp(min=1e-300))
        trial = _backtrack(objective, point, value, float(slope @ direction), direction)
        if trial is None:
            break
        new_value, new_slope = _slope(objective, trial)
        step, turn = trial - point, new_slope - slope
        if float(step @ turn) > 1e-12 * float(step.norm() * turn.norm()):
            pairs = [*pairs[1 - memory :], (step, turn)]
        gain, point, value, slope = value - new_value, trial, new_value, new_slope
        if gain <= tol * abs(value):
            break
    return point


def _slope(objective: Objective, point: Tensor) -> tuple[float, Tensor]:
    point = point.detach().requires_grad_(True)
    value = objective(point)
    (slope,) = torch.autograd.grad(value, point)
    return float(value.detach()), torch.nan_to_num(slope)


def _backtrack(objective: Objective, point: Tensor, value: float, decrease: float, direction: Tensor) -> Tensor | None:
    """The first halving that decreases the value enough (Armijo), None if there is none."""
    length = 1.0
    while length > 1e-8:
        trial = point + length * direction
        with torch.no_grad():
            if float(objective(trial)) <= value + 1e-4 * length * decrease:
                return trial
        length *= 0.5
    return None


def _inverse_hessian(pairs: list[tuple[Tensor, Tensor]], slope: Tensor) -> Tensor:
    """The two-loop recursion; a tenth of the unit slope when nothing is known yet."""
    if not pairs:
        return slope / (10 * torch.linalg.vector_norm(slope).clamp(min=1e-300))
    result, weights = slope.clone(), []
    for step, turn in reversed(pairs):
        weights.append((step @ result) / (step @ turn))
        result = result - weights[-1] * turn
    step, turn = pairs[-1]
    result = result * (step @ turn) / (turn @ turn)
    for (step, turn), weight in zip(pairs, reversed(weights), strict=True):
        result = result + step * (weight - (turn @ result) / (step @ turn))
    return result
