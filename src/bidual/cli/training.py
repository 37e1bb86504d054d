"""What commands share: options, the training table, the estimator, and the processes of a torchrun."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from bidual.estimators.base import ConvexEstimator
    from bidual.io.tables import TableEncoder
    from bidual.runtime.ranks import Ranks

TASKS = ("auto", "classification", "regression")


class Outcome(NamedTuple):
    """A fit, with how it came about; ``ranks`` is None in one process."""

    estimator: "ConvexEstimator"
    encoder: "TableEncoder"
    task: str
    reason: str  # why this task
    rows: int
    score: float  # on the training rows
    seconds: float
    ranks: int | None = None

    @property
    def metric(self) -> str:
        return "accuracy" if self.task == "classification" else "r2"


def option(text: str, *names: str) -> Any:
    """An option whose default is nothing to show."""
    return typer.Option(*names, help=text, show_default=False)


def argument(name: str, text: str) -> Any:
    return typer.Argument(help=text, metavar=name, show_default=False)


Data = Annotated[Path, argument("DATA", "A CSV or Parquet file with a header.")]
Target = Annotated[str, option("The column to predict.")]
Task = Annotated[str, typer.Option(help="auto, classification or regression.")]
Device = Annotated[str, typer.Option(help="Where to compute: cpu, or cuda (with --distributed a GPU for each rank).")]
Distributed = Annotated[
    bool, typer.Option("--distributed", help="Share the work among the processes of a torchrun (docs/scale.md).")
]
Scheduler = Annotated[str | None, option("The Dask scheduler whose workers do that instead.", "--scheduler")]
Tol = Annotated[float, typer.Option(help="The relative duality gap to certify.")]
MaxTime = Annotated[float | None, option("Seconds for one fit; no limit if not given.")]
Seed = Annotated[int, typer.Option(help="The seed of the gates.")]
Proof = Annotated[Path | None, option("A proof file to write, which `bidual check` proves again.", "--proof")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The estimator's parameters that are options; None leaves its default."""

    activation: Annotated[str, typer.Option(help="relu, gated_relu or linear.")] = "relu"
    n_gates: Annotated[int | None, option("gated_relu: how many random gates to sample, in place of trained ones.")] = (
        None
    )
    oracle: Annotated[str | None, option("relu: how neurons are found: auto, exact or search.")] = None
    n_starts: Annotated[int | None, option("relu: starts of the search for neurons.")] = None
    loss: Annotated[str, typer.Option(help="auto (log_loss to classify with relu, else squared), or a name.")] = "auto"
    quantile: Annotated[float | None, option("Regression: predict this quantile of the target, such as 0.9.")] = None
    class_weight: Annotated[
        str | None, option("Classification: balanced, so that every class counts alike however rare it is.")
    ] = None
    penalty: Annotated[str, typer.Option(help="nuclear (weight decay), frobenius or per_output.")] = "nuclear"
    solver: Annotated[str, typer.Option(help="auto, or the name of a solver.")] = "auto"
    tol: Tol = 1e-4
    max_time: MaxTime = None
    seed: Seed = 0

    def parameters(self) -> dict[str, Any]:
        """Of the estimator."""
        others = ("seed", "quantile")
        given = {name: value for name, value in asdict(self).items() if value is not None and name not in others}
        return given | self._quantile_loss() | {"random_state": self.seed}

    def _quantile_loss(self) -> dict[str, Any]:
        if self.quantile is None:
            return {}
        from bidual.losses import Quantile

        if self.loss not in ("auto", Quantile.name):
            raise ValueError(f"--quantile has a loss of its own, got --loss {self.loss}; leave one of them out.")
        return {"loss": Quantile(self.quantile)}


def with_options(options: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make every field of a dataclass an option of a command, which takes them together as ``settings``."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        shared, own = inspect.signature(options).parameters, inspect.signature(command).parameters
        merged = {name: each for name, each in own.items() if name != "settings"} | dict(shared)

        @wraps(command)
        def run(**given: Any) -> None:
            command(settings=options(**{name: given.pop(name) for name in shared}), **given)

        each = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in merged.values()]
        run.__signature__ = inspect.Signature(each)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in each}
        return run

    return decorate


def check_jobs(jobs: int, address: str | None, several: bool, hint: str) -> None:
    """Refuse processes where there is nothing to share among them; the hint names what can be shared."""
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}.")
    if not several and (jobs > 1 or address is not None):
        raise ValueError(f"several jobs are for {hint}, or leave them out.")


@dataclass(frozen=True)
class TrainingTable:
    """A table ready for an estimator."""

    X: "pd.DataFrame"
    y: "NDArray[Any]"
    encoder: "TableEncoder"
    task: str
    reason: str  # why this task, for the report
    groups: "NDArray[Any] | None" = None  # of rows that stay in one fold


def load_training(path: Path, target: str, task: str, groups: str | None = None) -> TrainingTable:
    """A table without the columns of targets and of groups, encoded."""
    check_task(task)
    from bidual.cli.folds import split_groups
    from bidual.io.tables import TableEncoder, read_table, split_target, target_values

    features, column = split_target(read_table(path), target)
    features, rows_together = split_groups(features, groups)
    task, reason = choose_task(task, column, target)
    y = target_values(column, task)
    encoder = TableEncoder().fit(features)
    return TrainingTable(encoder.transform(features), y, encoder, task, reason, rows_together)


def check_task(task: str) -> None:
    if task not in TASKS:
        raise ValueError(f"task must be one of {', '.join(TASKS)}, got {task!r}.")


def choose_task(task: str, column: "pd.Series", target: str) -> tuple[str, str]:
    """The task for this target column, and why."""
    from bidual.io.tables import guess_task

    if task != "auto":
        return task, "as given"
    reason = f"guessed from {column.nunique()} different values of type {column.dtype} in {target!r}"
    return guess_task(column), reason


def make_estimator(task: str, beta: str, settings: dict[str, Any]) -> "ConvexEstimator":
    """The estimator for a task; beta is "cv", "auto" or a number."""
    from bidual import ConvexMLPClassifier, ConvexMLPClassifierCV, ConvexMLPRegressor, ConvexMLPRegressorCV

    classifies = task == "classification"
    if "class_weight" in settings and not classifies:
        raise ValueError("class weights are for classification, but the task is regression; omit --class-weight.")
    if beta == "cv":
        return (ConvexMLPClassifierCV if classifies else ConvexMLPRegressorCV)(**settings)
    return (ConvexMLPClassifier if classifies else ConvexMLPRegressor)(beta=_beta(beta), **settings)


def _beta(text: str) -> float | str:
    try:
        return text if text == "auto" else float(text)
    except ValueError as error:
        raise ValueError(f"beta must be cv, auto or a positive number, got {text!r}.") from error


@contextmanager
def command_ranks(device: str) -> "Iterator[Ranks]":
    """The ranks of a command, on the CPU or with a GPU each.

    What all of them refuse is reported by rank 0, and the others end silently; a lost rank is reported by those that
    are left.
    """
    from bidual.runtime.numerical_errors import NUMERICAL
    from bidual.runtime.rank_errors import FailedTogetherError, LeaderEndedError
    from bidual.runtime.torchrun import torchrun_ranks

    try:
        with torchrun_ranks(device=device) as ranks:
            try:
                yield ranks
            except (FloatingPointError, ValueError) as error:
                if not isinstance(error.__cause__ or error, NUMERICAL):
                    raise
                raise FailedTogetherError(str(error), ranks.leads) from error  # training diverges on all of them
    except (FailedTogetherError, LeaderEndedError) as error:
        if isinstance(error, FailedTogetherError) and error.leads:
            raise
        raise typer.Exit(2) from error
