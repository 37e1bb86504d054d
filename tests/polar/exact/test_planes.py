"""The sweep of planes, piece by piece, against many angles and dense eigendecompositions."""

from math import cos, inf, pi, sin

import mpmath
import numpy as np
import pytest
from numpy import ndarray

from bidual.numerics.forms import form_error, principal_of_plane, top_error
from bidual.numerics.rounding import UNIT, gamma
from bidual.patterns.arrangement import MERGE, Flat
from bidual.polar.exact.faces import Planes, _on_arc


def flats(count: int, n: int, r: int = 3, seed: int = 0) -> list[Flat]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, r))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    bases = [np.linalg.qr(rng.standard_normal((r, 2)))[0] for _ in range(count)]
    return [Flat(basis, X @ basis, np.zeros(n, dtype=bool)) for basis in bases]


def outputs(n: int, c: int, seed: int = 1) -> ndarray:
    return np.random.default_rng(seed).standard_normal((n, c))


def circle(count: int) -> ndarray:
    angles = 2 * pi * np.arange(count) / count
    return np.stack([np.cos(angles), np.sin(angles)], 1)


def climb(flat: Flat, V: ndarray, U: ndarray) -> ndarray:
    return np.linalg.norm(np.maximum(U @ flat.rows.T, 0) @ V, axis=1)


@pytest.mark.parametrize("n", [1, 7, 1000])
def test_the_error_of_a_form_is_above_what_was_measured_and_of_the_size_of_four_roundings_a_row(n: int) -> None:
    V, x = outputs(n, 3), flats(1, n)[0].rows
    exact = V.T.astype(np.longdouble) @ x.astype(np.longdouble)
    total = float(np.linalg.norm(V, axis=1).sum())
    bound = form_error(V)
    assert bound >= float(np.linalg.norm(V.T @ x - exact))
    assert bound == pytest.approx((4 * n + 32) * UNIT * total, rel=1e-9, abs=0)


@pytest.mark.parametrize(("length", "error"), [(3.0, 0.5), (1.0, 2.0), (0.0, 0.25)])
def test_an_error_moves_the_square_by_what_a_longer_matrix_has_more(length: float, error: float) -> None:
    assert top_error(np.array([length**2]), error, np.zeros(1)) == pytest.approx(
        (length + error) ** 2 - length**2, rel=1e-12
    )


@pytest.mark.parametrize("c", [1, 3, 40])
def test_the_closed_form_of_two_by_two_is_off_by_less_than_its_allowance(c: int) -> None:
    """Nearly flat and nearly singular forms, against fifty digits; the angle is off by the error over the gap."""
    rng = np.random.default_rng(c)
    G = rng.standard_normal((1, 60, c, 2)) * 10.0 ** rng.uniform(-3, 3, (1, 60, 1, 1))
    G[0, ::3, :, 1] = G[0, ::3, :, 0] * (1 + 1e-9 * rng.standard_normal((20, 1)))
    tops, gaps, angle = principal_of_plane(G)
    with mpmath.workdps(50):
        for form, value, gap, at in zip(G[0], tops[0], gaps[0], angle[0], strict=True):
            a, b = (mpmath.matrix(column.tolist()) for column in form.T)
            mean, half, cross = ((a.T * a)[0] + (b.T * b)[0]) / 2, ((a.T * a)[0] - (b.T * b)[0]) / 2, (a.T * b)[0]
            radius, error = mpmath.hypot(half, cross), gamma(4 * c + 16) * value
            assert abs(mean + radius - value) <= error
            assert abs(2 * radius - gap) <= 2 * error
            turned = abs(mpmath.atan2(cross, half) / 2 - at)
            assert min(turned, mpmath.pi - turned) <= 4 * error / gap + 1e-15


@pytest.mark.parametrize("seed", range(3))
def test_rows_change_sign_at_their_turns(seed: int) -> None:
    axes = Flat(np.eye(2), np.concatenate([np.eye(2), -np.eye(2), flats(1, 2)[0].rows]), np.zeros(6, dtype=bool))
    made = Planes.of([*flats(3, 6, r=2, seed=seed), axes])
    for f, flat in enumerate([*flats(3, 6, r=2, seed=seed), axes]):
        assert np.array_equal(made.basis[f], flat.basis)
        assert np.array_equal(np.sort(made.order[f]), np.arange(6))
        assert np.array_equal(made.rows[f], flat.rows[made.order[f]])
        assert np.all(np.diff(made.turns[f]) >= 0)
        assert made.turns[f, 0] >= 0
        assert made.turns[f, -1] < pi
        for turn, row, change in zip(made.turns[f], made.rows[f], made.change[f], strict=True):
            assert row @ [cos(turn), sin(turn)] == pytest.approx(0, abs=1e-14)
            assert np.sign(row @ [cos(turn + 1e-6), sin(turn + 1e-6)]) == change


@pytest.mark.parametrize("c", [1, 3])
def test_the_form_of_an_arc_is_that_of_the_pattern_in_its_middle(c: int) -> None:
    spaces, V = flats(4, 6), outputs(6, c)
    made = Planes.of(spaces)
    G = made._forms(V, slice(1, 3))
    assert G.shape == (2, 12, c, 2)
    for f, flat in enumerate(spaces[1:3], 1):
        ends = np.concatenate([made.turns[f], made.turns[f] + pi, made.turns[f, :1] + 2 * pi])
        for arc, middle in enumerate((ends[1:] + ends[:-1]) / 2):
            active = flat.rows @ [cos(middle), sin(middle)] > 0
            assert G[f - 1, arc] == pytest.approx(V[active].T @ flat.rows[active], abs=1e-13)


@pytest.mark.parametrize(("c", "n", "seed"), [(1, 7, 0), (2, 7, 1), (3, 5, 2), (1, 1, 3), (2, 2, 4), (3, 40, 5)])
def test_the_best_of_every_arc_is_listed_and_the_largest_is_proved(c: int, n: int, seed: int) -> None:
    spaces, V = flats(3, n, seed=seed), outputs(n, c, seed)
    found = Planes.of(spaces).tops(V, 0.0)
    best = max(climb(flat, V, circle(10_000)).max() for flat in spaces)
    assert best * (1 - 1e-12) <= found.upper <= best * (1 + 1e-3)
    assert found.values.max() == pytest.approx(found.upper, rel=1e-9)
    assert np.linalg.norm(found.directions, axis=1) == pytest.approx(1, rel=1e-12)
    for u, value in zip(found.directions, found.values, strict=True):
        at = min(spaces, key=lambda flat: np.linalg.norm(flat.basis @ (flat.basis.T @ u) - u))
        assert climb(at, V, (at.basis.T @ u)[None])[0] == pytest.approx(value, rel=1e-9, abs=1e-12)


def best_of_arcs(flat: Flat, V: ndarray, count: int = 4001) -> ndarray:
    """The largest value inside every arc, that of the end where it starts if the inside has no maximum."""
    normal = np.arctan2(flat.rows[:, 1], flat.rows[:, 0])
    ends = np.sort(np.concatenate([normal + pi / 2, normal - pi / 2]) % (2 * pi))
    best = []
    for low, high in zip(ends, np.append(ends[1:], ends[0] + 2 * pi), strict=True):
        angle = np.linspace(low, high, count)
        values = climb(flat, V, np.stack([np.cos(angle), np.sin(angle)], 1))
        best.append(values.max() if values.max() > max(values[0], values[-1]) else values[0])
    return np.sort(best)


@pytest.mark.parametrize("c", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_every_arc_has_its_own_best_direction(c: int, seed: int) -> None:
    (flat,), V = flats(1, 6, seed=seed), outputs(6, c, seed)
    found = Planes.of([flat]).tops(V, -1.0)
    assert np.sort(found.values) == pytest.approx(best_of_arcs(flat, V), rel=1e-5, abs=1e-12)


@pytest.mark.parametrize("share", [0.3, 0.7, 0.95])
def test_only_what_exceeds_above_is_listed(share: float) -> None:
    made, V = Planes.of(flats(4, 6)), outputs(6, 2)
    every = made.tops(V, 0.0)
    above = share * every.values.max()
    some = made.tops(V, above)
    assert np.array_equal(some.values, every.values[every.values > above])
    assert np.array_equal(some.directions, every.directions[every.values > above])
    assert some.upper == every.upper


def test_the_best_is_listed_even_if_it_is_not_above() -> None:
    made, V = Planes.of(flats(1, 6)), outputs(6, 2)
    best = made.tops(V, 0.0).values.max()
    for above in (best, 3 * best, inf):
        assert made.tops(V, above).values.tolist() == [best]


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made, V = Planes.of(flats(5, 6)), outputs(6, 2)
    once = made.tops(V, 0.1)
    monkeypatch.setattr(Planes, "_chunks", lambda self, c: [slice(0, 1), slice(1, 4), slice(4, 7)])
    parts = made.tops(V, 0.1)
    assert np.allclose(parts.values, once.values, rtol=1e-13)
    assert np.allclose(parts.directions, once.directions, atol=1e-12)
    assert parts.upper == pytest.approx(once.upper, rel=1e-13)


@pytest.mark.parametrize("most", [1, 5, 1000])
@pytest.mark.parametrize("above", [0.0, 0.5])
def test_a_long_list_is_cut_to_the_highest(most: int, above: float, monkeypatch: pytest.MonkeyPatch) -> None:
    made, V = Planes.of(flats(4, 6)), outputs(6, 2)
    every = made.tops(V, above * made.tops(V, 0.0).upper)
    monkeypatch.setattr("bidual.polar.exact.faces.LISTED", most)
    some = made.tops(V, above * every.upper)
    assert sorted(some.values, reverse=True) == sorted(every.values, reverse=True)[:most]
    assert some.upper == every.upper


def test_the_bound_of_a_flat_form_leaves_room_for_its_gap() -> None:
    """On one arc |G u| = |u| up to 1e-9: the top direction is unknown, the bound is not below it."""
    flat = Flat(np.eye(2), np.eye(2), np.zeros(2, dtype=bool))
    V = np.diag([1.0, 1 + 1e-9])
    found = Planes.of([flat]).tops(V, 0.0)
    assert 1 + 1e-9 <= found.upper <= 1 + 1e-8
    assert Planes.of([flat]).tops(np.eye(2), 0.0).upper == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("c", [1, 2, 5])
def test_the_principal_direction_is_the_top_eigenvector(c: int) -> None:
    G = np.random.default_rng(c).standard_normal((3, 4, c, 2))
    values, vectors = np.linalg.eigh(np.swapaxes(G, -1, -2) @ G)
    value, gap, angle = principal_of_plane(G)
    assert value == pytest.approx(values[..., 1], rel=1e-12)
    assert gap == pytest.approx(values[..., 1] - values[..., 0], rel=1e-10)
    u = np.stack([np.cos(angle), np.sin(angle)], -1)
    assert np.abs((u * vectors[..., 1]).sum(-1)) == pytest.approx(1, rel=1e-12)


def on_arc(
    angle: float, low: float, width: float, value: float = 1.0, gap: float = 1.0, error: float = 0.0
) -> tuple[bool, float]:
    one = [np.full((1, 1), number) for number in (angle, low, width, value, gap, error)]
    inside, spread = _on_arc(*one)
    return bool(inside[0, 0]), spread


@pytest.mark.parametrize(
    ("value", "gap", "error", "spread"),
    [
        (1.0, 1e-8, 0.0, 1e-8),
        (1.0, 2e-8, 0.0, 0.0),
        (4.0, 3e-8, 0.0, 3e-8),
        (1.0, 0.16, 0.01, 0.2),
        (1.0, 0.17, 0.01, 0.0),
        (0.0, 0.0, 0.0, 0.0),
    ],
)
def test_flat_forms_are_not_inside_but_cost_their_gap(value: float, gap: float, error: float, spread: float) -> None:
    inside, cost = on_arc(0.5, 0.2, 0.5, value, gap, error)
    assert cost == pytest.approx(spread, rel=1e-12)
    assert inside is (gap > 0 and spread == 0)


@pytest.mark.parametrize("width", [0.0, 5e-12, 2e-11])
def test_arcs_too_narrow_to_be_looked_into_are_measured(width: float) -> None:
    """Also where the cut between two of them is that of a row that vanishes on the plane, at a right angle."""
    rows = np.array([[1.0, 0.0], [cos(width), sin(width)], [0.6, 0.8]])
    made = Planes.of([Flat(np.eye(2), rows, np.zeros(3, dtype=bool))])
    assert made.narrow == pytest.approx(width if width < MERGE else 0.0, abs=1e-15)
    rows[0] = 0.0
    assert Planes.of([Flat(np.eye(2), rows, rows[:, 0] == 0)]).narrow == made.narrow
