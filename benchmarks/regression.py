"""R^2 on five regression tables against scikit-learn's defaults: ``python benchmarks/regression.py --help``."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch start their threads

from collections.abc import Callable
from functools import partial
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.datasets import (
    load_diabetes,
    make_friedman1,
    make_friedman2,
    make_friedman3,
    make_sparse_uncorrelated,
)
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.svm import SVR

from bidual import ConvexMLPRegressor, ConvexMLPRegressorCV
from splits import Split, Table, on_splits, parser_of_splits, write_outcomes
from uci import Outcome, markdown, outcome_of

CONVEX: dict[str, Callable[..., BaseEstimator]] = {
    "ConvexMLPRegressorCV": ConvexMLPRegressorCV,
    "ConvexMLPRegressor": ConvexMLPRegressor,
    "gated, CV": lambda **options: ConvexMLPRegressorCV(**{"activation": "gated_relu"} | options),
}
RIVALS: dict[str, Callable[[], BaseEstimator]] = {
    "RandomForest": lambda: RandomForestRegressor(random_state=0),
    "HistGradientBoosting": lambda: HistGradientBoostingRegressor(random_state=0),
    "MLPRegressor": lambda: MLPRegressor(random_state=0),
    "SVR": SVR,
}
TABLES: dict[str, Callable[[int], Table]] = {
    "diabetes, 442 x 10": lambda seed: load_diabetes(return_X_y=True),
    "Friedman 1, 400 x 10, noise 1": lambda seed: make_friedman1(400, 10, noise=1.0, random_state=seed),
    "Friedman 2, 400 x 4, noise 100": lambda seed: make_friedman2(400, noise=100.0, random_state=seed),
    "Friedman 3, 400 x 4, noise 0.1": lambda seed: make_friedman3(400, noise=0.1, random_state=seed),
    "sparse and linear, 400 x 10": lambda seed: make_sparse_uncorrelated(400, 10, random_state=seed),
}


def run_split(options: dict[str, Any], split: Split) -> list[Outcome]:
    """All models on one split; targets are standardised, which some rivals need."""
    estimators = {key: make(**options) for key, make in CONVEX.items()} | {key: make() for key, make in RIVALS.items()}
    fitted = split.in_units_of_training()
    return [outcome_of(model, estimator, fitted) for model, estimator in estimators.items()]


def main(arguments: list[str] | None = None) -> None:
    parser = parser_of_splits(__doc__, jobs=2)
    parser.add_argument("--tables", nargs="+", choices=list(TABLES), default=list(TABLES))
    args = parser.parse_args(arguments)
    tables = {name: partial(TABLES[name], args.seed) for name in args.tables}
    outcomes = on_splits(partial(run_split, dict(args.option)), tables, args, labels=False)
    write_outcomes(outcomes, markdown(outcomes), args)


if __name__ == "__main__":
    main()
