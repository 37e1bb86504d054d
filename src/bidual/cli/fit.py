"""`bidual fit`: train a network on a table and save it."""

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from bidual.cli import training as t
from bidual.cli.fit_distributed import Request, fit_distributed, show
from bidual.cli.output import print_facts, print_json, working
from bidual.estimators.base import ConvexEstimator
from bidual.files import check_target
from bidual.serialize import save


def fit(
    data: t.Data,
    target: t.Target,
    out: Annotated[Path, typer.Option(help="The model file to write (safetensors).", show_default=False)],
    task: t.Task = "auto",
    beta: Annotated[str, typer.Option(help="The weight decay: cv, auto (a tenth of beta_max), or a number.")] = "cv",
    patterns: t.Patterns = None,
    activation: t.Activation = "relu",
    loss: t.LossName = "auto",
    penalty: t.Penalty = "nuclear",
    solver: t.SolverName = "auto",
    tol: t.Tol = 1e-4,
    max_time: t.MaxTime = None,
    seed: t.Seed = 0,
    distributed: Annotated[
        bool, typer.Option("--distributed", help="One fit over the processes that torchrun started (docs/scale.md).")
    ] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="With --distributed: where the best point is kept, and started from if it is there.",
            show_default=False,
        ),
    ] = None,
    json: t.Json = False,
    quiet: t.Quiet = False,
) -> None:
    """Train a network on a table and save it with its certificate.

    Numeric columns are standardised, others one-hot encoded; the model file remembers how.
    """
    if checkpoint is not None and not distributed:
        raise ValueError("a checkpoint is kept by distributed runs only; add --distributed, or leave --checkpoint out.")
    if not distributed:
        check_target(out, data)
    settings: dict[str, Any] = {"activation": activation, "loss": loss, "penalty": penalty, "solver": solver}
    settings |= {
        "patterns": "auto" if patterns is None else patterns,
        "tol": tol,
        "max_time": max_time,
        "random_state": seed,
    }
    if distributed:
        _fit_distributed(Request(data, target, out, task, beta, settings, checkpoint), json, quiet)
        return
    table = t.load_training(data, target, task)
    estimator = t.make_estimator(table.task, beta, settings)
    began = time.perf_counter()
    _train(estimator, table, beta, quiet)
    seconds = time.perf_counter() - began
    save(estimator, out, table.encoder)
    if json:
        print_json(_payload(estimator, table, seconds, out))
    elif not quiet:
        print_facts(_facts(estimator, table, seconds, out))


def _fit_distributed(request: Request, json: bool, quiet: bool) -> None:
    outcome = fit_distributed(request)
    if outcome is not None:
        show(outcome, request, json, quiet)


def _train(estimator: ConvexEstimator, table: t.TrainingTable, beta: str, quiet: bool) -> None:
    if beta == "cv":
        with working("choosing beta by cross-validation", quiet):
            estimator.fit(table.X, table.y)
        return
    estimator.set_params(verbose=int(not quiet and sys.stderr.isatty()))
    estimator.fit(table.X, table.y)
    estimator.set_params(verbose=0)


def _metric(table: t.TrainingTable) -> str:
    return "accuracy" if table.task == "classification" else "r2"


def _payload(estimator: ConvexEstimator, table: t.TrainingTable, seconds: float, out: Path) -> dict[str, Any]:
    certificate = estimator.certificate_
    payload = {
        "task": table.task,
        "rows": len(table.y),
        "features": table.X.shape[1],
        "beta": estimator.beta_,
        "beta_max": estimator.beta_max_,
        "primal": certificate.primal,
        "dual": certificate.dual,
        "relative_gap": certificate.relative_gap,
        "scope": certificate.scope.name,
        "neurons": estimator.n_neurons_,
        "solver": estimator.solver_,
        f"train_{_metric(table)}": t.score(estimator, table.X, table.y),
        "seconds": seconds,
        "out": str(out),
    }
    if hasattr(estimator, "cv_scores_"):
        scores = estimator.cv_scores_
        payload["cv_loss"] = -float(scores[estimator.best_index_].mean())
        payload["cv"] = {"betas": estimator.betas_.tolist(), "losses": (-scores).tolist()}
    return payload


def _facts(estimator: ConvexEstimator, table: t.TrainingTable, seconds: float, out: Path) -> dict[str, str]:
    facts = {
        "task": f"{table.task} ({table.reason})",
        "data": f"{len(table.y)} rows; {table.encoder.summary}",
        "beta": f"{estimator.beta_:.4g}, that is {estimator.beta_ / max(estimator.beta_max_, 1e-300):.3g} of beta_max",
    }
    if hasattr(estimator, "cv_scores_"):
        scores = -estimator.cv_scores_[estimator.best_index_]
        facts["cv loss"] = f"{scores.mean():.4g} +- {scores.std():.2g} per sample over {len(scores)} held-out folds"
    return facts | {
        "certificate": str(estimator.certificate_),
        "network": f"{estimator.n_neurons_} neurons ({estimator.solver_}, {estimator.n_iter_} steps)",
        f"train {_metric(table)}": f"{t.score(estimator, table.X, table.y):.4f}",
        "seconds": f"{seconds:.2f}",
        "saved": str(out),
    }
