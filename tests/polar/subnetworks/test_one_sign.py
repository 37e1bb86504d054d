"""Parts of exact pricing against enumeration: projections onto cones, choices of patterns, and the best theta."""

import math
from itertools import combinations_with_replacement, product

import numpy as np
import pytest

from bidual.polar.subnetworks import one_sign
from bidual.polar.subnetworks.first_layer import FirstLayer
from bidual.polar.subnetworks.one_sign import Pricing, _slots, _unit, multisets
from bidual.polar.subnetworks.pricing import exact_pricing_cost


def samples(n: int = 4, r: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, r))
    v = rng.standard_normal(n)
    v[0], v[1] = abs(v[0]), -abs(v[1])
    return X / np.linalg.norm(X, axis=1, keepdims=True), v


def pricing(n: int = 4, r: int = 2, width: int = 2, seed: int = 0, above: float = 0.0, steps: int = 100) -> Pricing:
    X, v = samples(n, r, seed)
    return Pricing(FirstLayer.of(X), v, width, above, steps)


def circle(count: int = 20_000) -> np.ndarray:
    angles = np.linspace(0, 2 * np.pi, count)
    return np.stack([np.cos(angles), np.sin(angles)], 1)


def filled(run: Pricing, phi: np.ndarray, theta: np.ndarray) -> np.ndarray:
    u = np.zeros(len(run.v))
    u[run.positive], u[run.negative] = phi * run.v[run.positive], theta * run.v[run.negative]
    return u


@pytest.mark.parametrize("seed", range(3))
def test_bounds_of_patterns_are_the_steepest_units_of_their_cones(seed: int) -> None:
    run = pricing(seed=seed)
    theta = np.full((1, len(run.negative)), 0.7)
    u = filled(run, np.ones(len(run.positive)), theta[0])
    bounds, W = run._pattern_bounds(filled(run, np.ones(len(run.positive)), 0 * theta[0])[None], theta)
    hidden = circle() @ run.layer.X.T
    for k, (pattern, sign) in enumerate(zip(run.patterns, run.signs, strict=True)):
        inside = ((hidden > 0) == (run.layer.D[pattern] > 0)).all(1)
        steepest = max((sign * np.maximum(hidden[inside], 0) @ u).max(), 0.0)
        assert steepest <= bounds[0, k] <= steepest + 1e-3
        assert np.linalg.norm(W[0, k]) == pytest.approx(bounds[0, k], abs=1e-12)
    assert sorted(zip(run.patterns, run.signs, strict=True)) == sorted(product(range(len(run.layer)), (-1.0, 1.0)))


def steepest(run: Pricing, count: int = 400, seed: int = 5) -> float:
    """v^T h_+ of the best of many networks, of units of every length."""
    rng = np.random.default_rng(seed)
    units = rng.standard_normal((count * 50, run.width, run.layer.X.shape[1]))
    units /= np.sqrt(np.square(units).sum((1, 2)))[:, None, None]
    signs = rng.choice([-1.0, 1.0], (len(units), run.width, 1))
    return float((np.maximum((signs * np.maximum(units @ run.layer.X.T, 0)).sum(1), 0) @ run.v).max())


def thetas(run: Pricing, count: int = 40) -> np.ndarray:
    """Random ones, many of them at an end."""
    return np.clip(np.random.default_rng(9).uniform(-0.5, 1.5, (count, len(run.negative))), 0, 1)


@pytest.mark.parametrize("width", [1, 2, 3])
def test_one_theta_for_all_patterns_is_a_bound_and_nearly_the_best_one(width: int) -> None:
    """The best of many others cannot be much better."""
    for seed in range(3):
        run = pricing(4, width=width, seed=seed)
        U = filled(run, np.ones(len(run.positive)), np.zeros(len(run.negative)))[None]
        bound, theta = run._relaxed(U)
        grid = thetas(run)
        best = math.sqrt(width) * run._pattern_bounds(np.tile(U, (len(grid), 1)), grid)[0].max(1)
        at = math.sqrt(width) * run._pattern_bounds(U, theta)[0].max()
        assert bound[0] == pytest.approx(at, rel=1e-12)
        assert bound[0] <= best.min() * 1.02
        assert theta.min() >= 0
        assert theta.max() <= 1


def test_the_slope_in_theta_is_a_difference_of_the_largest_bound() -> None:
    for seed in range(2):
        run = pricing(4, 3, seed=seed)
        U, m = filled(run, np.ones(len(run.positive)), np.zeros(len(run.negative)))[None], len(run.negative)
        theta, d = np.full((1, m), 0.5), np.random.default_rng(seed).standard_normal((1, m))
        slope = run._slope(*run._pattern_bounds(U, theta), power=20_000)
        ahead, behind = (run._pattern_bounds(U, theta + s * d)[0].max() for s in (1e-6, -1e-6))
        assert (ahead - behind) / 2e-6 == pytest.approx(float((slope * d).sum()), rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("share", [0.0, 0.7, 1.01])
def test_choices_are_all_multisets_above_the_threshold_largest_first(width: int, share: float) -> None:
    b = np.array([0.5, 2.0, 1.0, 0.0, 1.5])
    run = pricing(width=width, above=share * 2.0 * math.sqrt(width))
    found = run._choices(b)
    total = np.square(b[found]).sum(1)
    every = [sum(b[k] ** 2 for k in some) for some in combinations_with_replacement(range(5), width)]
    assert sorted(total) == pytest.approx(sorted(x for x in every if x > run.above**2))
    assert (np.diff(total) <= 0).all()
    assert len({tuple(sorted(some)) for some in found.tolist()}) == len(found)


def test_too_many_choices_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    b = np.ones(4)
    for most, refused in ((10, False), (9, True)):
        monkeypatch.setattr(one_sign, "MOST_CHOICES", most)
        assert (pricing()._choices(b) is None) is refused


def smallest(run: Pricing, u: np.ndarray, choice: np.ndarray) -> float:
    """min of sqrt(sum_j |P_Cj|^2) over many theta."""
    grid = thetas(run)
    b = run._pattern_bounds(np.tile(u, (len(grid), 1)), grid)[0][:, choice]
    return float(np.sqrt(np.square(b).sum(1)).min())


@pytest.mark.parametrize(("r", "steps"), [(2, 100), (2, 1), (3, 100), (3, 1)])
def test_every_choice_gets_its_best_theta(r: int, steps: int) -> None:
    """By gradient steps, or exactly where those do not settle it."""
    run = pricing(4, r, steps=steps, seed=1)
    u = filled(run, np.ones(len(run.positive)), np.zeros(len(run.negative)))
    choices = np.array([[0, 1], [2, 2], [1, len(run.layer)], [0, len(run.layer) + 2]])
    theta = run._solve(u, np.full(len(run.negative), 0.5), choices)
    assert theta.min() >= 0
    assert theta.max() <= 1
    values = [float(run._at(u, one[None], choices[k][None])[0]) for k, one in enumerate(theta)]
    grid = [smallest(run, u, choice) for choice in choices]
    for value, least in zip(values, grid, strict=True):
        assert value <= max(least, run.threshold) * (1 + 1e-6)
    assert run.upper >= max(min(values), 0) - 1e-12
    assert run.best <= run.upper * (1 + 1e-9)


def test_the_exact_theta_is_no_worse_than_any_of_many() -> None:
    for seed, r in product(range(2), (2, 3)):
        run = pricing(4, r, seed=seed)
        u = filled(run, np.ones(len(run.positive)), np.zeros(len(run.negative)))
        for choice in (np.array([0, 1]), np.array([1, len(run.layer)])):
            own = run.layer.D[run.patterns[choice]][:, :, None] * run.layer.X
            maps = run.signs[choice][:, None, None] * own
            down = maps[:, run.negative] * run.v[run.negative, None]
            theta = run._exactly(u, maps, down, run.patterns[choice])
            at = float(run._at(u, theta[None], choice[None])[0])
            assert at <= smallest(run, u, choice) + 1e-9


def test_bounds_of_choices_are_those_of_the_best_of_some_theta() -> None:
    run = pricing(width=2)
    u, choices = filled(run, np.ones(len(run.positive)), np.zeros(len(run.negative))), np.array([[0, 1], [2, 2]])
    thetas = np.stack([np.full(len(run.negative), x) for x in (0.0, 0.4, 1.0)])
    each = [[run._at(u, theta[None], choice[None])[0] for theta in thetas] for choice in choices]
    assert run._at(u, thetas, choices) == pytest.approx(np.min(each, axis=1))
    b = run._pattern_bounds(u[None], thetas[:1])[0][0]
    assert each[0][0] == pytest.approx(math.hypot(b[0], b[1]))
    assert each[1][0] == pytest.approx(math.sqrt(2) * b[2])


@pytest.mark.parametrize(("width", "r"), [(1, 2), (2, 2), (3, 2), (2, 3)])
def test_pricing_brackets_what_many_networks_reach(width: int, r: int) -> None:
    for seed in range(4 - r):
        run = pricing(4, r, width, seed)
        run.price()
        reached = [_value(run, unit) for unit in run.found]
        assert steepest(run) <= run.upper
        assert max(reached) == pytest.approx(run.best, rel=1e-9)
        assert run.best <= run.upper <= run.best * (1 + 1e-6)
        assert all(np.square(unit).sum() <= 1 + 1e-9 for unit in run.found)


def _value(run: Pricing, unit: np.ndarray) -> float:
    on, off = np.maximum(unit @ run.layer.X.T, 0).sum(1)
    return float(np.maximum(on - off, 0) @ run.v)


def test_a_query_without_time_or_with_enough_networks_stays_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    free = pricing(5, width=2)
    free.price()
    late = Pricing(free.layer, free.v, 2, 0.0, 100, deadline=-math.inf)
    late.price()
    assert late.found == []
    assert free.upper <= late.upper < math.inf
    monkeypatch.setattr(one_sign, "_ENOUGH", 1)
    enough = Pricing(free.layer, free.v, 2, 1e-6, 100)
    assert not enough.enough
    enough.price()
    assert enough.upper >= free.best
    assert enough.enough


def test_above_what_can_be_reached_nothing_is_found_and_the_bound_is_at_most_that() -> None:
    free = pricing(4, width=2)
    free.price()
    run = pricing(4, width=2, above=1.5 * free.upper)
    run.price()
    assert run.found == []
    assert free.best <= run.upper <= run.settled


def test_without_positive_rows_or_patterns_there_is_nothing_to_price() -> None:
    run = pricing()
    nothing = Pricing(run.layer, -np.abs(run.v), 2, 0.0, 10)
    nothing.price()
    assert (nothing.best, nothing.upper, nothing.found) == (0.0, 0.0, [])


def test_units_are_scaled_to_length_one_and_lost_ones_are_zero() -> None:
    W = np.random.default_rng(0).standard_normal((3, 2, 2)) * np.array([1.0, 1e-120, 1e-160])[:, None, None]
    size = np.sqrt(np.square(W / np.abs(W).max((1, 2), keepdims=True)).sum((1, 2))) * np.abs(W).max((1, 2))
    found = _unit(W, size)
    assert np.sqrt(np.square(found).sum((1, 2))) == pytest.approx([1.0, 1.0, 0.0])
    assert found[0] == pytest.approx(W[0] / size[0])


def test_units_of_both_signs_have_their_slots() -> None:
    units = np.arange(1.0, 7.0).reshape(3, 2)
    slots = _slots(units, np.array([-1.0, 1.0, -1.0]))
    assert slots[0].tolist() == [[3.0, 4.0], [0.0, 0.0], [0.0, 0.0]]
    assert slots[1].tolist() == [[1.0, 2.0], [5.0, 6.0], [0.0, 0.0]]


@pytest.mark.parametrize(("kinds", "size"), [(1, 1), (4, 1), (4, 3), (3, 5), (0, 2)])
def test_multisets_are_counted(kinds: int, size: int) -> None:
    assert multisets(kinds, size) == len(list(combinations_with_replacement(range(kinds), size)))
    assert multisets(10**200, 3) == 1e300


def test_the_cost_of_pricing_grows_with_the_choices_and_is_refused_where_it_is_too_large() -> None:
    assert exact_pricing_cost(3, 2, 1) == 2.0**2 * 12  # six patterns of three lines with two signs
    assert exact_pricing_cost(4, 2, 1) == 2.0**2 * 16
    assert exact_pricing_cost(4, 2, 2) == 2.0**2 * 16 * 17 / 2
    assert exact_pricing_cost(17, 2, 1) == math.inf
    assert math.isfinite(exact_pricing_cost(16, 2, 1, refuse=True))
    for n, width in ((17, 1), (16, 8)):
        with pytest.raises(ValueError, match=rf"^exact training of n={n} samples of rank 2 with m1={width} enumerates"):
            exact_pricing_cost(n, 2, width, refuse=True)
