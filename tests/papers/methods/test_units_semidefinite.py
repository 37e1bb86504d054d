"""The semidefinite bound: what it starts from, when it stops, what it looks at and what it passes on."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from numpy import ndarray

from bidual.gauges import Bracket
from bidual.papers.methods import semidefinite as module
from bidual.papers.methods.semidefinite import RegionRelaxation, SemidefiniteBound, elementary
from bidual.polar.base import SteepestNeurons
from bidual.polar.relaxations import reduction
from bidual.polar.relaxations.moments import stalled
from bidual.polar.relaxations.sign_regions import SignRegion
from helpers.draws import normal


def data(n: int = 4, r: int = 2, c: int = 2, seed: int = 0) -> tuple[ndarray, ndarray]:
    x = normal(n, r, seed=seed).numpy()
    return x / np.linalg.norm(x, 2), normal(n, c, seed=seed + 1).numpy()


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ([1.0] * 5, False),
        ([1.0] * 6, True),
        ([9.0, 1.125, 1.0, 1.0, 1.0, 1.0], True),
        ([9.0, 1.13, 1.0, 1.0, 1.0, 1.0], False),
        ([1.0, 1.25, 1.0, 1.0, 1.0, 2.0], False),
        ([0.0, 2.25, 9.0, 9.0, 9.0, 2.0], True),
        ([0.0, 1.9, 9.0, 9.0, 9.0, 2.0], True),
        ([5.0, 5.0, 3.0, 3.0, 3.0, 3.0, 3.0], True),
        ([3.0, 3.0, 5.0, 4.0, 3.0, 3.0, 3.0], False),
        ([9.0, -1.1, 0.0, 0.0, 0.0, -1.0], True),
    ],
)
def test_a_search_stalls_when_four_looks_gain_no_more_than_the_tolerance(bounds: list[float], expected: bool) -> None:
    assert stalled(bounds, 0.125) == expected


def test_the_elementary_bound_leaves_out_negative_rows_and_is_rounded_up() -> None:
    x, V = np.array([[3.0, 4.0], [1.0, 1.0], [0.0, 12.0]]), np.array([[1.0], [7.0], [1.0]])
    region = SignRegion(x, np.array([0, -1, 1]))
    square = Fraction(elementary(region, V)) ** 2
    assert 338 <= square <= 338 * (1 + Fraction(1, 10**13))
    assert elementary(SignRegion(x, np.array([-1, -1, -1])), V) == 0


@pytest.mark.parametrize("scale", [1e-200, 0.1, 1e200])
def test_the_elementary_bound_of_many_rows_holds_in_real_arithmetic(scale: float) -> None:
    rng = np.random.default_rng(0)
    x, V = scale * rng.standard_normal((3000, 4)), rng.standard_normal((3000, 1))
    square = sum(Fraction(a) ** 2 for a in x.ravel()) * sum(Fraction(a) ** 2 for a in V.ravel())
    found = Fraction(elementary(SignRegion.whole(x), V)) ** 2
    assert square <= found <= square * (1 + Fraction(1, 10**11))


@pytest.mark.parametrize("scale", [1.0, 1e-12])
def test_a_relaxation_starts_from_the_elementary_bound(scale: float) -> None:
    x, V = data()
    region = SignRegion.whole(scale * x)
    found = RegionRelaxation(region, V)
    assert found.bound == elementary(region, V)
    assert found.region is region
    assert found.V is V
    assert found.N.shape == (8, 8)
    assert not found.N.any()
    assert found.splitting.penalty == pytest.approx(5 / max(found.bound, 1e-9), rel=1e-14)
    assert (found.splitting.beta, found.splitting.outputs, found.splitting.steps) == (1.0, 2, 0)
    assert found.splitting.regions == [region]


def test_predictions_are_projected_to_the_plane_of_v() -> None:
    x, V = data()
    found, P = RegionRelaxation(SignRegion.whole(x), V), normal(4, 2, seed=5).numpy()
    Q = found._onto_unit(P, 0.3)
    assert np.sum(Q * V) == pytest.approx(1, rel=1e-12)
    moved = Q - P
    assert np.allclose(moved * np.sum(V * V), np.sum(moved * V) * V, atol=1e-12)


@pytest.mark.parametrize(
    ("enough", "max_steps", "looks"), [(np.inf, 500, 0), (0.0, 100, 2), (0.0, 101, 3), (0.0, 0, 0), (0.0, 50, 1)]
)
def test_a_run_stops_when_it_is_good_enough_or_out_of_steps(enough: float, max_steps: int, looks: int) -> None:
    found = RegionRelaxation(SignRegion.whole(data()[0]), data()[1])
    assert found.run(enough, -1.0, max_steps) == found.bound
    assert found.splitting.steps == 50 * looks


def test_a_run_stops_at_the_bound_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    found = RegionRelaxation(SignRegion.whole(data()[0]), data()[1])
    assert found.run(found.bound, 0.0, 500) == found.bound
    assert found.splitting.steps == 0


def test_a_run_that_gains_nothing_stops_after_four_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    found = RegionRelaxation(SignRegion.whole(data()[0]), data()[1])
    monkeypatch.setattr(found, "_look", lambda: None)
    found.run(0.0, 1e-3, 1000)
    assert found.splitting.steps == 5 * 50


def test_a_run_improves_the_bound_which_holds() -> None:
    x, V = data(6, 2, 1, 3)
    found = RegionRelaxation(SignRegion.whole(x), V)
    first = found.bound
    last = found.run(0.0, 1e-5, 600)
    t = np.linspace(0, 2 * np.pi, 5000)
    f = np.linalg.norm(np.maximum(np.stack([np.cos(t), np.sin(t)], 1) @ x.T, 0) @ V, axis=1).max()
    assert f <= last < 0.9 * first
    assert last <= 1.5 * f
    assert found.region.bound(V, found.N) == last


@pytest.mark.parametrize("scale", [0.5, -2.0])
def test_a_look_scales_the_multipliers_to_v_and_keeps_only_what_is_better(
    monkeypatch: pytest.MonkeyPatch, scale: float
) -> None:
    x, V = data()
    found = RegionRelaxation(SignRegion.whole(x), V)
    N, asked = normal(8, 8, seed=4).numpy(), []
    monkeypatch.setattr(type(found.splitting), "V", property(lambda self: scale * V))
    monkeypatch.setattr(found.splitting, "multipliers", lambda: [N])
    answers = iter([2.0, 3.0, 2.0, 1.0])
    monkeypatch.setattr(SignRegion, "bound", lambda self, W, M: asked.append((self, W, M)) or next(answers))
    found.bound = 2.0
    for expected in (2.0, 2.0, 2.0):
        found._look()
        assert found.bound == expected
        assert not found.N.any()
    found._look()
    assert found.bound == 1
    assert np.allclose(found.N, N / scale**2, rtol=1e-12)
    assert asked[0][0] is found.region
    assert asked[0][1] is V


@pytest.mark.parametrize("scale", [0.0, np.nan, np.inf])
def test_a_look_at_multipliers_without_scale_changes_nothing(monkeypatch: pytest.MonkeyPatch, scale: float) -> None:
    found = RegionRelaxation(SignRegion.whole(data()[0]), data()[1])
    W = np.full_like(found.V, scale)
    monkeypatch.setattr(type(found.splitting), "V", property(lambda self: W))
    monkeypatch.setattr(SignRegion, "bound", lambda self, V, N: 0.0)
    before = found.bound
    found._look()
    assert found.bound == before
    found._look()
    assert not found.N.any()


def test_halves_inherit_the_bound_and_the_state() -> None:
    x, V = data(5, 2, 1)
    found = RegionRelaxation(SignRegion.whole(x), V)
    found.run(0.0, 1e-6, 100)
    plus, minus = found.split()
    row = int(np.flatnonzero(plus.region.signs)[0])
    assert plus.region.signs[row] == 1
    assert minus.region.signs[row] == -1
    assert np.abs(plus.region.signs).sum() == 1
    for half in (plus, minus):
        assert half.bound == min(found.bound, elementary(half.region, V))
        assert np.array_equal(half.splitting.state, found.splitting.state)
        assert half.splitting.penalty == found.splitting.penalty
        assert half.splitting.steps == 0
        assert half.V is V


def test_a_split_is_at_the_row_that_the_moments_and_v_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    x, V = data(5, 2, 2)
    found, asked = RegionRelaxation(SignRegion.whole(x), V), []
    monkeypatch.setattr(module, "row_to_cut", lambda *args: asked.append(args) or 3)
    assert [half.region.signs[3] for half in found.split()] == [1, -1]
    assert asked[0][0] is found.region
    assert np.array_equal(asked[0][1], found.splitting.moments[0])
    assert np.allclose(asked[0][2], [np.sqrt(v @ v) for v in V])
    monkeypatch.setattr(module, "row_to_cut", lambda *args: 0)
    assert len(found.split()) == 2
    monkeypatch.setattr(module, "row_to_cut", lambda *args: None)
    assert found.split() == []


@pytest.mark.parametrize("above", [0.0, 50.0])
def test_the_oracle_passes_on_what_it_was_asked(monkeypatch: pytest.MonkeyPatch, above: float) -> None:
    X, V, seeds = normal(6, 3), normal(6, 2, seed=1), normal(1, 3, seed=2)
    oracle = SemidefiniteBound(X, tol=0.25, max_steps=70, starts=5)
    searched, runs = [], []
    known = SteepestNeurons(Bracket(1.5, np.inf), oracle.X[:2], torch.tensor([1.5, 1.0], dtype=torch.float64))

    class Search(reduction.LocalSearch):
        def _steepest(self, *args: object) -> SteepestNeurons:
            searched.append((self.X, self.starts, *args))
            return known

    monkeypatch.setattr(reduction, "LocalSearch", Search)
    monkeypatch.setattr(RegionRelaxation, "run", lambda self, *args: runs.append((self, *args)) or 0.75)
    found = oracle._steepest(V, above, seeds)
    assert torch.allclose(searched[0][0], oracle.X)
    assert searched[0][1] == 5
    assert searched[0][2] is V
    assert searched[0][3:] == (above, seeds)
    norm, size = float(torch.linalg.vector_norm(V)), oracle._scaled.size
    relaxed, enough, tol, steps = runs[0]
    assert enough == pytest.approx(max(above, 1.5) / (size * norm), rel=1e-13)
    assert (tol, steps) == (0.25, 70)
    assert np.allclose(relaxed.V, V.numpy() / norm, rtol=1e-14)
    assert relaxed.region.x is oracle._scaled.x
    assert found.bracket.upper == pytest.approx(0.75 * norm * size, rel=1e-12)
    assert found.bracket.upper >= oracle._scaled.bound(norm * 0.75, norm)
    assert found.bracket.lower == 1.5
    assert found.neurons is known.neurons
    assert found.values is known.values


def test_settings_have_the_documented_defaults_and_data_are_normalised() -> None:
    oracle = SemidefiniteBound(normal(5, 3))
    assert (oracle.tol, oracle.max_steps, oracle.starts) == (1e-3, 1500, 64)
    assert torch.allclose(torch.linalg.vector_norm(oracle.X, dim=1), torch.ones(5, dtype=torch.float64))
    rebuilt = oracle._scaled.size * oracle._scaled.x @ oracle._scaled.frame.T
    assert np.allclose(rebuilt, oracle.X.numpy(), atol=1e-13)
