"""All activation patterns against brute force: every sign vector is decided by a linear program."""

from math import comb

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from bidual import patterns
from bidual.papers.methods.sampled_patterns import sample
from bidual.testing import own_checks_only
from helpers.draws import normal
from oracles.pattern_oracle import all_patterns


def matrix(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def rows_of(active: Tensor) -> list[tuple[bool, ...]]:
    return [tuple(row) for row in active.tolist()]


def check(X: Tensor) -> patterns.Patterns:
    """The patterns are those of brute force, once each, with directions that have them, inside the row space."""
    found = patterns.enumerate(X)
    listed = rows_of(found.active)
    assert len(set(listed)) == len(listed)
    assert set(listed) == all_patterns(X.numpy())
    check_directions(X, found)
    return found


def check_directions(X: Tensor, found: patterns.Patterns) -> None:
    nonzero = X.abs().amax(1) > 0
    hidden = found.directions @ X.T
    assert torch.equal((hidden > 0)[:, nonzero], found.active[:, nonzero])
    assert bool(found.active[:, ~nonzero].all())
    projector = torch.linalg.pinv(X) @ X
    assert torch.allclose(found.directions @ projector, found.directions, atol=1e-9)


@pytest.mark.parametrize("r", range(1, 6))
@pytest.mark.parametrize("n", [6, 12])
def test_generic_data_have_the_count_of_the_formula(n: int, r: int) -> None:
    X = normal(n, r, seed=10 * n + r)
    found = patterns.enumerate(X)
    assert len(found) == 2 * sum(comb(n - 1, k) for k in range(r)) == patterns.count_bound(n, r)
    assert len(set(rows_of(found.active))) == len(found)
    check_directions(X, found)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("n", "d"), [(8, 1), (8, 2), (7, 3), (7, 4), (5, 5), (4, 7), (1, 3), (1, 1)])
def test_generic_data_against_brute_force(n: int, d: int, seed: int) -> None:
    check(normal(n, d, seed=seed))


def rank_two_in_four() -> Tensor:
    return normal(7, 2) @ normal(2, 4, seed=1)


DEGENERATE: dict[str, Tensor] = {
    "repeated rows": normal(3, 3).repeat(2, 1),
    "multiples of rows": torch.cat([normal(3, 3), 2.5 * normal(3, 3)]),
    "opposite rows": torch.cat([normal(3, 3), -normal(3, 3)]),
    "zero rows": torch.cat([normal(4, 3), torch.zeros(2, 3, dtype=torch.float64)]),
    "collinear rows": normal(6, 1) @ normal(1, 3, seed=1),
    "three rows of one plane": torch.cat([normal(2, 3), normal(2, 3).sum(0, keepdim=True), normal(2, 3, seed=1)]),
    "grid in the plane": matrix([1, 0], [0, 1], [1, 1], [1, -1], [2, 1], [1, 2], [-1, -1], [2, 2]),
    "grid in space": matrix([1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 1, 1], [1, -1, 0]),
    "cube": matrix([1, 1, 1], [1, 1, -1], [1, -1, 1], [-1, 1, 1], [1, -1, -1], [-1, -1, -1]),
    "braid": matrix([1, -1, 0, 0], [1, 0, -1, 0], [1, 0, 0, -1], [0, 1, -1, 0], [0, 1, 0, -1], [0, 0, 1, -1]),
    "identity": torch.eye(5, dtype=torch.float64),
    "rank two in four columns": rank_two_in_four(),
    "constant column": torch.cat([matrix([0], [1], [1], [2], [5], [-3]), torch.ones(6, 1, dtype=torch.float64)], 1),
    "rows of many lengths": torch.cat([1e4 * normal(2, 3), 1e-4 * normal(3, 3, seed=1)]),
    "all positive": normal(7, 2).abs(),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_data_against_brute_force(name: str) -> None:
    check(DEGENERATE[name])


def test_counts_that_are_known() -> None:
    assert len(patterns.enumerate(DEGENERATE["braid"])) == 24  # the braid arrangement has 4! regions
    assert len(patterns.enumerate(DEGENERATE["identity"])) == 2**5
    assert len(patterns.enumerate(DEGENERATE["collinear rows"])) == 2
    assert len(patterns.enumerate(DEGENERATE["rank two in four columns"])) == patterns.count_bound(7, 2)


@pytest.mark.parametrize("shape", [(3, 2), (3, 0), (0, 2), (0, 0), (1, 1)])
def test_rank_zero_has_one_pattern_where_all_are_active(shape: tuple[int, int]) -> None:
    found = patterns.enumerate(torch.zeros(shape, dtype=torch.float64))
    assert found.active.tolist() == [[True] * shape[0]]
    assert found.directions.shape == (1, shape[1])


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.data())
def test_small_integers_against_brute_force(data: st.DataObject) -> None:
    n, d = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 4))
    X = data.draw(arrays(np.float64, (n, d), elements=st.integers(-2, 2).map(float)).filter(np.any))
    check(torch.tensor(X))


@pytest.mark.parametrize("scale", [1e-150, 1e-8, 1e8, 1e150])
def test_the_patterns_do_not_depend_on_the_scale(scale: float) -> None:
    X = DEGENERATE["grid in space"]
    assert set(rows_of(patterns.enumerate(scale * X).active)) == set(rows_of(patterns.enumerate(X).active))


def test_single_precision_is_taken_and_returned() -> None:
    found = patterns.enumerate(DEGENERATE["cube"].float())
    assert found.directions.dtype is torch.float32
    assert set(rows_of(found.active)) == all_patterns(DEGENERATE["cube"].numpy())


@pytest.mark.parametrize("count", [1, 5, 1000])
def test_sampled_patterns_are_different_and_among_all(count: int) -> None:
    X = DEGENERATE["grid in space"]
    found = sample(X, count, seed=3)
    every = set(rows_of(patterns.enumerate(X).active))
    assert len(set(rows_of(found.active))) == len(found) <= count
    assert set(rows_of(found.active)) <= every
    assert count < 1000 or set(rows_of(found.active)) == every
    assert torch.equal(found.directions @ X.T >= 0, found.active)
    assert torch.equal(found.active, sample(X, count, seed=3).active)


def test_the_bound_counts_at_most_all_sign_vectors() -> None:
    assert [patterns.count_bound(n, n) for n in range(1, 8)] == [2**n for n in range(1, 8)]
    assert patterns.count_bound(100, 3) == 9902
    assert patterns.count_bound(40, 4) == 19840
    assert patterns.count_bound(5, 0) == 1
    for n, r in [(3, 4), (-1, 0), (3, -1)]:
        with pytest.raises(ValueError, match="a rank r between 0 and n is needed"):
            patterns.count_bound(n, r)


def test_more_than_the_memory_is_refused_with_count_bytes_and_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bidual.patterns.enumeration.available_bytes", lambda device: 10**6)
    words = r"^100 samples of rank 3 have up to 9,902 activation patterns, .* need \S+ MB, and 1 MB are free; use "
    with pytest.raises(ValueError, match=words + r"oracle='search'\.$"):
        patterns.enumerate(normal(100, 3))
    assert len(patterns.enumerate(normal(20, 3))) == patterns.count_bound(20, 3)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_data_that_are_not_finite_are_refused(bad: float) -> None:
    X = normal(4, 2)
    X[1, 1] = bad
    with pytest.raises(ValueError, match="X must be a finite matrix"):
        patterns.enumerate(X)


def test_bad_arguments_are_refused() -> None:
    with own_checks_only(), pytest.raises(ValueError, match="X must be a finite matrix"):
        patterns.enumerate(normal(4, 2)[0])
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        sample(normal(4, 2), 0, seed=0)
