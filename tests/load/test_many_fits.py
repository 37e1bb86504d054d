"""Many fits in one process: memory stays, and every fit is what it is alone.

The tolerance of growth is stated as a constant: allocators keep some memory back, a leak of a fit's arrays would show
many times that.
"""

import json
import warnings
from pathlib import Path

import joblib
import pytest

import load

GROWTH = 15.0  # megabytes, over a whole load


def stays(one: load.Load) -> bool:
    assert one.different == 0
    assert one.growth < GROWTH, f"{one.growth:.1f} MB more after {one.fits} fits"
    return True


def test_some_in_a_row_and_in_threads() -> None:
    assert stays(load.in_a_row(24, warm_up=8, seeds=8))
    assert stays(load.in_threads(24, warm_up=8, seeds=8, threads=8))


@pytest.mark.slow
def test_a_thousand_in_a_row() -> None:
    assert stays(load.in_a_row(1000, warm_up=200, seeds=40))


@pytest.mark.slow
def test_two_hundred_in_eight_threads() -> None:
    assert stays(load.in_threads(200, warm_up=100, seeds=40, threads=8))


@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)])
def test_joblib(backend: str) -> None:
    seeds = range(8)
    found = joblib.Parallel(2, backend=backend)(joblib.delayed(load.one_fit)(seed) for seed in seeds)
    assert found == [load.one_fit(seed) for seed in seeds]


def test_fits_in_threads_leave_the_filters_of_warnings() -> None:
    before = list(warnings.filters)
    load.in_threads(16, warm_up=1, seeds=4, threads=4)
    assert list(warnings.filters) == before


def test_the_script_writes_its_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load.main(["--fits", "10", "--threads", "2", "--out", str(tmp_path)])
    rows = json.loads((tmp_path / "load.json").read_text())
    assert [row["fits"] for row in rows] == [10, 2]
    assert capsys.readouterr().out.count("0 different") == 2
