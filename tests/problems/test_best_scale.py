"""How far a dual candidate is scaled: the best of a concave function, which nothing else is known about."""

import math
from collections.abc import Callable
from itertools import product

import pytest

from bidual.problems.certificate import _best_scale, _golden_section, _vertex

Value = Callable[[float], float]


def parabola(top: float) -> Value:
    return lambda s: 1 - (s - top) ** 2


def kink(top: float) -> Value:
    return lambda s: -abs(s - top) * (3 if s < top else 1)


def entropy(top: float) -> Value:
    """Finite on [0, 2 top], steep at both ends, like the conjugates of logistic losses."""

    def value(s: float) -> float:
        q = s / (2 * top)
        return -sum(x * math.log(x) for x in (q, 1 - q) if x > 0) if 0 <= q <= 1 else -math.inf

    return value


def counted(value: Value) -> tuple[Value, list[float]]:
    asked: list[float] = []

    def ask(s: float) -> float:
        asked.append(s)
        return value(s)

    return ask, asked


SHAPES = [parabola, kink, entropy]
TOPS = [0.03, 0.3, 0.77, 1.0, 1.6]


@pytest.mark.parametrize("largest", [1e-3, 0.2, 0.5, 1.0, 1.5, 40.0, math.inf])
@pytest.mark.parametrize(("shape", "top"), list(product(SHAPES, TOPS)))
def test_it_is_as_good_as_any_point_allowed(shape: Callable[[float], Value], top: float, largest: float) -> None:
    value = shape(top)
    best = _best_scale(value, largest)
    assert 0 <= best <= largest
    assert value(best) >= value(min(top, largest)) - 1e-9


@pytest.mark.parametrize("top", TOPS)
def test_the_vertex_of_a_parabola_is_found_at_once(top: float) -> None:
    for high in (0.5, 1.0, 2.0):
        assert _vertex(parabola(top), high) == pytest.approx(min(top, high), rel=1e-12)
    value, asked = counted(parabola(top))
    assert _best_scale(value, 2.0) == pytest.approx(top, rel=1e-12)
    assert len(asked) <= 6


@pytest.mark.parametrize("value", [lambda s: 0.0, lambda s: s, lambda s: s * s, lambda s: -math.inf if s else 0.0])
def test_without_a_vertex_the_end_is_the_guess(value: Value) -> None:
    assert _vertex(value, 2.0) == 2.0


def test_a_falling_function_is_best_at_zero() -> None:
    assert _vertex(lambda s: -s - s * s, 2.0) == 0.0
    assert _best_scale(lambda s: -s, 1.0) == 0.0
    assert _best_scale(lambda s: -math.inf if s else 0.0, math.inf) == 0.0


def test_still_rising_at_the_end_costs_two_questions() -> None:
    value, asked = counted(parabola(0.9))
    assert _best_scale(value, 0.8) == 0.8
    assert len(asked) == 2


def test_candidates_are_at_most_doubled_unless_the_end_is_better() -> None:
    assert _best_scale(parabola(1.5), 1.2) == pytest.approx(1.2)
    assert _best_scale(parabola(30.0), 40.0) == 2.0
    assert _golden_section(kink(30.0), 40.0, 2.0) == 40.0


@pytest.mark.parametrize("top", TOPS)
def test_the_search_ends_when_the_interval_is_small(top: float) -> None:
    value, asked = counted(kink(top))
    best = _golden_section(value, math.inf, 2.0)
    assert best == pytest.approx(top, abs=1e-8)
    assert 40 <= len(asked) <= 62
    assert all(0 <= s <= 2 for s in asked)


def test_the_search_keeps_its_steps() -> None:
    value, asked = counted(kink(0.77))
    rough = _golden_section(value, 2.0, 2.0, steps=3)
    assert len(asked) == 2 + 3 + 5  # two to begin with, one a step, and every option once
    assert abs(rough - 0.77) <= 2 * 0.618034**3


def test_one_and_the_end_are_options_of_the_search() -> None:
    def spike(s: float) -> float:
        return 1.0 if s == 1.0 else -s

    def at_the_end(s: float) -> float:
        return 1.0 if s == 1.9 else -s

    assert _golden_section(spike, 2.0, 2.0) == 1.0
    assert _golden_section(spike, 0.5, 0.5) == 0.0
    assert _golden_section(at_the_end, 1.9, 1.9) == 1.9
