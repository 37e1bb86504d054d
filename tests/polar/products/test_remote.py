"""Cells in another process: the same numbers as in this one, whatever happens to it."""

import os
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from bidual.polar.products.coordinates import Coordinates
from bidual.polar.products.helper import _WORKER, Helper
from bidual.polar.products.soft_bound import SoftBound, halves
from bidual.runtime.helper_process import HelperLostError, HelperProcess
from helpers.product_cases import draw, places

pytestmark = pytest.mark.skipif(os.name != "posix", reason="helpers are for POSIX systems")
Found = tuple[float, np.ndarray, np.ndarray]


def helped(process: HelperProcess) -> Helper:
    """A helper that has this process already."""
    helper = Helper()
    helper.over, helper.process = False, process
    return helper


def started() -> Helper:
    process = HelperProcess(_WORKER)
    assert process.answer(120) == "ready"
    process._ready = True
    return helped(process)


@pytest.fixture(scope="module")
def helper() -> Iterator[Helper]:
    with started() as found:
        yield found


def some(c: int = 1, clustered: bool = False) -> tuple[list[Coordinates], np.ndarray, np.ndarray]:
    made = list(places(c, clustered))
    return [place for place, _ in made], made[0][1].numpy(), torch.cat([place.vector for place, _ in made]).numpy()


def same(one: Found | None, two: Found | None) -> None:
    assert one is not None
    assert two is not None
    for mine, other in zip(one, two, strict=True):
        np.testing.assert_allclose(other, mine, rtol=1e-12, atol=1e-12 * np.abs(mine).max())


@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("c", [1, 2])
def test_values_and_slopes_are_those_of_one_process(helper: Helper, c: int, clustered: bool) -> None:
    """In cells with and without signs and fixed rows, at several points one after another."""
    cells, V, vector = some(c, clustered)
    alone, shared = SoftBound(cells), SoftBound(cells, helper)
    for seed, width in enumerate((0.01, 1.0, 10.0)):
        V = V + 0.1 * draw(*V.shape, seed=seed).numpy()
        same(alone(V, vector, width), shared(V, vector, width))
    assert shared.remote is not None
    assert sorted([*shared.here, *shared.there]) == list(range(len(cells)))


@pytest.mark.parametrize("far", [False, True])
def test_where_a_cell_has_no_bound_there_is_none_and_the_next_point_has_one(helper: Helper, far: bool) -> None:
    cells, V, vector = some()
    shared = SoftBound(cells, helper)
    same(SoftBound(cells)(V, vector, 0.1), shared(V, vector, 0.1))
    broken = vector.copy()
    broken[shared.parts[(shared.there if far else shared.here)[0]].start] = np.nan
    assert shared(V, broken, 0.1) is None
    same(SoftBound(cells)(V, vector, 0.1), shared(V, vector, 0.1))


def test_results_are_not_written_over(helper: Helper) -> None:
    cells, V, vector = some()
    shared = SoftBound(cells, helper)
    first = shared(V, vector, 0.1)
    shared(2 * V, vector, 0.1)
    same(SoftBound(cells)(V, vector, 0.1), first)


def test_one_cell_is_not_shared(helper: Helper) -> None:
    cells, V, _ = some()
    bound = SoftBound(cells[:1], helper)
    assert bound(V, cells[0].vector.numpy(), 0.1) is not None
    assert bound.remote is None


def test_cells_are_divided_by_their_cost() -> None:
    assert halves([1, 1]) == ([0], [1])
    assert halves([1, 5, 2, 2]) == ([1], [2, 3, 0])


@pytest.fixture
def killed() -> Iterator[Helper]:
    with started() as found:
        yield found


def test_a_helper_that_is_killed_midway_changes_no_number(
    killed: Helper, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Between the forms and the slopes; afterwards there is one process, and one line in the log."""
    cells, V, vector = some(2)
    alone, shared = SoftBound(cells), SoftBound(cells, killed)
    same(alone(V, vector, 0.1), shared(V, vector, 0.1))
    remote, process = shared.remote, killed.process
    assert remote is not None
    assert process is not None
    begin = remote.begin_slopes

    def die(roots: list[np.ndarray]) -> None:
        process.process.kill()
        begin(roots)

    monkeypatch.setattr(remote, "begin_slopes", die)
    with caplog.at_level("INFO", logger="bidual"):
        same(alone(2 * V, vector, 0.1), shared(2 * V, vector, 0.1))
    assert shared.remote is None
    assert process.process.returncode is not None
    assert [record.message for record in caplog.records] == [
        "The proof goes on in one process: the helper process has ended."
    ]
    same(alone(V, vector, 0.1), shared(V, vector, 0.1))


def test_cells_that_others_replaced_are_computed_here(helper: Helper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper, "close", lambda: None)
    (cells, V, vector), (others, W, other) = some(1), some(2)
    first, second = SoftBound(cells, helper), SoftBound(others, helper)
    first(V, vector, 0.1)
    second(W, other, 0.1)
    same(SoftBound(cells)(V, vector, 0.1), first(V, vector, 0.1))
    same(SoftBound(others)(W, other, 0.1), second(W, other, 0.1))


def test_a_helper_without_gain_is_given_up(helper: Helper) -> None:
    cells, V, vector = some()
    shared = SoftBound(cells, helper)
    shared(V, vector, 0.1)
    remote = shared.remote
    assert remote is not None
    remote._worked, remote._passed = 3.0, 2.9 * (1 + remote.share)
    remote.check_gain()
    assert remote._worked == remote._passed == 0
    remote._worked, remote._passed = 3.0, 3.1 * (1 + remote.share)
    with pytest.raises(HelperLostError, match="busy"):
        remote.check_gain()
