"""Gathers the target column on rank 0: numbers as they are, strings as indices into a common list."""

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from pandas.api import types
from torch import Tensor

from bidual.runtime.ranks import Ranks

_NUMBERS = {"int": np.int64, "float": np.float64}
_KINDS = ((types.is_bool_dtype, "bool"), (types.is_integer_dtype, "int"), (types.is_float_dtype, "float"))


def gathered_targets(column: pd.Series, ranks: Ranks) -> pd.Series | None:
    """The rows of all ranks as one column, on rank 0; a missing value on any rank is an error on all ranks."""
    missing, rows = np.sum(ranks.collect([int(column.isna().sum()), len(column)]), axis=0).tolist()
    ranks.together(lambda: _check_missing(column, missing, rows))
    kinds, categories = set(ranks.collect(_kind(column))), any(ranks.collect(_is_category(column)))
    if kinds <= set(_NUMBERS):
        number = _NUMBERS["float" if "float" in kinds else "int"]
        values = ranks.gather_rows(torch.from_numpy(_plain(column).to_numpy(number).copy()), _sizes(column, ranks))
        whole = None if values is None else pd.Series(values.numpy(), name=column.name)
    elif kinds == {"bool"}:
        values = ranks.gather_rows(torch.from_numpy(_plain(column).to_numpy(np.uint8)), _sizes(column, ranks))
        whole = None if values is None else pd.Series(values.numpy().astype(bool), name=column.name)
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


def _plain(column: pd.Series) -> pd.Series:
    return column.astype(column.cat.categories.dtype) if _is_category(column) else column


def _sizes(column: pd.Series, ranks: Ranks) -> list[int]:
    return ranks.collect(len(column))


def _check_missing(column: pd.Series, missing: int, rows: int) -> None:
    if missing:
        raise ValueError(f"the target {column.name!r} is missing in {missing} of {rows} rows; drop those rows.")


def _gathered_texts(column: pd.Series, ranks: Ranks) -> pd.Series | None:
    places, mine = pd.factorize(np.array([str(value) for value in column.tolist()], dtype=object))
    everywhere = sorted(set().union(*ranks.collect(list(mine))))
    places = _places(everywhere, mine)[places]
    whole: Tensor | None = ranks.gather_rows(torch.from_numpy(places), _sizes(column, ranks))
    return None if whole is None else pd.Series(np.array(everywhere, dtype=object)[whole.numpy()], name=column.name)


def _places(everywhere: list[str], mine: NDArray[np.object_]) -> NDArray[np.int64]:
    place = {text: k for k, text in enumerate(everywhere)}
    return np.array([place[text] for text in mine], dtype=np.int64)
