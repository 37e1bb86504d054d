"""Ridge searches: where they start, when they end, what they report, and in which precision."""

import pytest
import torch

from bidual.polar import LocalSearch, RidgeSearch, steepness
from bidual.polar.ascents import ascend, unit
from bidual.polar.ridges import _BATCHES
from helpers.draws import normal


def test_a_ridge_search_climbs_from_its_seeds_and_lists_what_is_above() -> None:
    """In many dimensions a few random starts do not find what a long search found."""
    X, V = normal(80, 30), normal(80, 1, seed=1)
    best = RidgeSearch(X, starts=400, seed=5).steepest(V)
    few = RidgeSearch(X, starts=4).steepest(V)
    seeded = RidgeSearch(X, starts=4).steepest(V, seeds=best.neurons[:1])
    assert few.bracket.lower < 0.999 * best.bracket.lower
    assert seeded.bracket.lower >= best.bracket.lower * (1 - 1e-9)
    assert len(RidgeSearch(X, starts=4).steepest(V, above=1e9).neurons) == 1
    assert RidgeSearch(X, starts=4).steepest(V).bracket.lower == few.bracket.lower


def test_a_ridge_search_draws_directions_along_which_the_rows_move_alike() -> None:
    search = RidgeSearch(normal(50, 3) * torch.tensor([1.0, 30.0, 5.0]).double(), starts=2000)
    drawn = search._drawn()
    assert drawn.shape == (2000, 3)
    reach = search.X.square().mean(0) * drawn.square().mean(0)
    torch.testing.assert_close(reach, torch.ones(3).double(), rtol=0.2, atol=0)


def test_a_ridge_search_where_nothing_is_steep_finds_nothing() -> None:
    X, V = torch.tensor([[1.0], [2.0]]).double(), torch.tensor([[2.0], [-1.0]]).double()
    assert RidgeSearch(X, starts=4).steepest(V).bracket.lower == 0


def test_a_ridge_search_starts_around_every_seed() -> None:
    X, seeds = normal(50, 8), normal(5, 8, seed=2)
    away = torch.cdist(RidgeSearch(X, starts=20)._around(seeds), unit(seeds))
    assert torch.bincount(away.argmin(1), minlength=5).tolist() == pytest.approx([8] * 5, abs=2)  # 40 for five seeds
    assert 0.01 < float(away.amin(1).min()) < 0.15 < 0.3 < float(away.amin(1).max()) < 1.5


@pytest.mark.parametrize("make", [LocalSearch, RidgeSearch])
def test_equal_seeds_find_the_same_and_nothing_global_is_drawn_from(
    make: type[LocalSearch] | type[RidgeSearch],
) -> None:
    X, V = normal(30, 8), normal(30, 2, seed=1)
    before = torch.get_rng_state()
    found, same, other = (make(X, starts=20, seed=seed).steepest(V) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(found.neurons, same.neurons)
    assert not torch.equal(found.neurons, other.neurons)


def test_a_ridge_search_is_not_below_the_local_search_it_starts_from() -> None:
    for seed in range(4):
        X, V = normal(25, 6, seed=seed), normal(25, 2, seed=seed + 9)
        local = LocalSearch(X, 16, seed=seed).steepest(V).bracket.lower
        found = RidgeSearch(X, starts=16, seed=seed).steepest(V)
        assert found.bracket.lower >= local * (1 - 1e-12)
        assert len(found.neurons) <= 16 + 32 + 4 + 1
        torch.testing.assert_close(steepness(X, V, found.neurons), found.values, rtol=1e-9, atol=0)


def test_of_many_samples_some_are_enough_to_find_a_planted_neuron() -> None:
    """Slopes that a known neuron made: no neuron is steeper than it, and the search comes near."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(8000, 4, generator=generator, dtype=torch.float64)
    u = torch.tensor([0.6, 0.0, 0.8, 0.0], dtype=torch.float64)
    V = (X @ u).clamp(min=0)[:, None] - (X @ u).clamp(min=0).mean()
    found = RidgeSearch(X, starts=16).steepest(V).bracket.lower
    grid = torch.nn.functional.normalize(torch.randn(20_000, 4, generator=generator, dtype=torch.float64), dim=1)
    best = max(float(((X @ some.T).clamp(min=0).T @ V).norm(dim=1).max()) for some in grid.split(2000))
    assert found >= best * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_a_search_climbs_longer_before_it_says_that_nothing_is_above_a_threshold(seed: int) -> None:
    X, V = normal(120, 20, seed=seed), normal(120, 1, seed=100 + seed)
    brief, long = (RidgeSearch(X, 48).steepest(V, above, None) for above in (0.0, 1e9))
    assert long.bracket.lower > brief.bracket.lower * (1 + 1e-9)  # in double precision
    U = long.neurons[:1]
    assert long.bracket.lower == pytest.approx(float((V.T @ (X @ U.T).clamp(min=0)).norm()))  # and it is one


@pytest.mark.parametrize("c", [1, 3])
def test_what_single_precision_finds_is_reported_in_double(c: int, monkeypatch: pytest.MonkeyPatch) -> None:
    precisions = list[torch.dtype]()

    def noted(X: torch.Tensor, V: torch.Tensor, U: torch.Tensor, **given: int) -> torch.Tensor:
        precisions.append(U.dtype)
        return ascend(X, V, U, **given)

    monkeypatch.setattr("bidual.polar.ridges.ascend", noted)
    X, V = normal(60, 6), normal(60, c, seed=1)
    found = RidgeSearch(X, starts=12).steepest(V, above=0.3 * float(V.norm()))
    assert set(precisions) == {torch.float32}
    hidden = (X @ found.neurons.T).clamp(min=0)
    exact = torch.stack([(V.T @ h).norm() for h in hidden.T])
    assert found.values.dtype is torch.float64
    torch.testing.assert_close(found.values, exact, rtol=1e-13, atol=0)
    torch.testing.assert_close(found.neurons.norm(dim=1), torch.ones(len(exact)).double(), rtol=1e-14, atol=0)
    assert found.bracket.lower == float(found.values[0])


def test_a_search_that_finds_enough_ends_and_one_that_finds_nothing_starts_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[tuple[torch.dtype, int]]()

    def noted(X: torch.Tensor, V: torch.Tensor, U: torch.Tensor, **given: int) -> torch.Tensor:
        asked.append((U.dtype, len(U)))
        return ascend(X, V, U, **given)

    monkeypatch.setattr("bidual.polar.ridges.ascend", noted)
    X, V = normal(40, 4), normal(40, 1, seed=1)
    search, seeds = RidgeSearch(X, starts=8), normal(3, 4, seed=2)
    steepest = search.steepest(V, 0.0, seeds).bracket.lower
    assert asked == [(torch.float32, 3 + 8 + 16)]
    asked.clear()
    search.steepest(V, 2 * steepest, seeds)
    assert [dtype for dtype, _ in asked] == [*[torch.float32] * _BATCHES, torch.float64]


def test_a_search_begins_at_what_the_last_one_found() -> None:
    """In many dimensions other random starts seldom lead there, and the slopes hardly moved."""
    X, V = normal(80, 30), normal(80, 1, seed=1)
    search = RidgeSearch(X, starts=4)
    search._peaks = RidgeSearch(X, starts=400, seed=5).steepest(V).neurons[:1]
    known, seeds = float(steepness(X, V, search._peaks)), normal(1, 30, seed=3)
    assert RidgeSearch(X, starts=4).steepest(V, seeds=seeds).bracket.lower < 0.999 * known
    assert search.steepest(V, seeds=seeds).bracket.lower >= known * (1 - 1e-6)


def test_on_orthonormal_rows_the_steepest_neuron_takes_all_slopes_of_one_sign() -> None:
    """X = Q^T: |V^T (X u)_+| is at most the length of the positive part of V, or of the negative one."""
    Q = torch.linalg.qr(normal(12, 12))[0]
    V = normal(12, 1, seed=1)
    found = RidgeSearch(Q, starts=16).steepest(V).bracket.lower
    assert found == pytest.approx(max(float(V.clamp(min=0).norm()), float(V.clamp(max=0).norm())), rel=1e-6)
