"""Tables from files, and how their columns become numbers: standardised, or one-hot."""

import difflib
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bidual.runtime.extras import extra, need
from bidual.runtime.json_text import one_line

with extra("pandas"):
    import pandas as pd
    from pandas.api import types

Encoded = NDArray[np.float64]
MISSING = "missing"
_MOST_LEVELS = 1000
_MOST_CLASSES = 20
_LARGEST = 1e100  # squares must not overflow
_NUMBER_OBJECTS = {"integer", "floating", "mixed-integer-float", "decimal"}
_LABEL_KINDS = (
    (types.is_bool_dtype, np.bool_),
    (types.is_unsigned_integer_dtype, np.uint64),
    (types.is_integer_dtype, np.int64),
    (types.is_float_dtype, np.float64),
)


def read_table(path: str | os.PathLike[str]) -> pd.DataFrame:
    """A CSV or Parquet file (by its suffix) with a header and at least one row."""
    path = check_file(path, "give a CSV or Parquet file")
    if not path.stat().st_size:
        raise ValueError(f"{path} is empty; give a table with a header and at least one row.")
    if path.suffix.lower() != ".csv":
        need("pyarrow")
    with parsing(path):
        frame = pd.read_csv(path, index_col=False) if path.suffix.lower() == ".csv" else pd.read_parquet(path)
    frame = with_plain_names(path, frame)
    if frame.shape[1] == 1 and (mark := next((m for m in ";\t|" if m in frame.columns[0]), None)):
        raise ValueError(f"{path} has its columns separated by {mark!r}; save it with commas.")
    if not len(frame):
        raise ValueError(f"{path} has a header but no rows; give at least one row.")
    return frame


def check_file(path: str | os.PathLike[str], remedy: str, *more: str) -> Path:
    """The path, if it is a file with the suffix of a table, or one of ``more``."""
    path = Path(path)
    if not path.is_file():
        what = "it is a folder" if path.is_dir() else "there is no such file"
        raise ValueError(f"cannot read {path}: {what}; {remedy}.")
    if path.suffix.lower() not in (".csv", ".parquet", ".pq", *more):
        known = ", ".join((".csv", *more))
        raise ValueError(f"cannot read {path}: its suffix is {path.suffix!r}; use {known} or .parquet.")
    return path


@contextmanager
def parsing(path: Path) -> Iterator[None]:
    """What pandas and pyarrow raise, as a sentence about the file; rows longer than the header are an error too."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            yield
    except pd.errors.ParserWarning as error:
        raise ValueError(f"{path} has rows with more fields than its header; name every column.") from error
    except pd.errors.EmptyDataError as error:
        raise ValueError(f"{path} is empty; give a table with a header and at least one row.") from error
    except Exception as error:  # of many kinds
        raise ValueError(f"cannot read {path} as {path.suffix[1:]}: {one_line(error)}.") from error


def with_plain_names(path: Path, frame: pd.DataFrame) -> pd.DataFrame:
    """The table with strings as names of columns, which must differ, and without an index."""
    frame.columns = frame.columns.map(str)
    if frame.columns.has_duplicates:
        twice = sorted(set(frame.columns[frame.columns.duplicated()]))
        raise ValueError(f"{path} has more than one column named {twice[0]!r}; rename them.")
    return frame.reset_index(drop=True)


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
    few = types.is_integer_dtype(y) and y.nunique() <= _MOST_CLASSES
    return "regression" if _holds_numbers(y) and not few else "classification"


def target_values(y: pd.Series, task: str) -> NDArray[Any]:
    """Labels (texts, whole numbers or truth values) or finite numbers, as an array."""
    if task == "classification":
        if isinstance(y.dtype, pd.CategoricalDtype):
            y = y.astype(y.cat.categories.dtype)
        plain = next((kind for test, kind in _LABEL_KINDS if test(y)), str)
        return np.array(y.tolist(), dtype=plain)
    if not _holds_numbers(y):
        raise ValueError(f"regression needs numbers, but the target {y.name!r} has {y.iloc[0]!r}; use classification.")
    values = y.to_numpy(dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError(f"the target {y.name!r} holds infinity; drop or correct those rows.")
    return values


def _holds_numbers(column: pd.Series) -> bool:
    return bool(types.is_numeric_dtype(column)) and not types.is_bool_dtype(column)


@dataclass(frozen=True)
class Numeric:
    """(x - mean) / scale, with the median for missing values; scale 0 means a constant column, encoded as zero."""

    name: str
    mean: float
    scale: float
    median: float
    missing: int = 0

    @property
    def feature_names(self) -> list[str]:
        return [self.name]

    def encode(self, column: pd.Series) -> Encoded:
        values = _numbers(self.name, column)
        values = np.where(np.isnan(values), self.median, values) - self.mean
        return (values / self.scale if self.scale else np.zeros_like(values))[:, None]


@dataclass(frozen=True)
class Categorical:
    """One column of zeros and ones per level; unknown levels are zeros everywhere."""

    name: str
    levels: list[str]
    missing: int = 0

    @property
    def feature_names(self) -> list[str]:
        return [f"{self.name}={level}" for level in self.levels]

    def encode(self, column: pd.Series) -> Encoded:
        return (_texts(column)[:, None] == np.array(self.levels, dtype=object)[None, :]).astype(np.float64)


Column = Numeric | Categorical


def fit_column(name: str, column: pd.Series) -> Column:
    """The encoding of a column by its type."""
    if types.is_datetime64_any_dtype(column) or types.is_timedelta64_dtype(column):
        raise ValueError(f"column {name!r} holds dates or times; replace it with numbers, or drop it.")
    check_flat(name, column)
    missing = int(column.isna().sum())
    if _is_numeric(column):
        return _fit_numeric(name, _numbers(name, column), missing)
    return Categorical(name, sorted_levels(name, set(_texts(column))), missing)


def sorted_levels(name: str, levels: set[str]) -> list[str]:
    """The levels in order, unless there are too many."""
    if len(levels) > _MOST_LEVELS:
        raise ValueError(
            f"column {name!r} has {len(levels)} different texts, more than {_MOST_LEVELS}; drop it, or group them."
        )
    return sorted(levels)


def check_flat(name: str, column: pd.Series) -> None:
    """Refuse a column whose values are lists, arrays or objects with fields, as Parquet can hold them."""
    if column.dtype == object and (nested := [value for value in column if types.is_list_like(value)]):
        raise ValueError(f"column {name!r} holds {str(nested[0])[:60]!r}; give one number or text per row, or drop it.")


def _fit_numeric(name: str, values: Encoded, missing: int) -> Numeric:
    known = values[~np.isnan(values)]
    if not len(known):
        return Numeric(name, 0.0, 0.0, 0.0, missing)
    median = float(np.median(known))
    filled = np.where(np.isnan(values), median, values)
    if np.abs(filled).max() > _LARGEST:
        raise ValueError(f"column {name!r} holds {np.abs(filled).max():g}, beyond {_LARGEST:g}; use larger units.")
    constant = bool((filled == filled[0]).all())
    return Numeric(name, float(filled.mean()), 0.0 if constant else float(filled.std()), median, missing)


def _is_numeric(column: pd.Series) -> bool:
    if column.dtype == object:
        return types.infer_dtype(column, skipna=True) in _NUMBER_OBJECTS or bool(column.isna().all())
    return _holds_numbers(column)


def _numbers(name: str, column: pd.Series) -> Encoded:
    try:
        values = pd.to_numeric(column).to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise ValueError(f"column {name!r} held numbers in training and now does not ({one_line(error)}).") from error
    if np.isinf(values).any():
        raise ValueError(f"column {name!r} holds infinity; drop or correct those rows.")
    return values


def _texts(column: pd.Series) -> NDArray[Any]:
    """Values as texts, so that 1, 1.0 and "1" are one level, as they are after a trip through CSV."""
    plain = [int(value) if isinstance(value, float) and value.is_integer() else value for value in column.tolist()]
    return np.array([MISSING if pd.isna(value) else str(value) for value in plain], dtype=object)


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
        return [{"kind": type(column).__name__.lower()} | asdict(column) for column in self.columns]

    @classmethod
    def from_json(cls, state: list[dict[str, Any]]) -> "TableEncoder":
        kinds: dict[str, Any] = {"numeric": Numeric, "categorical": Categorical}
        return cls([kinds[one["kind"]](**{key: one[key] for key in one if key != "kind"}) for one in state])
