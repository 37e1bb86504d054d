"""The parts of branch and bound on the sphere: its queue, list of directions, thresholds, limits and rounding."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy import ndarray

from bidual.patterns.reduction import Reduced
from bidual.polar.base import steepness
from bidual.polar.sphere import oracle as module
from bidual.polar.sphere.oracle import Sphere, _Search
from bidual.polar.sphere.simplex_bounds import Bounded
from bidual.polar.sphere.simplices import Simplices
from helpers.draws import normal

EPS = float(np.finfo(np.float64).eps)


def run(n: int = 8, r: int = 3, c: int = 2, above: float = 0.0, **settings: float) -> _Search:
    oracle = Sphere(normal(n, r), **settings)  # type: ignore[arg-type]
    return _Search(oracle, oracle._reduced.samples, normal(n, c, seed=1).numpy(), above)


def cells(bounds: list[float], width: float = 1.0, n: int = 8, r: int = 3, c: int = 2) -> Simplices:
    """Cells of a width, with these bounds; row k of the data is open on cell k."""
    m = len(bounds)
    corners = np.tile(np.eye(1, r), (m, r, 1))
    corners[:, 1, 1] += width
    rows = np.full((m, n), n)
    rows[:, 3] = np.arange(m) % n
    return Simplices(corners, np.zeros((m, c, r)), rows, np.array(bounds), np.arange(m), np.arange(m))


# the oracle


@pytest.mark.parametrize("tol", [0.99e-9, 0.0, -1.0, float("nan")])
def test_tolerances_below_rounding_are_refused(tol: float) -> None:
    with pytest.raises(ValueError, match=r"^tol must be at least 1e-09, got .*\. Faces has no tolerance\.$"):
        Sphere(normal(3, 2), tol=tol)


def test_the_tightest_tolerance_is_accepted_and_defaults_are_documented() -> None:
    assert Sphere(normal(3, 2), tol=1e-9).tol == 1e-9
    oracle = Sphere(normal(3, 2))
    assert (oracle.tol, oracle.max_time, oracle.max_simplices, oracle.looseness) == (1e-6, None, 500_000, 0.1)


@pytest.mark.parametrize("r", [1, 2, 3])
def test_rank_is_that_of_the_data(r: int) -> None:
    assert Sphere(normal(9, r) @ normal(r, 5, seed=1)).rank == r


@pytest.mark.parametrize("above", [0.0, 1.0])
def test_peaks_are_unit_and_sorted_with_the_values_they_have(above: float) -> None:
    X, V = normal(12, 3), normal(12, 2, seed=1)
    oracle = Sphere(X)
    found = oracle._steepest(V, above, None)
    assert torch.allclose(torch.linalg.vector_norm(found.neurons, dim=1), torch.ones(1, dtype=torch.float64))
    assert torch.equal(found.values, found.values.sort(descending=True).values)
    assert torch.allclose(found.values, steepness(oracle.X, V, found.neurons), rtol=1e-13)
    assert found.bracket.lower == float(found.values[0])
    assert bool((found.values > above).all())
    assert found.neurons.shape[1] == 3
    assert found.neurons.dtype == torch.float64


def test_only_the_best_is_listed_if_nothing_exceeds_the_question() -> None:
    oracle, V = Sphere(normal(12, 3)), normal(12, 2, seed=1)
    best = oracle._steepest(V, 0.0, None).bracket
    found = oracle._steepest(V, 2 * best.lower, None)
    assert len(found.values) >= 1
    assert float(found.values.min()) >= found.bracket.lower * (1 - 2e-12)
    assert found.bracket.upper <= 2 * best.lower * (1 + 2e-6)


def test_the_upper_bound_is_what_the_run_proved_of_reduced_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    oracle, V = Sphere(normal(12, 3)), normal(12, 2, seed=1)
    seen: list[_Search] = []
    search = _Search.search
    monkeypatch.setattr(_Search, "search", lambda self: (seen.append(self), search(self)))
    monkeypatch.setattr(Reduced, "lost", lambda self, W: 0.25 if W is V else 0.0)
    found = oracle._steepest(V, 0.5, None)
    assert seen[0].proved + 0.25 < found.bracket.upper <= (seen[0].proved + 0.25) * (1 + 1e-14)
    assert seen[0].above == 0.5
    assert seen[0].settings is oracle
    assert np.array_equal(seen[0].V, V.numpy())
    assert seen[0].X is oracle._reduced.samples
    monkeypatch.setattr(Reduced, "lost", lambda self, W: -1e9)
    again = oracle._steepest(V, 0.5, None).bracket
    assert again.upper == again.lower


def test_a_run_proves_its_bound_for_the_deepest_and_the_widest_cell() -> None:
    asked = run(tol=1e-3)
    asked._process(Simplices.orthants(8, 3, 2))
    assert (asked.depth, asked.stretch) == (0, pytest.approx(3**0.5))
    asked._process(replace(Simplices.orthants(8, 3, 2).take(slice(1)), depth=np.array([7])))
    asked._process(asked.queue[0][2].halved())
    assert asked.depth == 7
    asked.closed, asked.depth, asked.stretch = 5.0, 20, 2.0
    n, r, c = 8, 3, 2
    size = (np.linalg.norm(asked.X, axis=1) * np.linalg.norm(asked.V, axis=1)).sum()
    units = 2 * (2.5 * n + 13 * r + 15 * c + 90) + 3**0.5 * (4 * 20 + r + 1)
    assert asked.proved - 5 == pytest.approx(units * EPS / 2 * size + 12 * EPS * 5, rel=0.02)
    asked.stretch = 3.0
    asked._learn(stretched([np.nan, 2.0, 3.5]))
    assert asked.stretch == 3.5


def stretched(stretch: list[float]) -> Bounded:
    m = len(stretch)
    return Bounded(cells([1.0] * m), np.zeros((m, 3)), np.zeros(m), np.zeros((m, 3)), np.array(stretch))


def test_the_local_search_gets_the_question_and_the_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    X, V, seeds = normal(12, 3), normal(12, 2, seed=1), normal(2, 3, seed=5)
    asked: list[tuple] = []

    class Recorder(module.LocalSearch):
        def steepest(self, *args: object) -> object:
            asked.append((self.X, self.starts, self.rounds, *args))
            return super().steepest(*args)

    monkeypatch.setattr(module, "LocalSearch", Recorder)
    known: list[ndarray] = []
    start = _Search.start
    monkeypatch.setattr(_Search, "start", lambda self, U: (known.append(U), start(self, U)))
    oracle = Sphere(X)
    oracle._steepest(V, 0.25, seeds)
    assert asked[0][1:3] == (64, 20)
    assert torch.allclose(asked[0][0], oracle.X)
    assert asked[0][3] is V
    assert asked[0][4:] == (0.25, seeds)
    f = np.linalg.norm(np.maximum(oracle._reduced.samples @ known[0].T, 0).T @ V.numpy(), axis=1)
    assert f[0] == pytest.approx(f.max())


# thresholds and limits


def test_a_new_run_knows_nothing() -> None:
    fresh = run()
    assert (fresh.lower, fresh.closed, fresh.seen, fresh.queue, next(fresh.serial)) == (0.0, 0.0, 0, [], 0)
    assert (fresh.depth, fresh.stretch) == (0, 1.0)
    assert fresh.directions.shape == (0, 3)
    assert fresh.values.shape == (0,)
    assert fresh.upper == 0


@pytest.mark.parametrize(
    ("above", "lower", "expected"),
    [(0.0, 2.0, 2.002), (1.0, 0.5, 1.001), (1.0, 3.0, 3.4), (1.0, 1.001, 1.002001), (0.5, 1.5, 1.7)],
)
def test_the_threshold_leaves_open_the_tolerance_or_a_share_of_the_excess(
    above: float, lower: float, expected: float
) -> None:
    asked = run(above=above, tol=1e-3, looseness=0.2)
    asked.lower = lower
    assert asked.threshold == pytest.approx(expected, rel=1e-14)


def test_upper_is_the_largest_of_what_is_closed_found_and_open() -> None:
    asked = run()
    asked.closed, asked.lower = 2.0, 1.0
    assert asked.upper == 2
    asked.lower = 3.0
    assert asked.upper == 3
    asked._push(cells([4.0, 5.0]))
    assert asked.upper == 5


def test_a_run_is_late_when_it_has_seen_more_cells_than_allowed() -> None:
    asked = run(max_simplices=5)
    asked.seen = 5
    assert not asked._late()
    asked.seen = 6
    assert asked._late()


def test_a_run_is_late_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.time, "perf_counter", lambda: 100.0)
    asked, free = run(max_time=2.0), run()
    for now, late in ((101.0, False), (102.0, False), (102.5, True)):
        monkeypatch.setattr(module.time, "perf_counter", lambda now=now: now)
        assert asked._late() == late
        assert not free._late()


def test_a_stopped_search_proves_less_and_stops_soon() -> None:
    X, V = normal(30, 4), normal(30, 2, seed=1)
    full, few = Sphere(X)._steepest(V, 0.0, None).bracket, Sphere(X, max_simplices=16)._steepest(V, 0.0, None).bracket
    assert few.upper > full.upper
    assert few.lower <= full.upper
    asked = run(30, 4, max_simplices=16)
    asked.search()
    assert 16 < asked.seen <= 48
    assert asked.queue


@pytest.mark.parametrize("c", [1, 2])
def test_a_search_that_ends_has_closed_every_cell(c: int) -> None:
    asked = run(10, 3, c, tol=1e-4)
    asked.search()
    assert not asked.queue
    assert asked.seen > 8
    assert asked.lower <= asked.upper <= asked.threshold * (1 + 1e-15)
    U = np.random.default_rng(0).standard_normal((20000, 3))
    f = np.linalg.norm(np.maximum(U @ asked.X.T, 0) @ asked.V, axis=1) / np.linalg.norm(U, axis=1)
    assert f.max() <= asked.upper
    assert asked.lower <= f.max() * 1.01


# the queue


def test_batches_are_queued_highest_bound_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH", 2)
    asked = run()
    asked._push(cells([1.0, 5.0, 3.0, 4.0, 2.0]))
    assert [(key, len(part)) for key, _, part in sorted(asked.queue, key=lambda x: x[:2])] == [
        (-5, 2),
        (-3, 2),
        (-1, 1),
    ]
    assert [serial for _, serial, _ in asked.queue] == [0, 1, 2]
    parts = [part for _, _, part in asked.queue]
    assert [part.bound.tolist() for part in parts] == [[5, 4], [3, 2], [1]]
    assert [part.rows.tolist() for part in parts] == [[[1], [3]], [[2], [4]], [[0]]]
    assert [part.edge.tolist() for part in parts] == [[1, 3], [2, 4], [0]]
    assert [part.depth.tolist() for part in parts] == [[1, 3], [2, 4], [0]]


def test_as_many_batches_are_taken_as_fill_half_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH", 4)
    asked = run()
    for bound in (1.0, 9.0, 5.0, 7.0, 3.0):
        asked._push(cells([bound]))
    assert [part.bound.tolist() for part in asked._next()] == [[9], [7], [5]]
    assert [part.bound.tolist() for part in asked._next()] == [[3], [1]]
    assert asked._next() == []


def test_nothing_is_queued_of_no_cells() -> None:
    asked = run()
    asked._push(cells([]))
    assert asked.queue == []


def test_cells_at_the_threshold_and_narrow_cells_are_closed_and_remembered() -> None:
    asked = run(tol=1e-3)
    asked.lower = 1.0
    kept = asked._kept(cells([asked.threshold, 1.5, 0.5, 1.25]))
    assert kept.bound.tolist() == [1.5, 1.25]
    assert kept.rows.tolist() == [[1], [3]]
    assert asked.closed == asked.threshold
    assert len(asked._kept(cells([4.0, 3.0], 0.9e-10))) == 0
    assert asked.closed == 4
    assert len(asked._kept(cells([7.0], 1.1e-10))) == 1
    assert asked.closed == 4


def test_cells_are_bounded_in_portions_of_so_many_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = run(tol=1e-3)
    sizes: list[tuple[int, float]] = []
    bounds = asked.bounds

    def recording(part: Simplices, threshold: float) -> Bounded:
        sizes.append((len(part), threshold))
        return bounds(part, threshold)

    asked.bounds = recording  # type: ignore[assignment]
    monkeypatch.setattr(module, "_NUMBERS", 3 * 8 * 3 + 5)
    asked._process(Simplices.orthants(8, 3, 2))
    assert [size for size, _ in sizes] == [3, 3, 2]
    assert sizes[0][1] == 0
    assert sizes[2][1] > 0
    assert asked.seen == 8
    monkeypatch.setattr(module, "_NUMBERS", 1)
    asked._process(Simplices.orthants(8, 3, 2).take(slice(2)))
    assert [size for size, _ in sizes[3:]] == [1, 1]
    assert asked.seen == 10


# the list of directions


def test_noted_directions_are_evaluated_and_sorted() -> None:
    asked = run()
    U = np.random.default_rng(1).standard_normal((7, 3))
    asked.note(U)
    f = [np.linalg.norm(asked.V.T @ np.maximum(asked.X @ u, 0)) for u in U]
    assert np.allclose(asked.values, sorted(f, reverse=True))
    assert np.array_equal(asked.directions, U[np.argsort(f)[::-1]])
    assert asked.lower == pytest.approx(max(f))
    asked.note(U[:1] * 1e-3)
    assert asked.lower == pytest.approx(max(f))
    assert len(asked.values) == 8
    assert asked.values[-1] == pytest.approx(1e-3 * f[0])


def test_directions_of_one_box_are_listed_once_by_the_best() -> None:
    asked = run()
    u = np.array([[0.50, 0.30, -0.20]])
    asked.note(np.concatenate([u, u * 1.001, u * 0.999, u + np.array([0, 0, 0.01])]))
    assert len(asked.values) == 2
    assert any(np.array_equal(row, u[0] * 1.001) for row in asked.directions)
    asked.note(u * 1.002)
    assert len(asked.values) == 2
    assert any(np.array_equal(row, u[0] * 1.002) for row in asked.directions)


def test_the_list_is_as_long_as_allowed_and_keeps_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LISTED", 4)
    asked = run()
    U = np.random.default_rng(2).standard_normal((9, 3))
    asked.note(U)
    f = np.linalg.norm(np.maximum(U @ asked.X.T, 0) @ asked.V, axis=1)
    assert np.allclose(asked.values, np.sort(f)[::-1][:4])


def test_no_direction_changes_nothing() -> None:
    asked = run()
    asked.note(np.zeros((0, 3)))
    assert (asked.lower, asked.directions.shape, asked.values.shape) == (0.0, (0, 3), (0,))


@pytest.mark.parametrize(("above", "listed"), [(0.0, [3, 0]), (0.5, [3, 0, 2]), (5.0, [])])
def test_centres_that_climb_high_and_candidates_of_high_bounds_are_noted(
    monkeypatch: pytest.MonkeyPatch, above: float, listed: list[int]
) -> None:
    monkeypatch.setattr(module, "_TRIED", 2)
    asked, noted = run(above=above), []
    asked.lower = 2.0
    monkeypatch.setattr(asked, "note", noted.append)
    centres, candidates = normal(5, 3, seed=2).numpy(), normal(5, 3, seed=3).numpy()
    values = np.array([1.9, 0.5, 1.8, 3.0, 0.1])
    asked._learn(Bounded(cells([1.0, 9.0, 2.0, 3.0, 8.0]), centres, values, candidates, np.ones(5)))
    assert len(noted) == 1
    assert np.array_equal(noted[0], np.concatenate([centres[listed], candidates[[1, 4]]]))


def test_so_many_centres_at_most_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LISTED", 1)
    asked, noted = run(), []
    monkeypatch.setattr(asked, "note", noted.append)
    centres = normal(3, 3, seed=2).numpy()
    asked._learn(Bounded(cells([1.0, 2.0, 3.0]), centres, np.array([1.0, 3.0, 2.0]), centres, np.ones(3)))
    assert np.array_equal(noted[0], centres[[1, 2, 1, 0]])


def test_a_run_starts_with_climbs_from_the_best_that_is_known_and_from_anywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = run()
    climbs: list[tuple[ndarray, ndarray, ndarray]] = []
    monkeypatch.setattr(module, "ascend", lambda X, V, U: climbs.append((X, V, U)) or np.array([[0.6, 0.8, 0.0]]))
    known = np.random.default_rng(3).standard_normal((60, 3))
    asked.start(known)
    X, V, U = climbs[0]
    assert X is asked.X
    assert V is asked.V
    assert U.shape == (48 + 96, 3)
    f = np.linalg.norm(np.maximum(known @ X.T, 0) @ V, axis=1)
    assert np.array_equal(U[:48], known[np.argsort(-f)[:48]])
    assert len(np.unique(U[48:], axis=0)) == 96
    assert np.array_equal(U[48:], np.random.default_rng(0).standard_normal((96, 3)))
    assert any(np.array_equal(row, [0.6, 0.8, 0.0]) for row in asked.directions)
    assert len(asked.values) == 61


def test_polishing_climbs_from_the_best_directions_above_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CLIMBED", 3)
    climbs: list[tuple[ndarray, ndarray, ndarray]] = []
    monkeypatch.setattr(module, "ascend", lambda X, V, U: climbs.append((X, V, U)) or np.array([[0.6, 0.8, 0.0]]))
    asked = run()
    asked.note(np.random.default_rng(4).standard_normal((6, 3)))
    best = asked.directions[:4].copy()
    asked.polish()
    assert np.array_equal(climbs[0][2], best[:3])
    assert climbs[0][0] is asked.X
    assert climbs[0][1] is asked.V
    assert len(asked.values) == 7
    asked.above = float(asked.values[1])
    asked.polish()
    assert len(climbs[1][2]) == 1
