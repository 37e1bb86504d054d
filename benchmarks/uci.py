"""Test accuracy on 21 small UCI sets against scikit-learn's defaults: ``python benchmarks/uci.py --help``."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch start their threads

import argparse
import ast
import json
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from bidual.estimators import ConvexMLPClassifier
from bidual.estimators.cv import ConvexMLPClassifierCV
from bidual.runtime.files import write_atomically

CHOSEN = "ConvexMLPClassifierCV"
RIVALS = ("MLPClassifier", "SVC")
MODELS: dict[str, Callable[..., BaseEstimator]] = {
    CHOSEN: ConvexMLPClassifierCV,
    "ConvexMLPClassifier": ConvexMLPClassifier,
    "MLPClassifier": lambda: MLPClassifier(random_state=0),
    "SVC": SVC,
    "LogisticRegression": LogisticRegression,
}


@dataclass(frozen=True)
class Outcome:
    """One fit on one split. A model that raised has accuracy None and says why; only convex models have a gap."""

    name: str
    split: int
    model: str
    accuracy: float | None
    seconds: float
    gap: float | None = None
    error: str | None = None


def set_names(folder: Path) -> list[str]:
    """The sets of a folder; a corrected variant of a set is run only when it is asked for by name."""
    return sorted(path.stem for path in folder.glob("*.csv") if not path.stem.endswith("-corrected"))


def load_set(folder: Path, name: str) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Samples and labels of one CSV file with the columns ``f0, f1, ..., label``."""
    table = pd.read_csv(folder / f"{name}.csv")
    return table.drop(columns="label").to_numpy(dtype=np.float64), table["label"].to_numpy()


def run_split(folder: Path, name: str, index: int, splits: int, seed: int, options: dict[str, Any]) -> list[Outcome]:
    """All models on one split, on one thread."""
    torch.set_num_threads(1)
    X, y = load_set(folder, name)
    shuffles = StratifiedShuffleSplit(splits, test_size=0.25, random_state=seed)
    train, test = list(shuffles.split(X, y))[index]
    outcomes = []
    for model, make in MODELS.items():
        estimator = make(**options) if model.startswith("Convex") else make()
        outcomes.append(Outcome(name, index, model, **_measure(estimator, X, y, train, test)))
    return outcomes


def _measure(
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


def accuracies(outcomes: Iterable[Outcome]) -> pd.DataFrame:
    """Mean accuracy, sets x models; NaN where a model failed on a split."""
    table = pd.DataFrame([asdict(outcome) for outcome in outcomes])
    table["accuracy"] = table["accuracy"].astype(float)
    means = table.groupby(["name", "model"])["accuracy"].agg(lambda column: column.mean(skipna=False)).unstack()
    return means[list(MODELS)]


def duel(table: pd.DataFrame, rival: str) -> str:
    """On how many sets the cross-validated network wins, ties and loses."""
    difference = (table[CHOSEN] - table[rival]).dropna().round(9)
    wins, losses = int((difference > 0).sum()), int((difference < 0).sum())
    return f"{CHOSEN} against {rival}: {wins} wins, {len(difference) - wins - losses} ties, {losses} losses"


def markdown(outcomes: list[Outcome]) -> str:
    """The table of accuracies, with means, seconds and gaps below it, as markdown."""
    table = accuracies(outcomes)
    runs = pd.DataFrame([asdict(outcome) for outcome in outcomes]).groupby("model")
    seconds, gap = runs["seconds"].mean(), runs["gap"].agg(lambda column: column.astype(float).max())
    lines = [_row(["set", *table.columns]), _row(["---", *("---:" for _ in table.columns)])]
    lines += [_row([str(name), *(f"{value:.3f}" for value in row)]) for name, row in table.iterrows()]
    lines.append(_row(["**mean**", *(f"**{value:.4f}**" for value in table.mean(skipna=False))]))
    lines.append(_row(["seconds per fit", *(f"{seconds[model]:.2f}" for model in table.columns)]))
    gaps = ("" if np.isnan(gap[model]) else f"{gap[model]:.1e}" for model in table.columns)
    lines += [_row(["largest certified gap", *gaps]), ""]
    lines += [f"- {duel(table, rival)}" for rival in RIVALS]
    lines += [f"- failed: {o.model} on {o.name}, split {o.split}: {o.error}" for o in outcomes if o.error]
    return "\n".join(lines) + "\n"


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _option(text: str) -> tuple[str, Any]:
    key, found, value = text.partition("=")
    if not found:
        raise argparse.ArgumentTypeError(f"an option is KEY=VALUE, got {text!r}")
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return key, value


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(os.environ.get("BIDUAL_DATA", "../shared/data"))
    parser.add_argument("--data-dir", type=Path, default=default, help="folder with uci/*.csv (or set BIDUAL_DATA)")
    parser.add_argument("--sets", nargs="+", help="names of sets; all by default")
    parser.add_argument("--splits", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0, help="of the splits")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--option", type=_option, nargs="+", default=[], help="KEY=VALUE for both convex networks")
    parser.add_argument("--out", type=Path, help="write every fit as JSON")
    parser.add_argument("--markdown", type=Path, help="write the table")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    args = parse(arguments)
    folder = args.data_dir / "uci"
    names = args.sets or set_names(folder)
    if not names:
        raise SystemExit(f"no CSV files in {folder}; give the folder that holds uci/ with --data-dir")
    tasks = [
        (folder, name, index, args.splits, args.seed, dict(args.option))
        for name in names
        for index in range(args.splits)
    ]
    outcomes = [
        outcome for part in Parallel(n_jobs=args.jobs)(delayed(run_split)(*task) for task in tasks) for outcome in part
    ]
    text = markdown(outcomes)
    print(text)
    if args.out:
        write_atomically(args.out, json.dumps([asdict(outcome) for outcome in outcomes], indent=1).encode())
    if args.markdown:
        write_atomically(args.markdown, text.encode())


if __name__ == "__main__":
    main()
