"""The 21 binary UCI sets of PR Table 3, as CSV files in the columns f0, f1, ..., label."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from bidual.io.datasets.official_files import VARIABLE, DataDir, best_place, missing, places
from bidual.io.datasets.sources import known_name
from bidual.runtime.extras import extra

if TYPE_CHECKING:
    import pandas as pd

Samples = Float64[ndarray, "n d"]
Integers = Int64[ndarray, " n"]

FOLDER = "uci"
_CORRECTED = "congressional-voting-corrected"
SHAPES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "acute-inflammation": (120, 6),
        "acute-nephritis": (120, 6),
        "balloons": (16, 4),
        "breast-cancer": (286, 9),
        "breast-cancer-wisc-prog": (198, 33),
        "congressional-voting": (435, 16),
        "conn-bench-sonar-mines-rocks": (208, 60),
        "echocardiogram": (131, 10),
        "fertility": (100, 9),
        "haberman-survival": (306, 3),
        "heart-hungarian": (294, 12),
        "hepatitis": (155, 19),
        "ionosphere": (351, 33),
        "molec-biol-promoter": (106, 57),
        "musk-1": (476, 166),
        "parkinsons": (195, 22),
        "pittsburg-bridges-T-OR-D": (102, 7),
        "planning": (182, 12),
        "statlog-heart": (270, 13),
        "trains": (10, 29),
        "vertebral-column-2clases": (310, 6),
    }
)
NAMES = tuple(SHAPES)


@dataclass(frozen=True, eq=False)
class Rows:
    """Row numbers, from 0, of a training and a test part; together they are all rows."""

    train: Integers
    test: Integers


@dataclass(frozen=True, eq=False)
class UciData:
    """One set.

    Attributes:
        name: one of :data:`NAMES`, or the corrected congressional-voting.
        X: samples, standardised over all rows by those who collected them.
        y: labels, 0 or 1.
        halves: the study's two halves for tuning, None without its file.
        folds: the study's four folds, whose test parts overlap; empty without their file.
    """

    name: str
    X: Samples
    y: Integers
    halves: Rows | None
    folds: tuple[Rows, ...]


def load_uci(name: str, data_dir: DataDir = None) -> UciData:
    """A set of the collection of Fernandez-Delgado et al. (2014), with the study's own splits if they are there.

    Looked for in the folder ``uci`` of ``data_dir``, by default of the environment variable BIDUAL_DATA or the cache.
    The collection's congressional-voting codes "y" and "n" alike; "congressional-voting-corrected" does not.
    """
    name = known_name(name, (*NAMES, _CORRECTED), "images are read by load_images and load_folder")
    found, file = places(FOLDER, data_dir), f"{name}.csv"
    place = best_place(found, [file])
    if missing(place, [file]):
        raise FileNotFoundError(
            f"{file} was looked for in {', '.join(map(str, found))}; it has no official download in this form, so take "
            "the set from the UCI repository or the collection of Fernandez-Delgado et al. (2014), write it as CSV "
            f"with the columns f0, f1, ..., label, and say by data_dir or {VARIABLE} which folder holds {FOLDER}."
        )
    X, y = read_uci(place / file)
    base = name.removesuffix("-corrected")
    if X.shape != SHAPES[base]:
        raise ValueError(f"{place / file} has shape {X.shape}, and the set {SHAPES[base]}; replace the file.")
    halves = _splits(place / "splits" / f"{base}.conxuntos.dat", len(X))
    folds = _splits(place / "splits" / f"{base}.conxuntos_kfold.dat", len(X))
    return UciData(name, X, y, halves[0] if halves else None, folds)


def read_uci(path: Path) -> tuple[Samples, Integers]:
    """Samples and labels of any CSV file in this form; labels are two whole numbers."""
    with extra("pandas"):
        import pandas as pd
    try:
        table = pd.read_csv(path)
    except (ValueError, pd.errors.ParserError) as error:
        raise ValueError(f"{path} is no CSV file: {' '.join(str(error).split())}; replace the file.") from error
    columns = [*(f"f{k}" for k in range(table.shape[1] - 1)), "label"]
    if list(table.columns) != columns or len(columns) < 2:
        raise ValueError(f"{path} must have the columns f0, f1, ..., label, got {', '.join(table.columns)}.")
    _check_numbers(path, table)
    y = table["label"].to_numpy()
    if not np.array_equal(y, y.astype(np.int64)) or len(np.unique(y)) != 2:
        raise ValueError(f"the column 'label' of {path} must have two values, whole numbers; this is no binary set.")
    return table[columns[:-1]].to_numpy(dtype=np.float64), y.astype(np.int64)


def _check_numbers(path: Path, table: "pd.DataFrame") -> None:
    import pandas as pd

    for column in table.columns:
        values = pd.to_numeric(table[column], errors="coerce").to_numpy(dtype=np.float64)
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            raise ValueError(
                f"{path} must hold finite numbers, got {str(table[column][bad[0]])!r} in column {column} of line "
                f"{bad[0] + 2}; replace the file."
            )


def _splits(path: Path, n: int) -> tuple[Rows, ...]:
    """Pairs of lines of row numbers, training before test; none if there is no such file."""
    if not path.is_file():
        return ()
    try:
        text = path.read_text(encoding="utf-8")
        lines = [np.array(line.split(), dtype=np.int64) for line in text.splitlines() if line.strip()]
    except (ValueError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} must hold lines of row numbers: {error}; replace the file.") from error
    if not lines or len(lines) % 2 or not all(_is_partition(lines[k : k + 2], n) for k in range(0, len(lines), 2)):
        raise ValueError(f"{path} must hold pairs of lines, of which each pair has all rows 0 to {n - 1} once.")
    return tuple(Rows(*lines[k : k + 2]) for k in range(0, len(lines), 2))


def _is_partition(pair: Sequence[Integers], n: int) -> bool:
    return bool(np.array_equal(np.sort(np.concatenate(pair)), np.arange(n)))
