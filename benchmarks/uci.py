"""Test accuracy on small tables against scikit-learn's defaults: ``python benchmarks/uci.py --help``.

21 UCI sets, and three that scikit-learn ships. Every model is fitted on one thread.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch start their threads

import argparse
import ast
import json
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from bidual.estimators import ConvexMLPClassifier
from bidual.estimators.cv import ConvexMLPClassifierCV
from bidual.runtime.files import write_atomically

CONVEX: dict[str, Callable[..., BaseEstimator]] = {
    "ConvexMLPClassifierCV": ConvexMLPClassifierCV,
    "ConvexMLPClassifier": ConvexMLPClassifier,
    "gated, CV": lambda **options: ConvexMLPClassifierCV(**{"activation": "gated_relu"} | options),
}
RIVALS: dict[str, Callable[[], BaseEstimator]] = {
    "RandomForest": lambda: RandomForestClassifier(random_state=0),
    "HistGradientBoosting": lambda: HistGradientBoostingClassifier(random_state=0),
    "MLPClassifier": lambda: MLPClassifier(random_state=0),
    "SVC": SVC,
    "LogisticRegression": LogisticRegression,
}
SHIPPED = {"sklearn-breast-cancer": load_breast_cancer, "sklearn-wine": load_wine, "sklearn-digits": load_digits}


@dataclass(frozen=True)
class Outcome:
    """One fit on one split. A model that raised has accuracy None and says why; only convex models have a gap.

    Of regressors the accuracy is R^2.
    """

    name: str
    split: int
    model: str
    accuracy: float | None
    seconds: float
    gap: float | None = None
    error: str | None = None


def set_names(folder: Path) -> list[str]:
    """The sets of a folder; corrected variants and shipped sets are run only where they are asked for by name."""
    return sorted(path.stem for path in folder.glob("*.csv") if not path.stem.endswith("-corrected"))


def load_set(folder: Path, name: str) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Samples and labels of a shipped set, or of one CSV file with the columns ``f0, f1, ..., label``."""
    if name in SHIPPED:
        return SHIPPED[name](return_X_y=True)
    table = pd.read_csv(folder / f"{name}.csv")
    return table.drop(columns="label").to_numpy(dtype=np.float64), table["label"].to_numpy()


def run_split(folder: Path, name: str, index: int, splits: int, seed: int, options: dict[str, Any]) -> list[Outcome]:
    """All models on one split, on one thread."""
    torch.set_num_threads(1)
    X, y = load_set(folder, name)
    shuffles = StratifiedShuffleSplit(splits, test_size=0.25, random_state=seed)
    train, test = list(shuffles.split(X, y))[index]
    outcomes = []
    estimators = {key: make(**options) for key, make in CONVEX.items()} | {key: make() for key, make in RIVALS.items()}
    for model, estimator in estimators.items():
        outcomes.append(Outcome(name, index, model, **measured(estimator, X, y, train, test)))
    print(f"{name}, split {index}: {outcomes[0].seconds:.1f} s", file=sys.stderr, flush=True)
    return outcomes


def measured(
    estimator: BaseEstimator, X: NDArray[np.float64], y: NDArray[Any], train: NDArray[Any], test: NDArray[Any]
) -> dict[str, Any]:
    pipeline = make_pipeline(StandardScaler(), estimator)
    began = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a gap that was not reached is in the outcome
            pipeline.fit(X[train], y[train])
    except Exception as error:
        return {"accuracy": None, "seconds": time.perf_counter() - began, "error": f"{type(error).__name__}: {error}"}
    seconds = time.perf_counter() - began
    certificate = getattr(estimator, "certificate_", None)
    gap = None if certificate is None else float(certificate.relative_gap)
    return {"accuracy": float(pipeline.score(X[test], y[test])), "seconds": seconds, "gap": gap}


def accuracies(outcomes: Sequence[Outcome]) -> pd.DataFrame:
    """Mean score, sets x models in the order of their fits; NaN where a model failed on a split."""
    table = pd.DataFrame([asdict(outcome) for outcome in outcomes])
    table["accuracy"] = table["accuracy"].astype(float)
    means = table.groupby(["name", "model"])["accuracy"].agg(lambda column: column.mean(skipna=False)).unstack()
    return means[list(dict.fromkeys(table["model"]))]


def duel(table: pd.DataFrame, rival: str) -> str:
    """The mean lead of the first model over sets with its standard error, and how many sets it wins, ties and loses."""
    chosen = table.columns[0]
    difference = (table[chosen] - table[rival]).dropna().round(9)
    mean, error = difference.mean(), difference.std() / max(len(difference), 1) ** 0.5
    wins, losses = int((difference > 0).sum()), int((difference < 0).sum())
    counts = f"{wins} wins, {len(difference) - wins - losses} ties, {losses} losses"
    return f"{chosen} against {rival}: {mean:+.4f} with a standard error of {error:.4f}; {counts}"


def markdown(outcomes: list[Outcome]) -> str:
    """The table of accuracies, with means, seconds and gaps below it, as markdown."""
    table = accuracies(outcomes)
    runs = pd.DataFrame([asdict(outcome) for outcome in outcomes]).groupby("model")
    gaps = runs["gap"].agg(lambda column: column.astype(float).median())
    lines = [line_of(["set", *table.columns]), line_of(["---", *("---:" for _ in table.columns)])]
    lines += [line_of([str(name), *(f"{value:.3f}" for value in row)]) for name, row in table.iterrows()]
    lines.append(line_of(["**mean**", *(f"**{value:.4f}**" for value in table.mean(skipna=False))]))
    for what, seconds in (("median", runs["seconds"].median()), ("longest", runs["seconds"].max())):
        lines.append(line_of([f"seconds per fit, {what}", *(f"{seconds[model]:.2f}" for model in table.columns)]))
    told = ("" if np.isnan(gaps[model]) else f"{gaps[model]:.1e}" for model in table.columns)
    lines += [line_of(["certified gap, median", *told]), ""]
    lines += [f"- {duel(table, rival)}" for rival in table.columns[1:]]
    lines += [f"- failed: {o.model} on {o.name}, split {o.split}: {o.error}" for o in outcomes if o.error]
    return "\n".join(lines) + "\n"


def line_of(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def option_of(text: str) -> tuple[str, Any]:
    key, found, value = text.partition("=")
    if not found:
        raise argparse.ArgumentTypeError(f"an option is KEY=VALUE, got {text!r}")
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return key, value


def common_parser(description: str | None, jobs: int) -> argparse.ArgumentParser:
    """Options of every script that fits classifiers on splits of the sets."""
    parser = argparse.ArgumentParser(description=description)
    default = Path(os.environ.get("BIDUAL_DATA", "../shared/data"))
    parser.add_argument("--data-dir", type=Path, default=default, help="folder with uci/*.csv (or set BIDUAL_DATA)")
    parser.add_argument("--sets", nargs="+", help="names of sets; all by default")
    parser.add_argument("--splits", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0, help="of the splits")
    parser.add_argument("--jobs", type=int, default=jobs)
    parser.add_argument("--option", type=option_of, nargs="+", default=[], help="KEY=VALUE for the convex networks")
    parser.add_argument("--out", type=Path, help="write every fit as JSON")
    parser.add_argument("--markdown", type=Path, help="write the table")
    return parser


def chosen_sets(args: argparse.Namespace) -> tuple[Path, list[str]]:
    """Their folder, and the names of those that :func:`common_parser` was asked for."""
    folder = args.data_dir / "uci"
    names = args.sets or set_names(folder)
    if not names:
        raise SystemExit(f"no CSV files in {folder}; give the folder that holds uci/ with --data-dir")
    return folder, names


def main(arguments: list[str] | None = None) -> None:
    args = common_parser(__doc__, jobs=2).parse_args(arguments)
    folder, names = chosen_sets(args)
    tasks = [
        (folder, name, index, args.splits, args.seed, dict(args.option))
        for name in names
        for index in range(args.splits)
    ]
    outcomes = [
        outcome for part in Parallel(n_jobs=args.jobs)(delayed(run_split)(*task) for task in tasks) for outcome in part
    ]
    written(outcomes, args)


def written(outcomes: list[Outcome], args: argparse.Namespace) -> None:
    """The table on the screen, and what was asked for in files."""
    text = markdown(outcomes)
    print(text)
    if args.out:
        write_atomically(args.out, json.dumps([asdict(outcome) for outcome in outcomes], indent=1).encode())
    if args.markdown:
        write_atomically(args.markdown, text.encode())


if __name__ == "__main__":
    main()
