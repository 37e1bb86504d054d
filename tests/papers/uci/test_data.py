from pathlib import Path

import numpy as np
import pytest

from bidual.papers.uci.data import NAMES, SHAPES, load_uci, read_uci
from helpers.places import SHARED

GOOD = "f0,f1,label\n1,2.5,0\n-3,4e-1,1\n0,0,0\n1,1,1\n"
HALVES, FOLDS = "0 1\n2 3\n", "0 1 2\n3\n1 2 3\n0\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The set balloons with four rows, and its splits."""
    monkeypatch.setattr("bidual.papers.uci.data.SHAPES", {**SHAPES, "balloons": (4, 2)})
    (tmp_path / "uci/splits").mkdir(parents=True)
    (tmp_path / "uci/balloons.csv").write_text(GOOD)
    (tmp_path / "uci/splits/balloons.conxuntos.dat").write_text(HALVES)
    (tmp_path / "uci/splits/balloons.conxuntos_kfold.dat").write_text(FOLDS)
    return tmp_path


def test_samples_labels_and_splits(folder: Path) -> None:
    data = load_uci("Balloons", folder)
    np.testing.assert_array_equal(data.X, [[1, 2.5], [-3, 0.4], [0, 0], [1, 1]])
    assert (data.y.tolist(), data.y.dtype, data.X.dtype) == ([0, 1, 0, 1], np.int64, np.float64)
    assert data.halves is not None
    assert data.halves.test.tolist() == [2, 3]
    assert [rows.test.tolist() for rows in data.folds] == [[3], [0]]


def test_splits_may_be_missing(folder: Path) -> None:
    for path in (folder / "uci/splits").iterdir():
        path.unlink()
    data = load_uci("balloons", folder / "uci")
    assert (data.halves, data.folds) == (None, ())


@pytest.mark.parametrize("text", ["0 1\n", "0 1\n2 2\n", "0 1\n2 4\n", "0 x\n2 3\n", "0\n1 2\n", ""])
def test_bad_splits_are_refused(folder: Path, text: str) -> None:
    (folder / "uci/splits/balloons.conxuntos.dat").write_text(text)
    with pytest.raises(ValueError, match=r"balloons\.conxuntos\.dat must hold"):
        load_uci("balloons", folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no CSV file"),
        ("f0,label\n1,0,3,4\n2\n3,4,5,6,7\n", r"no CSV file|must have the columns|must hold finite"),
        ("f0,f2,label\n1,2,0\n1,2,1\n", "must have the columns f0, f1, ..., label, got f0, f2, label"),
        ("label\n0\n1\n", "must have the columns"),
        ("f0,label\n1,0\nx,1\n", "finite numbers, got 'x' in column f0 of line 3"),
        ("f0,label\n1,0\n,1\n", "finite numbers, got 'nan' in column f0 of line 3"),
        ("f0,label\n1,0\ninf,1\n", "finite numbers, got 'inf'"),
        ("f0,label\n1,0\n2,0\n", "must have two values"),
        ("f0,label\n1,0\n2,1.5\n", "whole numbers"),
    ],
)
def test_bad_tables_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_uci(tmp_path / "x.csv")


def test_a_table_of_another_shape_is_refused(folder: Path) -> None:
    (folder / "uci/balloons.csv").write_text(GOOD + "1,1,1\n")
    with pytest.raises(ValueError, match=r"balloons\.csv has shape \(5, 2\), and the set \(4, 2\)"):
        load_uci("balloons", folder)


def test_missing_and_unknown_sets(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"trains\.csv was looked for in .*uci, .*no official download"):
        load_uci("trains", folder)
    with pytest.raises(ValueError, match=r"unknown data set 'baloons' \(did you mean balloons"):
        load_uci("baloons", folder)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the UCI sets are not in ../shared/data")
@pytest.mark.parametrize("name", [*NAMES, "congressional-voting-corrected"])
def test_the_sets_of_the_study(name: str) -> None:
    data = load_uci(name, SHARED)
    assert data.X.shape == SHAPES[name.removesuffix("-corrected")]
    assert set(data.y.tolist()) == {0, 1}
    assert len(data.folds) == 4
    assert len(NAMES) == 21
