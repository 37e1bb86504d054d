"""Which oracle is chosen: counts of faces, and limits at which the choice changes."""

from math import comb

import pytest
import torch

from bidual.polar.exact import faces
from bidual.polar.exact.faces import affordable, face_count


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

    monkeypatch.setattr(faces, "available_bytes", there)


def test_the_exact_oracle_is_affordable_up_to_its_number_of_faces(monkeypatch: pytest.MonkeyPatch) -> None:
    plenty(monkeypatch)
    monkeypatch.setattr(faces, "_AFFORDABLE_BYTES", 10**18)
    n = max(n for n in range(10, 2000) if face_count(n, 3) <= 1_500_000)
    assert affordable(n, 3)
    assert not affordable(n + 1, 3)
    monkeypatch.setattr(faces, "_AFFORDABLE_FACES", face_count(50, 3))
    assert affordable(50, 3)
    assert not affordable(51, 3)


def test_planes_are_always_affordable(monkeypatch: pytest.MonkeyPatch) -> None:
    plenty(monkeypatch, 0)
    assert affordable(10**7, 2)
    assert affordable(10**7, 1)
    assert not affordable(10, 3)
