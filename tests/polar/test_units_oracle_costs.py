"""Which oracle is chosen: counts of faces, and limits at which the choice changes."""

from math import comb

import pytest
import torch

from bidual.patterns import enumeration_bytes
from bidual.polar import oracle_costs
from bidual.polar.oracle_costs import affordable, cuttable, face_count, slow, sphere_for


def cells(n: int, k: int) -> int:
    """Cells of n hyperplanes through the origin in general position in R^k."""
    return 2 * sum(comb(n - 1, j) for j in range(k)) if n else 1


@pytest.mark.parametrize(("n", "r"), [(5, 2), (5, 3), (9, 4), (20, 5)])
def test_faces_are_the_cells_of_flats_of_every_dimension_from_two(n: int, r: int) -> None:
    expected = sum(comb(n, r - k) * cells(n - (r - k), k) for k in range(2, r + 1))
    assert face_count(n, r) == expected


def test_small_counts_of_faces_are_known() -> None:
    """n lines of a plane make 2 n arcs; n planes in space make n such circles, and n (n - 1) + 2 cells."""
    assert [face_count(7, r) for r in (0, 1)] == [2, 2]
    assert face_count(7, 2) == 14
    assert face_count(7, 3) == 7 * 12 + (7 * 6 + 2)


def plenty(monkeypatch: pytest.MonkeyPatch, room: int = 10**18) -> None:
    def there(device: torch.device) -> int:
        assert device.type == "cpu"
        return room

    monkeypatch.setattr(oracle_costs, "available_bytes", there)


def test_the_exact_oracle_is_affordable_up_to_its_number_of_faces(monkeypatch: pytest.MonkeyPatch) -> None:
    plenty(monkeypatch)
    monkeypatch.setattr(oracle_costs, "_AFFORDABLE_BYTES", 10**18)
    n = max(n for n in range(10, 2000) if face_count(n, 3) <= 1_500_000)
    assert affordable(n, 3)
    assert not affordable(n + 1, 3)
    monkeypatch.setattr(oracle_costs, "_AFFORDABLE_FACES", face_count(50, 3))
    assert affordable(50, 3)
    assert not affordable(51, 3)


def test_planes_are_always_affordable(monkeypatch: pytest.MonkeyPatch) -> None:
    plenty(monkeypatch, 0)
    assert affordable(10**7, 2)
    assert affordable(10**7, 1)
    assert not affordable(10, 3)


def test_the_exact_oracle_may_take_half_of_the_memory_that_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    need = enumeration_bytes(50, 4)
    plenty(monkeypatch, 2 * need)
    assert affordable(50, 4)
    plenty(monkeypatch, 2 * need - 2)
    assert not affordable(50, 4)


def test_the_exact_oracle_may_take_three_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    plenty(monkeypatch)
    monkeypatch.setattr(oracle_costs, "enumeration_bytes", lambda n, r: 3_000_000_000)
    assert affordable(20, 3)
    monkeypatch.setattr(oracle_costs, "enumeration_bytes", lambda n, r: 3_000_000_001)
    assert not affordable(20, 3)


def test_a_question_is_slow_beyond_a_hundred_thousand_faces(monkeypatch: pytest.MonkeyPatch) -> None:
    n = max(n for n in range(10, 2000) if face_count(n, 3) <= 100_000)
    assert not slow(n, 3)
    assert slow(n + 1, 3)
    monkeypatch.setattr(oracle_costs, "_QUICK_FACES", face_count(20, 3))
    assert not slow(20, 3)


@pytest.mark.parametrize(
    ("n", "r", "max_time", "copes"),
    [
        (100, 5, None, True),
        (100, 6, None, False),
        (100, 6, 1.0, True),
        (100, 7, 1.0, False),
        (20_000, 5, None, True),
        (20_001, 5, None, False),
        (20_001, 2, 1.0, False),
    ],
)
def test_the_sphere_is_cut_for_low_ranks_and_not_too_many_samples(
    n: int, r: int, max_time: float | None, copes: bool
) -> None:
    assert cuttable(n, r, max_time) is copes


@pytest.mark.parametrize(("max_time", "cells"), [(None, 250_000), (3.0, 2_000_000)])
@pytest.mark.parametrize(("tol", "used"), [(1e-3, 1e-3), (0.0, 1e-9), (1e-12, 1e-9)])
def test_a_sphere_has_a_limit_of_cells_and_a_time_if_given(
    max_time: float | None, cells: int, tol: float, used: float
) -> None:
    X = torch.eye(3, dtype=torch.float64)
    sphere = sphere_for(X, tol, max_time)
    assert (sphere.tol, sphere.max_time, sphere.max_simplices) == (used, max_time, cells)
    assert sphere.is_for(X)
