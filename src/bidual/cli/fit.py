"""`bidual fit`: train a network on a table and save it."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bidual.cli import training as t
from bidual.cli.folds import Folds
from bidual.runtime.console import print_result, working
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
    beta: Annotated[str, typer.Option(help="The weight decay: cv, auto (a share of beta_max), or a number.")] = "cv",
    scoring: Annotated[
        str | None, t.option("With --beta cv: what networks are judged by on held-out rows, such as roc_auc or r2.")
    ] = None,
    groups: Annotated[
        str | None, t.option("With --beta cv: a column to keep out of the features; its equal rows stay in one fold.")
    ] = None,
    distributed: t.Distributed = False,
    checkpoint: Annotated[
        Path | None, t.option("With --distributed: where the best point is kept, and started from if it is there.")
    ] = None,
    device: t.Device = "cpu",
    jobs: Annotated[int, typer.Option(help="Processes for the folds of the cross-validation.")] = 1,
    address: t.Scheduler = None,
    proof: t.Proof = None,
    json: t.Json = False,
    quiet: t.Quiet = False,
) -> None:
    """Train a network on a table and save it with its certificate.

    Numeric columns are standardised, others one-hot encoded; the model file remembers how.
    """
    if checkpoint is not None and not distributed:
        raise ValueError("a checkpoint is kept by distributed runs only; add --distributed, or leave --checkpoint out.")
    t.check_jobs(jobs, address, beta == "cv", "the folds of a cross-validation; use --beta cv")
    folds = Folds(scoring, groups)
    folds.check(beta == "cv" and not distributed)
    if proof is not None and distributed:
        raise ValueError("proof files are for fits in one process; leave --proof or --distributed out.")
    if not distributed:
        check_target(out, data)
    if proof is not None:
        check_target(proof, data, out)
    from bidual.cli.fit_distributed import Request, fit_distributed
    from bidual.estimators.saving import save
    from bidual.runtime.jobs import scheduler

    parameters = settings.parameters() | {"device": device}
    if distributed:
        outcome = fit_distributed(Request(data, target, out, task, beta, parameters, checkpoint))
        if outcome is not None:
            print_result(_payload(outcome, out), _facts(outcome, out), json, quiet)
        return
    table = t.load_training(data, target, task, groups)
    estimator = t.make_estimator(table.task, beta, parameters | folds.settings(table.task, table.groups))
    began = time.perf_counter()
    with scheduler(address):
        _train(estimator, table, jobs if beta == "cv" else None, quiet)
    seconds = time.perf_counter() - began
    save(estimator, out, table.encoder)
    if proof is not None:
        estimator.save_proof(proof)
    scored = (json or not quiet) and len(set(table.y.tolist())) > 1  # R^2 of one value is not defined
    score = float(estimator.score(table.X, table.y)) if scored else float("nan")
    outcome = t.Outcome(estimator, table.encoder, table.task, table.reason, len(table.y), score, seconds)
    print_result(_payload(outcome, out), _facts(outcome, out), json, quiet)


def _train(estimator: "ConvexEstimator", table: t.TrainingTable, jobs: int | None, quiet: bool) -> None:
    """With ``jobs`` folds at a time, or without folds if that is None; the model file remembers neither them nor how
    rows were grouped."""
    if jobs is not None:
        with working("choosing beta by cross-validation", quiet):
            given = {} if table.groups is None else {"groups": table.groups}
            estimator.set_params(n_jobs=jobs).fit(table.X, table.y, **given)
        estimator.set_params(n_jobs=None, cv=None)
        return
    estimator.set_params(verbose=int(not quiet and sys.stderr.isatty()))
    estimator.fit(table.X, table.y)
    estimator.set_params(verbose=0)


def _payload(outcome: t.Outcome, out: Path) -> dict[str, Any]:
    estimator, certificate = outcome.estimator, outcome.estimator.certificate_
    payload = {
        "task": outcome.task,
        "rows": outcome.rows,
        "features": estimator.n_features_in_,
        "beta": estimator.beta_,
        "beta_max": estimator.beta_max_,
        "primal": certificate.primal,
        "dual": certificate.dual,
        "relative_gap": certificate.relative_gap,
        "scope": certificate.scope.name,
        "neurons": estimator.n_neurons_,
        "solver": estimator.solver_,
        f"train_{outcome.metric}": outcome.score,
        "seconds": outcome.seconds,
        "out": str(out),
    }
    if outcome.ranks is not None:
        payload["ranks"] = outcome.ranks
    if hasattr(estimator, "cv_scores_"):
        name, values = estimator.held_out
        payload[f"cv_{name}"] = float(values[estimator.best_index_].mean())
        payload["cv"] = {"betas": estimator.betas_.tolist(), "score": name, "values": values.tolist()}
    return payload


def _facts(outcome: t.Outcome, out: Path) -> dict[str, str]:
    estimator = outcome.estimator
    where = "" if outcome.ranks is None else f" on {outcome.ranks} rank{'s' if outcome.ranks > 1 else ''}"
    facts = {
        "task": f"{outcome.task} ({outcome.reason})",
        "data": f"{outcome.rows} rows{where}; {outcome.encoder.summary}",
        "beta": f"{estimator.beta_:.4g}, that is {estimator.beta_ / max(estimator.beta_max_, 1e-300):.3g} of beta_max",
    }
    if hasattr(estimator, "cv_scores_"):
        name, values = estimator.held_out
        scores = values[estimator.best_index_]
        facts[f"cv {name}"] = f"{scores.mean():.4g} +- {scores.std():.2g} over {len(scores)} held-out folds"
    return facts | {
        "certificate": str(estimator.certificate_),
        "network": f"{estimator.n_neurons_} neurons ({estimator.solver_}, {estimator.n_iter_} steps)",
        f"train {outcome.metric}": f"{outcome.score:.4f}",
        "seconds": f"{outcome.seconds:.2f}",
        "saved": str(out),
    }
