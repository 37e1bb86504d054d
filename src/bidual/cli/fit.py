"""`bidual fit`: train a network on a table and save it."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bidual.cli import training as t
from bidual.runtime.console import working
from bidual.runtime.files import check_target

if TYPE_CHECKING:
    from bidual.estimators.base import ConvexEstimator


@t.with_options(t.Settings)
def fit(
    data: t.Data,
    target: t.Target,
    out: Annotated[Path, t.option("The model file to write (safetensors).")],
    settings: t.Settings,
    task: t.Task = "auto",
    beta: Annotated[str, typer.Option(help="The weight decay: cv, auto (a tenth of beta_max), or a number.")] = "cv",
    distributed: Annotated[
        bool, typer.Option("--distributed", help="One fit over the processes that torchrun started (docs/scale.md).")
    ] = False,
    checkpoint: Annotated[
        Path | None, t.option("With --distributed: where the best point is kept, and started from if it is there.")
    ] = None,
    device: t.Device = "cpu",
    jobs: Annotated[int, typer.Option(help="Processes for the folds of the cross-validation.")] = 1,
    address: t.Scheduler = None,
    json: t.Json = False,
    quiet: t.Quiet = False,
) -> None:
    """Train a network on a table and save it with its certificate.

    Numeric columns are standardised, others one-hot encoded; the model file remembers how.
    """
    if checkpoint is not None and not distributed:
        raise ValueError("a checkpoint is kept by distributed runs only; add --distributed, or leave --checkpoint out.")
    t.check_jobs(jobs, address, beta == "cv", "the folds of a cross-validation; use --beta cv")
    if not distributed:
        check_target(out, data)
    from bidual.cli.fit_distributed import Request, fit_distributed
    from bidual.cli.fitted import Outcome, show
    from bidual.estimators.saving import save
    from bidual.runtime.jobs import scheduler

    parameters = settings.parameters() | {"device": device}
    if distributed:
        outcome = fit_distributed(Request(data, target, out, task, beta, parameters, checkpoint))
        if outcome is not None:
            show(outcome, out, json, quiet)
        return
    table = t.load_training(data, target, task)
    estimator = t.make_estimator(table.task, beta, parameters)
    began = time.perf_counter()
    with scheduler(address):
        _train(estimator, table, jobs if beta == "cv" else None, quiet)
    seconds = time.perf_counter() - began
    save(estimator, out, table.encoder)
    score = t.score(estimator, table.X, table.y) if json or not quiet else float("nan")
    show(Outcome(estimator, table.encoder, table.task, table.reason, len(table.y), score, seconds), out, json, quiet)


def _train(estimator: "ConvexEstimator", table: t.TrainingTable, jobs: int | None, quiet: bool) -> None:
    """With ``jobs`` folds at a time, or without folds if that is None; the model file does not remember it."""
    if jobs is not None:
        with working("choosing beta by cross-validation", quiet):
            estimator.set_params(n_jobs=jobs).fit(table.X, table.y)
        estimator.set_params(n_jobs=None)
        return
    estimator.set_params(verbose=int(not quiet and sys.stderr.isatty()))
    estimator.fit(table.X, table.y)
    estimator.set_params(verbose=0)
