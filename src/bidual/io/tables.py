"""Tables from files, and how their columns become numbers."""

import difflib
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bidual.io.columns import Categorical, Column, Numeric, check_flat, column_from_json, fit_column
from bidual.runtime.extras import extra, need
from bidual.runtime.json_text import one_line

with extra("pandas"):
    import pandas as pd

_SUFFIXES = (".csv", ".parquet", ".pq")
_MOST_CLASSES = 20


def read_table(path: str | os.PathLike[str]) -> pd.DataFrame:
    """A CSV or Parquet file (by its suffix) with a header and at least one row."""
    path = Path(path)
    if not path.is_file():
        what = "it is a folder" if path.is_dir() else "there is no such file"
        raise ValueError(f"cannot read {path}: {what}; give a CSV or Parquet file.")
    if path.suffix.lower() not in _SUFFIXES:
        raise ValueError(f"cannot read {path}: its suffix is {path.suffix!r}; use .csv or .parquet.")
    if not path.stat().st_size:
        raise ValueError(f"{path} is empty; give a table with a header and at least one row.")
    if path.suffix.lower() != ".csv":
        need("pyarrow")
    frame = _parse(path)
    if frame.shape[1] == 1 and (mark := next((m for m in ";\t|" if m in frame.columns[0]), None)):
        raise ValueError(f"{path} has its columns separated by {mark!r}; save it with commas.")
    if frame.columns.has_duplicates:
        twice = sorted(set(frame.columns[frame.columns.duplicated()]))
        raise ValueError(f"{path} has more than one column named {twice[0]!r}; rename them.")
    if not len(frame):
        raise ValueError(f"{path} has a header but no rows; give at least one row.")
    return frame


def _parse(path: Path) -> pd.DataFrame:
    try:
        frame = _read_csv(path) if path.suffix.lower() == ".csv" else pd.read_parquet(path)
    except pd.errors.ParserWarning as error:
        raise ValueError(f"{path} has rows with more fields than its header; name every column.") from error
    except pd.errors.EmptyDataError as error:
        raise ValueError(f"{path} is empty; give a table with a header and at least one row.") from error
    except Exception as error:  # pyarrow and pandas raise many kinds
        raise ValueError(f"cannot read {path} as {path.suffix[1:]}: {one_line(error)}.") from error
    frame.columns = frame.columns.map(str)
    return frame.reset_index(drop=True)


def _read_csv(path: Path) -> pd.DataFrame:
    """Rows longer than the header are an error, not an index."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        return pd.read_csv(path, index_col=False)


def split_target(frame: pd.DataFrame, target: str, missing: bool = False) -> tuple[pd.DataFrame, pd.Series]:
    """The other columns, and the target, which must be there in every row, unless it may be ``missing``."""
    if target not in frame.columns:
        near = difflib.get_close_matches(target, frame.columns, n=3, cutoff=0.5) or list(frame.columns[:8])
        more = "" if len(near) < 8 else ", ..."
        raise ValueError(f"there is no column {target!r}; did you mean {', '.join(map(repr, near))}{more}?")
    if frame.shape[1] < 2:
        raise ValueError(f"{target!r} is the only column; a model needs at least one other to predict from.")
    y = frame[target]
    check_flat(target, y)
    if not missing and (lost := int(y.isna().sum())):
        raise ValueError(f"the target {target!r} is missing in {lost} of {len(y)} rows; drop those rows.")
    return frame.drop(columns=target), y


def guess_task(y: pd.Series) -> str:
    """Classification for texts, categories, truth values and whole numbers with at most 20 values, else regression."""
    if isinstance(y.dtype, pd.CategoricalDtype) or pd.api.types.is_bool_dtype(y) or not _is_number(y):
        return "classification"
    few = pd.api.types.is_integer_dtype(y) and y.nunique() <= _MOST_CLASSES
    return "classification" if few else "regression"


def target_values(y: pd.Series, task: str) -> NDArray[Any]:
    """Labels (texts, whole numbers or truth values) or finite numbers, as an array."""
    if task == "classification":
        if isinstance(y.dtype, pd.CategoricalDtype):
            y = y.astype(y.cat.categories.dtype)
        plain = next((kind for test, kind in _LABEL_KINDS if test(y)), str)
        return np.array(y.tolist(), dtype=plain)
    if not _is_number(y) or pd.api.types.is_bool_dtype(y):
        raise ValueError(
            f"regression needs numbers, but the target {y.name!r} holds {y.iloc[0]!r}; use classification."
        )
    values = y.to_numpy(dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError(f"the target {y.name!r} holds infinity; drop or correct those rows.")
    return values


_LABEL_KINDS = (
    (pd.api.types.is_bool_dtype, np.bool_),
    (pd.api.types.is_unsigned_integer_dtype, np.uint64),
    (pd.api.types.is_integer_dtype, np.int64),
    (pd.api.types.is_float_dtype, np.float64),
)


def _is_number(y: pd.Series) -> bool:
    return bool(pd.api.types.is_numeric_dtype(y))


class TableEncoder:
    """Columns of a table as standardised numbers and one-hot categories.

    Numeric columns get mean zero and variance one; their missing values become the median, and a column with one
    value only becomes zero. Texts, categories and truth values become one column of zeros and ones per level, where
    "missing" is a level of its own if it occurs, and a level that was not seen becomes all zeros. Infinity is refused.
    """

    def __init__(self, columns: list[Column] | None = None) -> None:
        self.columns = columns or []

    def fit(self, frame: pd.DataFrame) -> "TableEncoder":
        self.columns = [fit_column(str(name), frame[name]) for name in frame.columns]
        return self

    def transform(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Encoded columns in the order of the fit; other columns of ``frame`` are ignored."""
        lost = [column.name for column in self.columns if column.name not in frame.columns]
        if lost:
            shown = ", ".join(map(repr, lost[:5])) + (f" and {len(lost) - 5} more" if len(lost) > 5 else "")
            raise ValueError(f"the table lacks {shown}; the model was trained with {len(self.columns)} columns.")
        values = [column.encode(frame[column.name]) for column in self.columns]
        return pd.DataFrame(np.hstack(values), columns=self.feature_names)

    def fit_transform(self, frame: pd.DataFrame) -> pd.DataFrame:
        return self.fit(frame).transform(frame)

    @property
    def feature_names(self) -> list[str]:
        return [name for column in self.columns for name in column.feature_names]

    @property
    def summary(self) -> str:
        """One line: how many columns of which kind, and what was filled in."""
        numeric = [column for column in self.columns if isinstance(column, Numeric)]
        levels = [len(column.levels) for column in self.columns if isinstance(column, Categorical)]
        filled = sum(column.missing for column in self.columns)
        parts = [f"{len(numeric)} numeric standardised", f"{len(levels)} categorical as {sum(levels)} one-hot"]
        note = f", {filled} missing values filled in (median, or a level of their own)" if filled else ""
        return f"{len(self.columns)} columns: " + ", ".join(part for part in parts if part[0] != "0") + note

    def to_json(self) -> list[dict[str, Any]]:
        return [column.to_json() for column in self.columns]

    @classmethod
    def from_json(cls, state: list[dict[str, Any]]) -> "TableEncoder":
        return cls([column_from_json(column) for column in state])
