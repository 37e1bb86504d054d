"""Cones that cover all directions whatever list of patterns they come from, and what is paid for where it is wrong."""

import math
from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from numpy import ndarray

from bidual.patterns.spike_free import is_spike_free
from bidual.training.copositive import relax
from bidual.training.copositive.cones import PatternCones
from bidual.training.copositive.covering import Covering, _distances, _keys
from bidual.training.copositive.relaxed import Compact
from bidual.training.copositive.splitting import joint_bound
from helpers.copositive_cases import exact, squared, steepest
from helpers.draws import normal


def unit(A: ndarray) -> ndarray:
    return A / np.maximum(np.linalg.norm(A, axis=1, keepdims=True), 1e-300)


def lattice() -> ndarray:
    points = np.stack(np.meshgrid(np.arange(3.0), np.arange(3.0)), -1).reshape(-1, 2)
    return np.concatenate([points, np.ones((9, 1))], 1)


def near(distance: float, r: int = 3, seed: int = 0) -> ndarray:
    rng = np.random.default_rng(seed)
    B = rng.standard_normal((4, r))
    return np.concatenate([B, B[:2] + distance * rng.standard_normal((2, r)), -B[:1], np.zeros((1, r))])


CASES: dict[str, ndarray] = {
    "plane": normal(7, 2).numpy(),
    "space": normal(7, 3).numpy(),
    "lattice": lattice(),
    "bundle": np.array([[math.cos(t), math.sin(t), 0] for t in np.linspace(0, 3, 5)] + [[0, 0, 1], [1, 1, 1]]),
    **{f"near {d:.0e}": near(d, seed=k) for k, d in enumerate([1e-13, 9e-12, 1.1e-11, 2e-11, 6e-11, 1e-9, 1e-6])},
}


def violations(covering: Covering, U: ndarray, x: ndarray) -> tuple[ndarray, ndarray]:
    """For every direction and pattern: whether it is in the cone, and |(x u)_+ - D_p x u|."""
    values, hidden = U @ covering.rows.T, U @ x.T
    sides = np.where(covering.active, 1, -1)
    inside = ((values[:, None] * sides >= 0) | ~covering.needed).all(2)
    wrong = np.maximum(hidden, 0)[:, None] - hidden[:, None] * covering.active
    return inside, np.linalg.norm(wrong, axis=2)


def directions(X: ndarray, count: int = 400) -> ndarray:
    """Random ones, and ones next to where rows vanish."""
    rng, r = np.random.default_rng(1), X.shape[1]
    U = unit(rng.standard_normal((count, r)))
    onto = [u - (u @ x) * x + 10 ** rng.uniform(-17, -8) * rng.standard_normal(r) for u in U[:60] for x in unit(X)[:6]]
    return np.concatenate([U, unit(np.array(onto))])


@pytest.mark.parametrize("case", CASES)
def test_every_direction_is_in_a_cone_whose_pattern_is_right_but_for_what_is_missed(case: str) -> None:
    x = CASES[case]
    covering, U = Covering.of(unit(x)), directions(x)
    inside, wrong = violations(covering, U, x)
    assert inside.any(1).all()
    assert wrong[inside].max() <= covering.missed(x) + 1e-14
    assert covering.missed(x) <= 2e-10


@pytest.mark.parametrize("case", ["plane", "space", "lattice"])
@pytest.mark.parametrize("kept", [1, 2, 5, 9])
def test_patterns_that_are_missing_are_paid_for(case: str, kept: int) -> None:
    """Of whatever list: every direction is still in a cone, and what its pattern gets wrong is bounded."""
    x = CASES[case]
    whole = Covering.of(unit(x))
    index = np.random.default_rng(kept).permutation(len(whole.signs))[:kept]
    some = replace(whole, signs=whole.signs[index], inside=whole.inside[index])
    inside, wrong = violations(some, directions(x), x)
    assert inside.any(1).all()
    assert not some.complete
    assert wrong[inside].max() <= some.missed(x)


def test_one_missing_pattern_costs_its_depth() -> None:
    """Three lines of the plane; without one of the six patterns its neighbours see too far, by a known angle."""
    angles = np.array([0.0, 0.5, 1.5])
    x = np.stack([np.cos(angles), np.sin(angles)], 1)
    whole = Covering.of(x)
    assert len(whole.signs) == 6
    assert whole.complete
    assert whole.missed(x) <= 1e-14
    gone = int(np.flatnonzero((whole.signs == [True, False, False]).all(1))[0])
    rest = np.arange(6) != gone
    some = replace(whole, signs=whole.signs[rest], inside=whole.inside[rest])
    assert 0.4 < some.missed(x) < 2


def test_signs_that_are_not_there_do_not_make_a_list_complete() -> None:
    x = CASES["space"]
    whole = Covering.of(unit(x))
    forged = whole.signs.copy()
    forged[0] = ~np.bitwise_xor(forged[1], np.arange(7) % 2 == 0)
    assert whole.complete
    assert not replace(whole, signs=forged).complete
    assert not replace(whole, inside=np.roll(whole.inside, 1, axis=0)).complete


def test_rows_that_follow_from_the_facets_are_at_distance_zero() -> None:
    K = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]])
    Y = np.concatenate([K, [[0.6, 0.8, 0], [0.5, 0.5, -0.1], [-1, 0, 0]]])
    found = _distances(Y, np.arange(6) < 3)
    assert found[:3].tolist() == [0, 0, 0]
    assert found[3:] == pytest.approx([0, 0.1, 1], abs=1e-14)
    assert found[4] >= 0.1
    assert found[5] >= 1


def test_distances_need_multipliers_beyond_least_squares() -> None:
    """Five facets in space: the shortest multipliers are negative, others are not."""
    angle = np.arange(5) * 2 * np.pi / 5
    K = np.stack([np.cos(angle), np.sin(angle), np.full(5, 0.3)], 1)
    Y = np.concatenate([K, 0.9 * K[:1] + 0.1 * K[1:2], [[0, 0, 1]], [[1, 0, -0.3]]])
    found = _distances(Y, np.arange(8) < 5)
    assert found[5:7] == pytest.approx([0, 0], abs=1e-13)
    grid = unit(np.random.default_rng(0).standard_normal((20000, 3)))
    deepest = float((-grid[(grid @ K.T >= 0).all(1)] @ Y[7]).max())
    assert deepest <= found[7] <= deepest + 0.02


@pytest.mark.parametrize("width", [1, 7, 8, 9, 70])
def test_keys_tell_patterns_apart(width: int) -> None:
    bits = np.random.default_rng(width).random((200, width)) < 0.5
    assert len(np.unique(_keys(bits))) == len(np.unique(bits, axis=0))
    assert len(np.unique(_keys(bits[:, :0]))) == 1


@pytest.mark.parametrize("case", CASES)
def test_coordinates_reach_as_far_as_is_said(case: str) -> None:
    cones = PatternCones.of(torch.from_numpy(CASES[case]))
    U = unit(directions(CASES[case], 3000) @ cones.scaled.frame)
    for p in range(len(cones)):
        inside = U[(U @ cones.facets[p].T >= 0).all(1)]
        Z = np.linalg.solve(cones.frames[p], inside.T)
        assert (Z**2).sum(0).max(initial=0.0) <= cones.reach[p]


def exact_forms(cones: PatternCones, p: int, V: ndarray, N: ndarray) -> tuple[mpmath.matrix, mpmath.matrix]:
    """The form and K^T N K of a cone, for the stored numbers."""
    slope = mpmath.matrix(cones.scaled.x[cones.active[p]].T.tolist()) * mpmath.matrix(V[cones.active[p]].tolist())
    K = mpmath.matrix(cones.facets[p].tolist())
    return slope * slope.T, K.T * mpmath.matrix(N[p].tolist()) * K


@pytest.mark.parametrize("size", [0.0, 1.0, 1e6, 1e12])
@pytest.mark.parametrize("case", ["plane", "space", "near 1e-09"])
def test_levels_hold_in_real_arithmetic(case: str, size: float) -> None:
    X, rng = torch.from_numpy(CASES[case]), np.random.default_rng(5)
    cones = PatternCones.of(X)
    V = unit(rng.standard_normal((1, 2 * len(X)))).reshape(-1, 2)
    f = cones.facets.shape[1]
    N = size * rng.random((len(cones), f, f))
    N, slopes = 0.5 * (N + N.transpose(0, 2, 1)), cones.slopes(V)
    plain, level = cones._plain(slopes, N), 0.3
    framed = cones._framed(slopes, N, level)
    with mpmath.workdps(60):
        for p in range(0, len(cones), 5):
            form, rest = exact_forms(cones, p, V, N)
            top = max(mpmath.eigsy(form + rest, eigvals_only=True))
            assert max(top, 0) <= mpmath.mpf(float(plain[p])) <= max(top, 0) + mpmath.mpf(1e-13 * (1 + 50 * size))
            T = mpmath.matrix(cones.frames[p].tolist())
            M = T.T * (level * mpmath.eye(T.rows) - form - rest) * T
            eta = max(-min(mpmath.eigsy(M, eigvals_only=True)), 0)
            assert level + eta * mpmath.mpf(float(cones.reach[p])) <= mpmath.mpf(float(framed[p]))


@pytest.mark.parametrize("case", CASES)
def test_the_polar_without_multipliers_is_at_most_the_largest_spectral_norm(case: str) -> None:
    X, V = torch.from_numpy(CASES[case]), normal(len(CASES[case]), 2, seed=4)
    cones = PatternCones.of(X)
    f = cones.facets.shape[1]
    found = cones.polar(V, np.zeros((len(cones), f, f)), 1e-9)
    largest = max(float(torch.linalg.matrix_norm(V.T @ (D[:, None] * X), 2)) for D in torch.from_numpy(cones.active))
    steep = steepest(squared(X, V, 1.0), V)
    assert steep * (1 - 1e-14) <= found <= largest * (1 + (1e-9 if "near" in case else 1e-12))


def test_bounds_are_as_tight_as_the_solver_near_an_optimum() -> None:
    problem = squared(normal(10, 2), normal(10, 2, seed=1), 0.5)
    found, best = relax(problem, "patterns"), exact(problem)
    assert found.dual <= best.primal
    assert found.dual >= best.primal * (1 - 3e-9)


def test_a_rotation_of_the_outputs_is_paid_for_where_the_polar_is_small() -> None:
    """V is nearly orthogonal to both features of the line: rounding of the rotation is large beside its polar."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, Y = rng.standard_normal((12, 1)), rng.standard_normal((12, 2)) @ rng.standard_normal((2, 5))
        compact = Compact.of(squared(torch.from_numpy(X), torch.from_numpy(Y), 1e-9))
        features = np.concatenate([np.maximum(X, 0), np.maximum(-X, 0)], 1)
        small = compact.rotated.datafit.targets.numpy()
        for _ in range(2):
            small = small - features @ np.linalg.lstsq(features, small, rcond=None)[0]
        small = small + 1e-9 * features @ rng.standard_normal((2, small.shape[1]))
        polar = math.sqrt(max(squares(features, small))) * (1 + 1e-15)
        start = joint_bound(compact.rotated, max_steps=1)
        given = compact.relaxed(replace(start, V=torch.from_numpy(small), polar=polar))
        assert max(squares(features, given.V.numpy())) <= Fraction(given.polar) ** 2
        assert given.polar <= polar * (1 + 1e-5)


def squares(features: ndarray, V: ndarray) -> list[Fraction]:
    """|V^T a|^2 for every column a, exactly."""
    exactly = [[Fraction(v) for v in column] for column in V.T]
    parts = [[Fraction(a) for a in column] for column in features.T]
    return [sum(sum(a * v for a, v in zip(f, w, strict=True)) ** 2 for w in exactly) for f in parts]


def test_directions_that_count_as_one_are_paid_for() -> None:
    X = torch.tensor([[3.0, 4.0], [0.6, 0.8 + 1e-15], [4.0, -3.0], [0.0, 0.0]], dtype=torch.float64)
    moved = is_spike_free(X).moved
    assert 1e-16 <= moved <= 1e-14
    assert is_spike_free(1e100 * X).moved == pytest.approx(moved, rel=0.5)
