"""Limited-memory BFGS for variables that come and go, and a line search on slopes."""

from collections.abc import Callable
from math import isfinite

import torch
from jaxtyping import Float
from torch import Tensor

Rows = Float[Tensor, "r k"]
_FLAT = 0.3  # a step is long enough where the slope has fallen to this share
_CURVED = 1e-8  # a pair whose curvature is less, relative to its lengths, is rounding


class Memory:
    """The last steps s and changes of the gradient y, each a matrix with one row per neuron."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.pairs: list[tuple[Rows, Rows]] = []

    def reset(self) -> None:
        self.pairs = []

    def remember(self, step: Rows, change: Rows) -> None:
        self.pairs = _curved([*self.pairs, (step, change)])[-self.size :]

    def keep(self, rows: Tensor) -> None:
        """Forget the other neurons; pairs that then have no curvature go too."""
        self.pairs = _curved([(step[rows], change[rows]) for step, change in self.pairs])

    def grow(self, count: int) -> None:
        """New neurons behind the others, that have not moved yet."""
        self.pairs = [(_longer(step, count), _longer(change, count)) for step, change in self.pairs]

    def divide(self, gradient: Rows, divide_first: Callable[[Rows], Rows]) -> Rows:
        """B^-1 gradient by the two loops (Nocedal and Wright, Algorithm 7.4), from an initial inverse up to its scale.

        The scale is s^T y / y^T B_0^-1 y of the last pair.
        """
        q, weights = gradient.clone(), []
        for step, change in reversed(self.pairs):
            weights.append(_dot(step, q) / _dot(step, change))
            q.sub_(change, alpha=weights[-1])
        q = self._scale(divide_first) * divide_first(q)
        for step, change in self.pairs:
            q.add_(step, alpha=weights.pop() - _dot(change, q) / _dot(step, change))
        return q

    def _scale(self, divide_first: Callable[[Rows], Rows]) -> float:
        if not self.pairs:
            return 1.0
        step, change = self.pairs[-1]
        return _dot(step, change) / _dot(change, divide_first(change))


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


def _dot(first: Rows, second: Rows) -> float:
    return float(first.flatten() @ second.flatten())


def _longer(rows: Rows, count: int) -> Float[Tensor, "q k"]:
    return torch.nn.functional.pad(rows, (0, 0, 0, count))


def _curved(pairs: list[tuple[Rows, Rows]]) -> list[tuple[Rows, Rows]]:
    return [(s, y) for s, y in pairs if _dot(s, y) > _CURVED * (_dot(s, s) * _dot(y, y)) ** 0.5]
