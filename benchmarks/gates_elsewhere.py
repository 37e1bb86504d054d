"""Trained and random gates on sets of scikit-learn (docs/uci.md): ``python benchmarks/gates_elsewhere.py``."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch start their threads

import warnings
from collections.abc import Callable
from time import process_time
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.model_selection import ShuffleSplit
from sklearn.preprocessing import StandardScaler

from bidual import ConvexMLPClassifier, ConvexMLPRegressor
from bidual.problems.solution import Limits

FRACTIONS = (0.3, 0.1, 0.03, 0.01)  # of beta_max
GATES: tuple[int | str, ...] = (100, 200, 1000, "auto")


class Set(NamedTuple):
    """A set of scikit-learn, and how many splits of it are measured."""

    load: Callable[..., Any]
    splits: int
    options: dict[str, Any]
    classes: bool = False


SETS = {
    "diabetes": Set(datasets.load_diabetes, 3, {"return_X_y": True}),
    "breast cancer": Set(datasets.load_breast_cancer, 2, {"return_X_y": True}, True),
    "wine": Set(datasets.load_wine, 2, {"return_X_y": True}, True),
    "Friedman 1": Set(datasets.make_friedman1, 2, {"n_samples": 400, "noise": 1.0, "random_state": 0}),
    "Friedman 1, large": Set(datasets.make_friedman1, 1, {"n_samples": 2000, "noise": 1.0, "random_state": 0}),
    "Friedman 2": Set(datasets.make_friedman2, 2, {"n_samples": 400, "noise": 50.0, "random_state": 0}),
    "Friedman 3": Set(datasets.make_friedman3, 2, {"n_samples": 400, "noise": 0.1, "random_state": 0}),
    "digits": Set(datasets.load_digits, 1, {"return_X_y": True}, True),
}


def scores(gates: int | str, seed: int, classes: bool, parts: tuple[NDArray[Any], ...]) -> list[float]:
    """R^2 or accuracy on the test part at every fraction of beta_max."""
    X, y, X_test, y_test = parts
    make = ConvexMLPClassifier if classes else ConvexMLPRegressor
    estimator = make(activation="gated_relu", n_gates=gates, random_state=seed)
    program = estimator._program(estimator._validate_fit(X, y, None))
    found = []
    for fit in program.path([share * program.beta_max for share in FRACTIONS], Limits(1e-3)):
        estimator._become(fit)
        found.append(float(estimator.score(X_test, y_test)))
    return found


def measure(one: Set, gates: int | str) -> tuple[NDArray[np.float64], float]:
    """Mean scores over the splits, and processor seconds per split."""
    X, y = one.load(**one.options)
    found, began = [], process_time()
    for seed, (train, test) in enumerate(ShuffleSplit(one.splits, test_size=0.25, random_state=200).split(X)):
        scaler, centre, spread = StandardScaler().fit(X[train]), y[train].mean(), y[train].std()
        targets = y if one.classes else (y - centre) / spread
        parts = scaler.transform(X[train]), targets[train], scaler.transform(X[test]), targets[test]
        found.append(scores(gates, seed, one.classes, parts))
    return np.mean(found, 0), (process_time() - began) / one.splits


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name, one in SETS.items():
        for gates in GATES:
            found, seconds = measure(one, gates)
            print(f"{name}, {gates} gates: {found.round(4)} in {seconds:.2f} s", flush=True)


if __name__ == "__main__":
    main()
