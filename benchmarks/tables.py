"""The data sets on which certificates over all patterns are measured, at a share of beta_max."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from bidual import ConvexAttentionRegressor, ConvexCNNClassifier, ConvexMLPClassifier, ConvexMLPRegressor
from bidual.estimators.programs import NeuronProgram
from bidual.papers.uci.data import load_uci
from bidual.problems.problem import ReluProblem
from bidual.training.relu.plan import ReluPlan

Table = tuple[NDArray[np.float64], NDArray[Any]]


def _standardised(X: NDArray[np.float64], y: NDArray[Any]) -> Table:
    return StandardScaler().fit_transform(X), y


def breast_cancer(n: int) -> Table:
    """The training part of the README's split."""
    X, y = load_breast_cancer(return_X_y=True)
    X, _, y, _ = train_test_split(X, y, stratify=y, random_state=0)
    return _standardised(X[:n], y[:n])


def diabetes() -> Table:
    X, y = load_diabetes(return_X_y=True)
    return _standardised(X, (y - y.mean()) / y.std())


def gaussian() -> Table:
    """200 normal samples of 10 features, a teacher of 5 neurons."""
    rng = np.random.default_rng(0)
    X, W = rng.standard_normal((200, 10)), rng.standard_normal((10, 5))
    y = np.maximum(X @ W, 0) @ rng.standard_normal(5)
    return X, y / y.std() + 0.1 * rng.standard_normal(200)


def low_rank(n: int) -> Table:
    """Six directions with noise in 30 features, two classes."""
    rng = np.random.default_rng(1)
    Z = rng.standard_normal((n, 6)) * np.array([1, 0.7, 0.5, 0.4, 0.3, 0.25])
    X = Z @ rng.standard_normal((6, 30)) + 0.3 * rng.standard_normal((n, 30))
    score = np.maximum(Z[:, 0] + 0.5 * Z[:, 1], 0) - np.maximum(-Z[:, 0] + Z[:, 2], 0) + 0.3 * rng.standard_normal(n)
    return _standardised(X, (score > np.median(score)).astype(int))


def digits() -> Table:
    X, y = load_digits(return_X_y=True)
    return _standardised(X[:1347], y[:1347])


def small_digits() -> Table:
    """40 images of 8 x 8."""
    X, y = load_digits(return_X_y=True)
    return (X[:40] / 16.0).reshape(-1, 1, 8, 8), y[:40]


def sequences() -> Table:
    """20 sequences of 4 tokens of 3 numbers, and targets that depend on pairs of them."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 4, 3))
    return X, np.tanh(X @ X.transpose(0, 2, 1)) @ X


def uci(name: str, n: int | None, data: Path) -> Table:
    """A random subset of a UCI set, or with None all of it, in random order."""
    found = load_uci(name, data_dir=data)
    rows = np.random.default_rng(0).permutation(len(found.X))[:n]
    return _standardised(found.X[rows], found.y[rows])


def problem(make: Callable[..., Any], table: Table, share: float, **settings: Any) -> tuple[ReluProblem, ReluPlan]:
    """What the estimator would train on the table at beta = share * beta_max, and its plan."""
    est = make(**settings)
    samples = est._validate_fit(*table, None)
    program = est._program(samples)
    assert isinstance(program, NeuronProgram)
    assert isinstance(program.plan, ReluPlan)
    beta = share * program.beta_max
    return program.problem.with_beta(beta), program.plan


CASES: dict[str, tuple[Callable[..., Any], Callable[[Path], Table], dict[str, Any]]] = {
    "breast cancer": (ConvexMLPClassifier, lambda data: breast_cancer(426), {}),
    "breast cancer, n = 100": (ConvexMLPClassifier, lambda data: breast_cancer(100), {}),
    "diabetes": (ConvexMLPRegressor, lambda data: diabetes(), {}),
    "gaussian": (ConvexMLPRegressor, lambda data: gaussian(), {}),
    "wine": (ConvexMLPClassifier, lambda data: _standardised(*load_wine(return_X_y=True)), {}),
    "low rank, n = 2000": (ConvexMLPClassifier, lambda data: low_rank(2000), {}),
    "low rank, n = 20000": (ConvexMLPClassifier, lambda data: low_rank(20_000), {}),
    "digits": (ConvexMLPClassifier, lambda data: digits(), {}),
    "breast cancer, n = 100, log loss": (ConvexMLPClassifier, lambda data: breast_cancer(100), {"loss": "log_loss"}),
    "heart, n = 150, log loss": (
        ConvexMLPClassifier,
        lambda data: uci("statlog-heart", 150, data),
        {"loss": "log_loss"},
    ),
    "ionosphere, n = 150, log loss": (
        ConvexMLPClassifier,
        lambda data: uci("ionosphere", 150, data),
        {"loss": "log_loss"},
    ),
    "CNN on 40 digits": (ConvexCNNClassifier, lambda data: small_digits(), {"activation": "relu"}),
    "attention": (ConvexAttentionRegressor, lambda data: sequences(), {"activation": "relu"}),
}


def _first(table: Table, n: int) -> Table:
    X, y = table
    return X[:n], y[:n]


# one output each; the first n rows
SMALL: dict[str, tuple[Callable[..., Any], Callable[[int], Table]]] = {
    "breast cancer": (ConvexMLPClassifier, breast_cancer),
    "diabetes": (ConvexMLPRegressor, lambda n: _first(diabetes(), n)),
    "gaussian": (ConvexMLPRegressor, lambda n: _first(gaussian(), n)),
}


def small_problem(name: str, n: int, share: float) -> tuple[ReluProblem, ReluPlan]:
    make, table = SMALL[name]
    return problem(make, table(n), share)
