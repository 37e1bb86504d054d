"""What benchmarks on random splits of small tables share: the tables, the splits, one measured fit, the options."""

import argparse
import ast
import json
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from bidual.runtime.files import write_atomically

Table = tuple[NDArray[np.float64], NDArray[Any]]
T = TypeVar("T")
SHIPPED = {"sklearn-breast-cancer": load_breast_cancer, "sklearn-wine": load_wine, "sklearn-digits": load_digits}
_TEST_SIZE = 0.25


@dataclass(frozen=True, eq=False)
class Split:
    """One random split of one table."""

    name: str
    index: int
    X: NDArray[np.float64]
    y: NDArray[Any]
    train: NDArray[np.intp]
    test: NDArray[np.intp]

    @property
    def parts(self) -> tuple[NDArray[Any], ...]:
        """X and y of the training part, then of the test part; features are standardised by the former."""
        scaler = StandardScaler().fit(self.X[self.train])
        X, X_test = scaler.transform(self.X[self.train]), scaler.transform(self.X[self.test])
        return X, self.y[self.train], X_test, self.y[self.test]

    def in_units_of_training(self) -> "Split":
        """With targets of mean 0 and variance 1 in the training part."""
        known = self.y[self.train]
        return Split(self.name, self.index, self.X, (self.y - known.mean()) / known.std(), self.train, self.test)


def split_of(name: str, table: Table, index: int, splits: int, seed: int, labels: bool) -> Split:
    """The split with this index; where targets are labels, all parts have the same shares of them."""
    shuffles = (StratifiedShuffleSplit if labels else ShuffleSplit)(splits, test_size=_TEST_SIZE, random_state=seed)
    train, test = list(shuffles.split(*table))[index]
    return Split(name, index, *table, train, test)


def on_splits(
    work: Callable[[Split], Sequence[T]],
    tables: Mapping[str, Callable[[], Table]],
    args: argparse.Namespace,
    labels: bool = True,
) -> list[T]:
    """What a function finds on every split of every table, on one thread each."""
    tasks = [(name, load, index) for name, load in tables.items() for index in range(args.splits)]
    run = delayed(partial(_on_split, work, (args.splits, args.seed, labels)))
    parts = Parallel(n_jobs=args.jobs)(run(*task) for task in tasks)
    return [outcome for part in parts for outcome in part]


def _on_split(
    work: Callable[[Split], Sequence[T]],
    shuffled: tuple[int, int, bool],
    name: str,
    load: Callable[[], Table],
    index: int,
) -> Sequence[T]:
    torch.set_num_threads(1)
    return work(split_of(name, load(), index, *shuffled))


def measured(
    estimator: BaseEstimator, split: Split, judge: Callable[[Pipeline, Split], dict[str, Any]]
) -> dict[str, Any]:
    """Scores of a fit on standardised features with its seconds and, if it is certified, its gap; or why it raised."""
    pipeline = make_pipeline(StandardScaler(), estimator)
    began = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a gap that was not reached is in the outcome
            pipeline.fit(split.X[split.train], split.y[split.train])
        seconds = time.perf_counter() - began
        found = judge(pipeline, split)
    except Exception as error:
        return {"seconds": time.perf_counter() - began, "error": f"{type(error).__name__}: {error}"}
    certificate = getattr(estimator, "certificate_", None)
    return found | {"seconds": seconds, "gap": None if certificate is None else float(certificate.relative_gap)}


def set_names(folder: Path) -> list[str]:
    """The sets of a folder; corrected variants and shipped sets are run only where they are asked for by name."""
    return sorted(path.stem for path in folder.glob("*.csv") if not path.stem.endswith("-corrected"))


def load_set(folder: Path, name: str) -> Table:
    """Samples and labels of a shipped set, or of one CSV file with the columns ``f0, f1, ..., label``."""
    if name in SHIPPED:
        return SHIPPED[name](return_X_y=True)
    table = pd.read_csv(folder / f"{name}.csv")
    return table.drop(columns="label").to_numpy(dtype=np.float64), table["label"].to_numpy()


def chosen_sets(args: argparse.Namespace) -> dict[str, Callable[[], Table]]:
    """The sets that :func:`parser_of_sets` was asked for."""
    folder = args.data_dir / "uci"
    names = args.sets or set_names(folder)
    if not names:
        raise SystemExit(f"no CSV files in {folder}; give the folder that holds uci/ with --data-dir")
    return {name: partial(load_set, folder, name) for name in names}


def line_of(cells: Sequence[str]) -> str:
    """A row of a table in markdown."""
    return "| " + " | ".join(cells) + " |"


def option_of(text: str) -> tuple[str, Any]:
    key, found, value = text.partition("=")
    if not found:
        raise argparse.ArgumentTypeError(f"an option is KEY=VALUE, got {text!r}")
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return key, value


def parser_of_splits(description: str | None, jobs: int = 1) -> argparse.ArgumentParser:
    """Options of every script that fits models on random splits."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--splits", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0, help="of the splits")
    parser.add_argument("--jobs", type=int, default=jobs)
    parser.add_argument("--option", type=option_of, nargs="+", default=[], help="KEY=VALUE for the convex networks")
    parser.add_argument("--out", type=Path, help="write every outcome as JSON")
    parser.add_argument("--markdown", type=Path, help="write the table")
    return parser


def parser_of_sets(description: str | None, jobs: int = 1) -> argparse.ArgumentParser:
    """Options of those that fit classifiers on UCI sets and what scikit-learn ships."""
    parser = parser_of_splits(description, jobs)
    default = Path(os.environ.get("BIDUAL_DATA", "../shared/data"))
    parser.add_argument("--data-dir", type=Path, default=default, help="folder with uci/*.csv (or set BIDUAL_DATA)")
    parser.add_argument("--sets", nargs="+", help="names of sets; all by default")
    return parser


def write_outcomes(outcomes: Sequence[Any], text: str, args: argparse.Namespace) -> None:
    """The table on the screen, and what was asked for in files."""
    print(text)
    if args.out:
        found = [asdict(outcome) for outcome in outcomes]
        write_atomically(args.out, json.dumps(found, indent=1, default=np.ndarray.tolist).encode())
    if args.markdown:
        write_atomically(args.markdown, text.encode())
