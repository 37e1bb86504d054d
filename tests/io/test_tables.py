import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bidual.io.tables import TableEncoder, guess_task, read_table, split_target, target_values

FRAME = pd.DataFrame({"size": [1.0, 2.0, None, 5.0], "colour": ["red", None, "blue", "red"], "big": [True, False] * 2})


def encoded(frame: pd.DataFrame) -> pd.DataFrame:
    return TableEncoder().fit(frame).transform(frame)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_tables_are_read_by_suffix(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"t{suffix}"
    FRAME.to_csv(path, index=False) if suffix == ".csv" else FRAME.to_parquet(path)
    frame = read_table(path)
    assert list(frame.columns) == list(FRAME.columns)
    np.testing.assert_array_equal(encoded(frame), encoded(FRAME))


BAD_FILES: dict[str, tuple[str, bytes, str]] = {
    "empty": ("t.csv", b"", "is empty"),
    "blank": ("t.csv", b"\n\n", "is empty"),
    "no rows": ("t.csv", b"a,b\n", "no rows"),
    "ragged": ("t.csv", b"a,b\n1,2\n1,2,3,4\n", "cannot read .* as csv"),
    "unnamed": ("t.csv", b"a,b\n1,2,3\n4,5,6\n", "more fields than its header"),
    "binary": ("t.csv", b"\xff\xfe\x00\x81" * 9, "cannot read .* as csv"),
    "parquet": ("t.parquet", b"PAR1 but not really", "cannot read .* as parquet"),
    "suffix": ("t.xlsx", b"x", "use .csv or .parquet"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_files_that_are_no_tables(name: str, tmp_path: Path) -> None:
    file, content, message = BAD_FILES[name]
    (tmp_path / file).write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_table(tmp_path / file)
    assert "\n" not in str(caught.value)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such file"):
        read_table(tmp_path / "t.csv")
    with pytest.raises(ValueError, match="is a folder"):
        read_table(tmp_path)


def test_split_target() -> None:
    features, y = split_target(FRAME, "big")
    assert list(features.columns) == ["size", "colour"]
    assert y.tolist() == [True, False] * 2
    with pytest.raises(ValueError, match="no column 'color'; did you mean 'colour'"):
        split_target(FRAME, "color")
    with pytest.raises(ValueError, match="missing in 1 of 4 rows"):
        split_target(FRAME, "size")
    with pytest.raises(ValueError, match="only column"):
        split_target(FRAME[["big"]], "big")


TARGETS: dict[str, tuple[pd.Series, str, str]] = {
    "texts": (pd.Series(["a", "b"]), "classification", "U"),
    "truth": (pd.Series([True, False]), "classification", "b"),
    "categories": (pd.Series(["a", "b"], dtype="category"), "classification", "U"),
    "number categories": (pd.Series([1, 2], dtype="category"), "classification", "i"),
    "few whole numbers": (pd.Series([1, 2, 2]), "classification", "i"),
    "nullable": (pd.Series([1, 2], dtype="Int64"), "classification", "i"),
    "many whole numbers": (pd.Series(range(21)), "regression", "f"),
    "fractions": (pd.Series([1.5, 2.0]), "regression", "f"),
}


@pytest.mark.parametrize("name", TARGETS)
def test_the_task_is_guessed_from_the_target(name: str) -> None:
    y, task, kind = TARGETS[name]
    assert guess_task(y) == task
    assert target_values(y, task).dtype.kind == kind


def test_targets_that_are_no_numbers() -> None:
    with pytest.raises(ValueError, match="regression needs numbers"):
        target_values(pd.Series(["a", "b"]), "regression")
    with pytest.raises(ValueError, match="infinity"):
        target_values(pd.Series([1.0, np.inf]), "regression")


def test_encoding() -> None:
    found = encoded(FRAME.assign(constant=3.0))
    assert list(found.columns) == [
        "size", "colour=blue", "colour=missing", "colour=red", "big=False", "big=True", "constant",
    ]  # fmt: skip
    assert abs(found["size"].mean()) < 1e-12
    assert found["size"].std(ddof=0) == pytest.approx(1)
    assert (found["constant"] == 0).all()
    assert found["colour=missing"].tolist() == [0, 1, 0, 0]
    filled = FRAME.assign(size=FRAME["size"].fillna(2.0))
    pd.testing.assert_frame_equal(TableEncoder().fit(FRAME).transform(filled), encoded(FRAME))


def test_new_tables_may_have_unknown_levels_other_order_and_more_columns() -> None:
    encoder = TableEncoder().fit(FRAME)
    new = pd.DataFrame({"big": [True], "other": [1], "colour": ["green"], "size": [7]})
    row = encoder.transform(new).iloc[0]
    assert row.filter(like="colour=").tolist() == [0, 0, 0]
    assert row["big=True"] == 1
    with pytest.raises(ValueError, match="the table lacks 'colour'"):
        encoder.transform(new.drop(columns="colour"))


def test_levels_survive_a_trip_through_numbers() -> None:
    encoder = TableEncoder().fit(pd.DataFrame({"code": ["1", "2", "x"]}))
    assert encoder.transform(pd.DataFrame({"code": [1.0, 2.0]})).to_numpy().tolist() == [[1, 0, 0], [0, 1, 0]]


def test_the_state_is_json() -> None:
    encoder = TableEncoder().fit(FRAME)
    again = TableEncoder.from_json(json.loads(json.dumps(encoder.to_json())))
    pd.testing.assert_frame_equal(again.transform(FRAME), encoder.transform(FRAME))
    assert again.summary == encoder.summary == (
        "3 columns: 1 numeric standardised, 2 categorical as 5 one-hot, "
        "2 missing values filled in (median, or a level of their own)"
    )  # fmt: skip


BAD_COLUMNS: dict[str, tuple[Callable[[], object], str]] = {
    "infinity": (lambda: TableEncoder().fit(pd.DataFrame({"a": [1.0, np.inf]})), "column 'a' holds infinity"),
    "dates": (lambda: TableEncoder().fit(pd.DataFrame({"a": pd.to_datetime(["2020-01-01"])})), "dates"),
    "identifiers": (lambda: TableEncoder().fit(pd.DataFrame({"a": map(str, range(1001))})), "1001 different texts"),
    "huge": (lambda: TableEncoder().fit(pd.DataFrame({"a": [1.0, 1e200]})), "larger units"),
    "text": (lambda: TableEncoder().fit(FRAME).transform(FRAME.assign(size="x")), "column 'size' held numbers"),
}


@pytest.mark.parametrize("name", BAD_COLUMNS)
def test_columns_that_are_refused(name: str) -> None:
    make, message = BAD_COLUMNS[name]
    with pytest.raises(ValueError, match=message):
        make()


def test_a_column_without_any_value_is_zero() -> None:
    assert encoded(pd.DataFrame({"a": [None, None]})).to_numpy().tolist() == [[0.0], [0.0]]
