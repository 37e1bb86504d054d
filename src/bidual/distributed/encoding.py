"""A table whose rows are spread over ranks: the encoder of all rows, and the target column gathered on rank 0."""

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from bidual.io.tables import MISSING, Categorical, Column, Numeric, TableEncoder, sorted_levels
from bidual.operators.tiled import MappedRows
from bidual.runtime.extras import extra
from bidual.runtime.ranks import Ranks

with extra("pandas"):
    import pandas as pd
    from pandas.api import types

_KINDS = ((types.is_bool_dtype, "bool"), (types.is_integer_dtype, "int"), (types.is_float_dtype, "float"))


def shared_encoder(frame: pd.DataFrame, ranks: Ranks) -> TableEncoder:
    """The encoder of the whole table, as :meth:`TableEncoder.fit` would learn it, up to rounding."""
    found = _columns(frame, ranks)
    rows = sum(ranks.collect(len(frame)))
    whole = list(zip(*found, strict=True))  # every column as all ranks see it
    names = [parts[0].name for parts in whole if all(isinstance(part, Numeric) for part in parts)]
    numeric = _fit_numbers(names, frame, ranks, rows)
    return TableEncoder(ranks.together(lambda: [_merged(parts, numeric) for parts in whole]))


def _merged(parts: tuple[Column, ...], numeric: dict[str, tuple[float, ...]]) -> Column:
    """A column of the whole table, from the ranks' columns; one whose shard is missing has no levels."""
    name, missing = parts[0].name, sum(part.missing for part in parts)
    if name not in numeric:
        levels = {level for part in parts if isinstance(part, Categorical) for level in part.levels}
        return Categorical(name, sorted_levels(name, levels | ({MISSING} if missing else set())), missing)
    mean, scale, median = numeric[name]
    return Numeric(name, mean, scale, median, missing)


def mixed_columns(frame: pd.DataFrame, ranks: Ranks) -> list[str]:
    """Columns that hold numbers on some ranks and strings on others; all ranks must read them as strings."""
    found = _columns(frame, ranks)
    empty = ranks.collect([bool(frame[name].isna().all()) for name in frame.columns])
    kinds = [
        {type(part[j]) for part, none in zip(found, empty, strict=True) if not none[j]} for j in range(len(found[0]))
    ]
    return [str(name) for name, kind in zip(frame.columns, kinds, strict=True) if len(kind) > 1]


def _columns(frame: pd.DataFrame, ranks: Ranks) -> list[list[Column]]:
    """The columns that every rank learns from its own rows."""
    mine = ranks.together(lambda: TableEncoder().fit(frame).to_json())
    return [TableEncoder.from_json(state).columns for state in ranks.collect(mine)]


def _fit_numbers(names: list[str], frame: pd.DataFrame, ranks: Ranks, rows: int) -> dict[str, tuple[float, ...]]:
    """Mean, scale and median of columns, with missing values replaced by the median."""
    raw = [Numeric(name, 0.0, 1.0, np.nan).encode(frame[name])[:, 0] for name in names]
    medians = _medians([np.sort(values[~np.isnan(values)]) for values in raw], ranks)
    filled = [np.where(np.isnan(values), median, values) for values, median in zip(raw, medians, strict=True)]
    means = _sums([values.sum() for values in filled], ranks) / rows
    squares = _sums([((values - mean) ** 2).sum() for values, mean in zip(filled, means, strict=True)], ranks)
    ends = ranks.collect([(float(values.min()), float(values.max())) for values in filled])
    constant = [len(set().union(*column)) == 1 for column in zip(*ends, strict=True)]
    scales = np.where(constant, 0.0, np.sqrt(squares / rows))
    fits = zip(means.tolist(), scales.tolist(), medians.tolist(), strict=True)
    return dict(zip(names, fits, strict=True))


def _sums(parts: list[float], ranks: Ranks) -> NDArray[np.float64]:
    return ranks.total(torch.tensor(parts, dtype=torch.float64)).numpy()


def _medians(columns: list[NDArray[np.float64]], ranks: Ranks) -> NDArray[np.float64]:
    """Exact medians of sorted columns that are spread over ranks, by bisection; 0 for a column without values."""
    counts = ranks.total(torch.tensor([len(column) for column in columns], dtype=torch.long)).numpy()
    keys = [_ordered(column) for column in columns]
    middle = [_numbers(_kth(keys, wanted, ranks)) for wanted in ((counts - 1) // 2, counts // 2)]
    return np.where(counts > 0, (middle[0] + middle[1]) / 2, 0.0)


def _kth(columns: list[NDArray[np.int64]], wanted: NDArray[np.int64], ranks: Ranks) -> NDArray[np.int64]:
    """The key with ``wanted`` keys before it, in every column."""
    span = np.iinfo(np.int64)
    low, high = np.full(len(columns), span.min), np.full(len(columns), span.max)
    for _ in range(64):
        middle = (low & high) + ((low ^ high) >> 1)  # without overflow
        below = [np.searchsorted(column, key, "right") for column, key in zip(columns, middle, strict=True)]
        enough = ranks.total(torch.tensor(np.array(below, dtype=np.int64))).numpy() > wanted
        low, high = np.where(enough | (low == high), low, middle + 1), np.where(enough, middle, high)
    return high


def _ordered(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Integers in the order of the values."""
    bits = np.ascontiguousarray(values + 0.0).view(np.int64)
    return np.where(bits < 0, bits ^ np.iinfo(np.int64).max, bits)


def _numbers(keys: NDArray[np.int64]) -> NDArray[np.float64]:
    """The values of these integers."""
    values = np.where(keys < 0, keys ^ np.iinfo(np.int64).max, keys).view(np.float64)
    return np.where(np.isfinite(values), values, 0.0)


def mapped_encoder(rows: MappedRows, columns: list[int], ranks: Ranks, tile: int = 2**16) -> TableEncoder:
    """Means and deviations of the columns of an array on disk, in two passes; it must hold finite numbers only."""
    count = sum(ranks.collect(len(rows)))
    tiles = [slice(k, k + tile) for k in range(0, len(rows), tile)]
    sums = [rows.tile(part, torch.float64)[:, columns].sum(0) for part in tiles]
    mean = ranks.total(torch.stack(sums).sum(0)) / count
    ranks.together(lambda: _check_finite(mean, columns))
    squares = [(rows.tile(part, torch.float64)[:, columns] - mean).square().sum(0) for part in tiles]
    scale = (ranks.total(torch.stack(squares).sum(0)) / count).sqrt()
    scale = torch.where(scale > 1e-14 * mean.abs(), scale, 0.0)
    # no values are missing; those missing in a prediction become the mean
    return TableEncoder(
        [Numeric(str(k), float(m), float(s), float(m)) for k, m, s in zip(columns, mean, scale, strict=True)]
    )


def _check_finite(mean: Float[Tensor, " k"], columns: list[int]) -> None:
    if not bool(torch.isfinite(mean).all()):
        worst = columns[int((~torch.isfinite(mean)).nonzero()[0])]
        raise ValueError(f"column {worst} of the array holds NaN or infinity; drop or correct those rows.")


def gathered_targets(column: pd.Series, ranks: Ranks) -> pd.Series | None:
    """The rows of all ranks as one column, on rank 0; a missing value on any rank is an error on all ranks."""
    missing, rows = np.sum(ranks.collect([int(column.isna().sum()), len(column)]), axis=0).tolist()
    ranks.together(lambda: _check_missing(column, missing, rows))
    kinds, categories = set(ranks.collect(_kind(column))), any(ranks.collect(_is_category(column)))
    if kinds == {"bool"} or kinds <= {"int", "float"}:
        number = np.float64 if "float" in kinds else np.int64
        plain = column.astype(column.cat.categories.dtype) if _is_category(column) else column
        values = ranks.gather_rows(torch.from_numpy(plain.to_numpy(number).copy()), ranks.collect(len(column)))
        whole = None if values is None else pd.Series(values.numpy(), name=column.name)
        whole = whole.astype(bool) if whole is not None and kinds == {"bool"} else whole
    else:
        whole = _gathered_texts(column, ranks)
    return whole.astype("category") if whole is not None and categories else whole


def is_mixed(column: pd.Series, ranks: Ranks) -> bool:
    """Whether ranks disagree on strings, booleans or numbers; then all must read the column as strings."""
    kinds = {_kind(column).replace("float", "int")} if len(column.dropna()) else set()
    return len(set().union(*ranks.collect(sorted(kinds)))) > 1


def _kind(column: pd.Series) -> str:
    values = column.cat.categories if _is_category(column) else column
    return next((kind for test, kind in _KINDS if test(values)), "text")


def _is_category(column: pd.Series) -> bool:
    return isinstance(column.dtype, pd.CategoricalDtype)


def _check_missing(column: pd.Series, missing: int, rows: int) -> None:
    if missing:
        raise ValueError(f"the target {column.name!r} is missing in {missing} of {rows} rows; drop those rows.")


def _gathered_texts(column: pd.Series, ranks: Ranks) -> pd.Series | None:
    places, mine = pd.factorize(np.array([str(value) for value in column.tolist()], dtype=object))
    everywhere = sorted(set().union(*ranks.collect(list(mine))))
    place = {text: k for k, text in enumerate(everywhere)}
    mine_in_all = np.array([place[text] for text in mine], dtype=np.int64)
    whole: Tensor | None = ranks.gather_rows(torch.from_numpy(mine_in_all[places]), ranks.collect(len(column)))
    return None if whole is None else pd.Series(np.array(everywhere, dtype=object)[whole.numpy()], name=column.name)
