"""One column of a table as numbers: standardised, or one-hot."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bidual.runtime.extras import extra

with extra("pandas"):
    import pandas as pd
    from pandas.api import types

Encoded = NDArray[np.float64]
MISSING = "missing"
_MOST_LEVELS = 1000
_LARGEST = 1e100  # squares must not overflow
_NUMBER_OBJECTS = {"integer", "floating", "mixed-integer-float", "decimal"}


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

    def to_json(self) -> dict[str, Any]:
        return {"kind": "numeric"} | asdict(self)


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

    def to_json(self) -> dict[str, Any]:
        return {"kind": "categorical"} | asdict(self)


Column = Numeric | Categorical


def fit_column(name: str, column: pd.Series) -> Column:
    """The encoding of a column by its type."""
    if types.is_datetime64_any_dtype(column) or types.is_timedelta64_dtype(column):
        raise ValueError(f"column {name!r} holds dates or times; replace it with numbers, or drop it.")
    check_flat(name, column)
    missing = int(column.isna().sum())
    if _is_numeric(column):
        return _fit_numeric(name, _numbers(name, column), missing)
    levels = sorted(set(_texts(column)))
    if len(levels) > _MOST_LEVELS:
        raise ValueError(
            f"column {name!r} has {len(levels)} different texts, more than {_MOST_LEVELS}; drop it, or group them."
        )
    return Categorical(name, levels, missing)


def check_flat(name: str, column: pd.Series) -> None:
    """Refuse a column whose values are lists, arrays or objects with fields, as Parquet can hold them."""
    if column.dtype == object and (nested := [value for value in column if types.is_list_like(value)]):
        raise ValueError(f"column {name!r} holds {str(nested[0])[:60]!r}; give one number or text per row, or drop it.")


def column_from_json(state: dict[str, Any]) -> Column:
    kinds: dict[str, type[Numeric] | type[Categorical]] = {"numeric": Numeric, "categorical": Categorical}
    fields = dict(state)
    return kinds[fields.pop("kind")](**fields)


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
    if isinstance(column.dtype, pd.CategoricalDtype) or types.is_bool_dtype(column):
        return False
    return bool(types.is_numeric_dtype(column))


def _numbers(name: str, column: pd.Series) -> Encoded:
    try:
        values = pd.to_numeric(column).to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise ValueError(f"column {name!r} held numbers in training and now does not ({reason}).") from error
    if np.isinf(values).any():
        raise ValueError(f"column {name!r} holds infinity; drop or correct those rows.")
    return values


def _texts(column: pd.Series) -> NDArray[Any]:
    """Values as texts, so that 1, 1.0 and "1" are one level, as they are after a trip through CSV."""
    values = [MISSING if pd.isna(value) else _text(value) for value in column.tolist()]
    return np.array(values, dtype=object)


def _text(value: object) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
