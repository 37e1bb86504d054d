"""Test accuracy on small tables against scikit-learn's defaults: ``python benchmarks/uci.py --help``.

21 UCI sets, and three that scikit-learn ships. Every model is fitted on one thread.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch start their threads

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC

from bidual.estimators import ConvexMLPClassifier
from bidual.estimators.cv import ConvexMLPClassifierCV
from splits import Split, chosen_sets, line_of, measured, on_splits, parser_of_sets, write_outcomes

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


@dataclass(frozen=True)
class Outcome:
    """One fit on one split. A model that raised has accuracy None and says why; only convex models have a gap.

    Of regressors the accuracy is R^2.
    """

    name: str
    split: int
    model: str
    accuracy: float | None = None
    seconds: float = 0.0
    gap: float | None = None
    error: str | None = None


def run_split(options: dict[str, Any], models: Sequence[str] | None, split: Split) -> list[Outcome]:
    """All models on one split, or those of these names."""
    convex = {key: partial(make, **options) for key, make in CONVEX.items()}
    estimators = {key: make() for key, make in (convex | RIVALS).items() if models is None or key in models}
    outcomes = [outcome_of(model, estimator, split) for model, estimator in estimators.items()]
    print(f"{split.name}, split {split.index}: {outcomes[0].seconds:.1f} s", file=sys.stderr, flush=True)
    return outcomes


def outcome_of(model: str, estimator: BaseEstimator, split: Split) -> Outcome:
    return Outcome(split.name, split.index, model, **measured(estimator, split, _accuracy))


def _accuracy(model: Pipeline, split: Split) -> dict[str, Any]:
    return {"accuracy": float(model.score(split.X[split.test], split.y[split.test]))}


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


def main(arguments: list[str] | None = None) -> None:
    parser = parser_of_sets(__doc__, jobs=2)
    parser.add_argument("--models", nargs="+", choices=[*CONVEX, *RIVALS], help="all by default")
    parser.add_argument("--of", type=Path, nargs="+", help="outcomes that were written, instead of fits")
    args = parser.parse_args(arguments)
    if args.of:
        outcomes = [Outcome(**one) for place in args.of for one in json.loads(place.read_text())]
    else:
        outcomes = on_splits(partial(run_split, dict(args.option), args.models), chosen_sets(args), args)
    write_outcomes(outcomes, markdown(outcomes), args)


if __name__ == "__main__":
    main()
