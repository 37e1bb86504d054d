"""`bidual path`: one certified network for each of many weight decays."""

import time
from pathlib import Path as FilePath
from typing import Annotated, Any

import typer
from rich.table import Table

from bidual.cli import training as t
from bidual.cli.output import print_json, print_table, working
from bidual.figures import check_figure, path_figure
from bidual.files import check_target, write_atomically
from bidual.paths import regularization_path


def path(
    data: t.Data,
    target: t.Target,
    task: t.Task = "auto",
    n_betas: Annotated[int, typer.Option(help="How many weight decays.")] = 20,
    ratio: Annotated[float, typer.Option(help="The smallest weight decay, as a fraction of beta_max.")] = 1e-3,
    figure: Annotated[FilePath | None, typer.Option(help="A PNG, PDF or SVG to write.", show_default=False)] = None,
    patterns: t.Patterns = None,
    activation: t.Activation = "relu",
    loss: t.LossName = "auto",
    penalty: t.Penalty = "nuclear",
    solver: t.SolverName = "auto",
    tol: t.Tol = 1e-4,
    max_time: t.MaxTime = None,
    seed: t.Seed = 0,
    json: t.Json = False,
) -> None:
    """Train along a path of weight decays, and show loss, size and certified gap of every network."""
    if figure is not None:
        check_figure(figure)
        check_target(figure, data)
    settings: dict[str, Any] = {"activation": activation, "loss": loss, "penalty": penalty, "solver": solver}
    settings |= {
        "patterns": "auto" if patterns is None else patterns,
        "tol": tol,
        "max_time": max_time,
        "random_state": seed,
    }
    table = t.load_training(data, target, task)
    estimator = t.make_estimator(table.task, "auto", settings)
    began = time.perf_counter()
    with working(f"solving for {n_betas} weight decays", quiet=False):
        result = regularization_path(estimator, table.X, table.y, n_betas=n_betas, ratio=ratio)
    seconds = time.perf_counter() - began
    rows = result.rows
    if figure is not None:
        write_atomically(figure, path_figure(rows, figure.suffix))
    if json:
        print_json({"task": table.task, "beta_max": result.beta_max, "seconds": seconds, "path": rows})
    else:
        print_table(_table(rows, f"{table.task} of {target}: {len(rows)} certified networks in {seconds:.1f} s"))


def _table(rows: list[dict[str, Any]], title: str) -> Table:
    table = Table(title=title, title_justify="left")
    for name in ("beta", "beta / beta_max", "train loss per row", "neurons", "certified gap", "seconds"):
        table.add_column(name, justify="right")
    for row in rows:
        numbers = [f"{row['beta']:.4g}", f"{row['fraction']:.4g}", f"{row['loss']:.5g}", str(row["neurons"])]
        table.add_row(*numbers, f"{row['relative_gap']:.1e}", f"{row['seconds']:.2f}")
    return table
