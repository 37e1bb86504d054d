"""Trained and random gates on sets of scikit-learn (docs/uci.md): ``python benchmarks/gates_elsewhere.py --help``."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch start their threads

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
from sklearn import datasets

from bidual import ConvexMLPClassifier, ConvexMLPRegressor
from gates import scores_on_path
from splits import Split, Table, on_splits, parser_of_splits, write_outcomes

FRACTIONS = (0.3, 0.1, 0.03, 0.01)  # of beta_max
LABELLED: dict[str, Callable[[], Table]] = {
    "breast cancer": partial(datasets.load_breast_cancer, return_X_y=True),
    "wine": partial(datasets.load_wine, return_X_y=True),
    "digits": partial(datasets.load_digits, return_X_y=True),
}
TABLES: dict[str, Callable[[], Table]] = LABELLED | {
    "diabetes": partial(datasets.load_diabetes, return_X_y=True),
    "Friedman 1": partial(datasets.make_friedman1, n_samples=400, noise=1.0, random_state=0),
    "Friedman 1, large": partial(datasets.make_friedman1, n_samples=2000, noise=1.0, random_state=0),
    "Friedman 2": partial(datasets.make_friedman2, n_samples=400, noise=50.0, random_state=0),
    "Friedman 3": partial(datasets.make_friedman3, n_samples=400, noise=0.1, random_state=0),
}


@dataclass(frozen=True)
class Outcome:
    """One choice of gates on one split: R^2 or accuracy at every fraction of beta_max, and processor seconds."""

    name: str
    split: int
    gates: str
    scores: list[float]
    seconds: float


def run_split(gates: Sequence[str], options: dict[str, Any], split: Split) -> list[Outcome]:
    """All choices of gates on one split; numbers are predicted in units of the training part."""
    warnings.simplefilter("ignore")
    make = ConvexMLPClassifier if split.name in LABELLED else ConvexMLPRegressor
    parts = (split if split.name in LABELLED else split.in_units_of_training()).parts
    outcomes = []
    for each in gates:
        settings = {"n_gates": each if each == "auto" else int(each), "random_state": split.index} | options
        found = scores_on_path(make(activation="gated_relu", **settings), parts, FRACTIONS)
        outcomes.append(Outcome(split.name, split.index, each, *found))
    return outcomes


def table(outcomes: Sequence[Outcome]) -> str:
    """Means over the splits."""
    rows = pd.DataFrame([[one.name, one.gates, *one.scores, one.seconds] for one in outcomes])
    rows.columns = ["set", "gates", *(f"at {share:g}" for share in FRACTIONS), "seconds"]
    return rows.groupby(["set", "gates"], sort=False).mean().round(4).to_string() + "\n"


def main(arguments: list[str] | None = None) -> None:
    parser = parser_of_splits(__doc__)
    parser.set_defaults(splits=2, seed=200)
    parser.add_argument("--tables", nargs="+", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--gates", nargs="+", default=["100", "200", "1000", "auto"], help="random gates, or auto")
    args = parser.parse_args(arguments)
    work = partial(run_split, args.gates, dict(args.option))
    outcomes = on_splits(work, {name: TABLES[name] for name in args.tables}, args, labels=False)
    write_outcomes(outcomes, table(outcomes), args)


if __name__ == "__main__":
    main()
