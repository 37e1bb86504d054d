"""What `fit` and `path` share: options, the training table, and the estimator."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from bidual.estimators.base import ConvexEstimator
    from bidual.io.tables import TableEncoder

TASKS = ("auto", "classification", "regression")

Data = Annotated[Path, typer.Argument(help="A CSV or Parquet file with a header.", metavar="DATA", show_default=False)]
Target = Annotated[str, typer.Option(help="The column to predict.", show_default=False)]
Task = Annotated[str, typer.Option(help="auto, classification or regression.")]
Patterns = Annotated[
    int | None, typer.Option(help="How many gates (or starts of the search for neurons) to sample.", show_default=False)
]
Activation = Annotated[str, typer.Option(help="relu, gated_relu or linear.")]
LossName = Annotated[str, typer.Option(help="auto (squared), log_loss (gives probabilities), or the name of a loss.")]
Penalty = Annotated[str, typer.Option(help="nuclear (weight decay), frobenius or per_output.")]
SolverName = Annotated[str, typer.Option(help="auto, or the name of a solver.")]
Tol = Annotated[float, typer.Option(help="The relative duality gap to certify.")]
MaxTime = Annotated[float | None, typer.Option(help="Seconds for one fit; no limit if not given.", show_default=False)]
Seed = Annotated[int, typer.Option(help="The seed of the gates.")]
Device = Annotated[str, typer.Option(help="Where to compute: cpu, or cuda (with --distributed a GPU for each rank).")]
Jobs = Annotated[int, typer.Option(help="Processes for the folds of the cross-validation.")]
Scheduler = Annotated[
    str | None,
    typer.Option("--scheduler", help="The Dask scheduler whose workers fit the folds instead.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]


@dataclass(frozen=True)
class TrainingTable:
    """A table ready for an estimator."""

    X: "pd.DataFrame"
    y: "NDArray[Any]"
    encoder: "TableEncoder"
    task: str
    reason: str  # why this task, for the report


def load_training(path: Path, target: str, task: str) -> TrainingTable:
    if task not in TASKS:
        raise ValueError(f"task must be one of {', '.join(TASKS)}, got {task!r}.")
    from bidual.io.tables import TableEncoder, guess_task, read_table, split_target, target_values

    features, column = split_target(read_table(path), target)
    reason = "as asked"
    if task == "auto":
        task = guess_task(column)
        reason = f"guessed from {column.nunique()} different values of type {column.dtype} in {target!r}"
    y = target_values(column, task)
    encoder = TableEncoder().fit(features)
    return TrainingTable(encoder.transform(features), y, encoder, task, reason)


def make_estimator(task: str, beta: str, settings: dict[str, Any]) -> "ConvexEstimator":
    """The estimator for a task; beta is "cv", "auto" or a number."""
    from bidual import ConvexMLPClassifier, ConvexMLPClassifierCV, ConvexMLPRegressor, ConvexMLPRegressorCV

    classifies = task == "classification"
    if beta == "cv":
        return (ConvexMLPClassifierCV if classifies else ConvexMLPRegressorCV)(**settings)
    return (ConvexMLPClassifier if classifies else ConvexMLPRegressor)(beta=_beta(beta), **settings)


def _beta(text: str) -> float | str:
    try:
        return text if text == "auto" else float(text)
    except ValueError as error:
        raise ValueError(f"beta must be cv, auto or a positive number, got {text!r}.") from error


def score(estimator: "ConvexEstimator", X: "pd.DataFrame", y: "NDArray[Any]") -> float:
    """Accuracy or R^2 on the samples given; NaN where R^2 is not defined."""
    return float(estimator.score(X, y)) if len(set(y.tolist())) > 1 else float("nan")
