"""R^2 on five regression tables against scikit-learn's defaults: ``python benchmarks/regression.py --help``."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch start their threads

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.datasets import (
    load_diabetes,
    make_friedman1,
    make_friedman2,
    make_friedman3,
    make_sparse_uncorrelated,
)
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.model_selection import ShuffleSplit
from sklearn.neural_network import MLPRegressor
from sklearn.svm import SVR

from bidual import ConvexMLPRegressor, ConvexMLPRegressorCV
from uci import Outcome, measured, written

MODELS: dict[str, Callable[[], BaseEstimator]] = {
    "ConvexMLPRegressorCV": ConvexMLPRegressorCV,
    "ConvexMLPRegressor": ConvexMLPRegressor,
    "gated, CV": lambda: ConvexMLPRegressorCV(activation="gated_relu"),
    "RandomForest": lambda: RandomForestRegressor(random_state=0),
    "HistGradientBoosting": lambda: HistGradientBoostingRegressor(random_state=0),
    "MLPRegressor": lambda: MLPRegressor(random_state=0),
    "SVR": SVR,
}
Table = tuple[NDArray[np.float64], NDArray[Any]]
TABLES: dict[str, Callable[[int], Table]] = {
    "diabetes, 442 x 10": lambda seed: load_diabetes(return_X_y=True),
    "Friedman 1, 400 x 10, noise 1": lambda seed: make_friedman1(400, 10, noise=1.0, random_state=seed),
    "Friedman 2, 400 x 4, noise 100": lambda seed: make_friedman2(400, noise=100.0, random_state=seed),
    "Friedman 3, 400 x 4, noise 0.1": lambda seed: make_friedman3(400, noise=0.1, random_state=seed),
    "sparse and linear, 400 x 10": lambda seed: make_sparse_uncorrelated(400, 10, random_state=seed),
}


def run_split(name: str, index: int, splits: int, seed: int) -> list[Outcome]:
    """All models on one split, on one thread; targets are standardised, which some rivals need."""
    torch.set_num_threads(1)
    X, y = TABLES[name](seed)
    train, test = list(ShuffleSplit(splits, test_size=0.25, random_state=seed).split(X))[index]
    y = (y - y[train].mean()) / y[train].std()
    return [Outcome(name, index, model, **measured(make(), X, y, train, test)) for model, make in MODELS.items()]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="+", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--splits", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0, help="of tables and splits")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, help="write every fit as JSON")
    parser.add_argument("--markdown", type=Path, help="write the table")
    args = parser.parse_args(arguments)
    tasks = [(name, index, args.splits, args.seed) for name in args.tables for index in range(args.splits)]
    parts = Parallel(n_jobs=args.jobs)(delayed(run_split)(*task) for task in tasks)
    written([outcome for part in parts for outcome in part], args)


if __name__ == "__main__":
    main()
