"""`bidual path`: one certified network for each of many weight decays."""

import time
from itertools import count
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bidual.cli import training as t
from bidual.runtime.console import print_json, print_table, say, working
from bidual.runtime.files import check_target, write_atomically

if TYPE_CHECKING:
    from rich.table import Table

    from bidual.estimators.paths import Path
    from bidual.runtime.jobs import OnDone

_MOST_SEEDS = 1000


@t.with_options(t.Settings)
def path(
    data: t.Data,
    target: t.Target,
    settings: t.Settings,
    task: t.Task = "auto",
    n_betas: Annotated[int, typer.Option(help="How many weight decays.")] = 20,
    ratio: Annotated[float, typer.Option(help="The smallest weight decay, as a fraction of beta_max.")] = 1e-3,
    figure: Annotated[FilePath | None, t.option("A PNG, PDF or SVG to write.")] = None,
    seeds: Annotated[
        str | None, t.option("Seeds such as 0,1,2 or 0-9: a path for each, to see how much the gates matter.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Processes for the paths of several seeds.")] = 1,
    address: t.Scheduler = None,
    json: t.Json = False,
) -> None:
    """Train along a path of weight decays, and show loss, size and certified gap of every network.

    With --seeds there is a path for every seed of the gates: rows have a seed, the figure has a line for each.
    """
    from bidual.estimators.paths import regularization_path, regularization_paths
    from bidual.reporting.figures import path_figure
    from bidual.reporting.plots import check_figure
    from bidual.runtime.jobs import scheduler

    chosen = None if seeds is None else _seeds(seeds)
    t.check_jobs(jobs, address, chosen is not None, "the paths of several seeds; add --seeds 0,1,2")
    if figure is not None:
        check_figure(figure)
        check_target(figure, data)
    table = t.load_training(data, target, task)
    estimator = t.make_estimator(table.task, "auto", settings.parameters())
    began = time.perf_counter()
    fit = (estimator, table.X, table.y)
    with working(f"solving for {n_betas} weight decays", quiet=False), scheduler(address):
        if chosen is None:
            paths = [regularization_path(*fit, n_betas=n_betas, ratio=ratio)]
        else:
            paths = regularization_paths(
                *fit, seeds=chosen, n_betas=n_betas, ratio=ratio, n_jobs=jobs, on_done=_announce(chosen)
            )
    seconds = time.perf_counter() - began
    rows = paths[0].rows
    if chosen is not None:  # of all paths below each other, with their seeds
        rows = [{"seed": seed, **row} for seed, path in zip(chosen, paths, strict=True) for row in path.rows]
    if figure is not None:
        write_atomically(figure, path_figure(rows, figure.suffix))
    if json:
        top = max(each.beta_max for each in paths)
        several = {} if chosen is None else {"seeds": chosen}
        print_json({"task": table.task, "beta_max": top, "seconds": seconds, **several, "path": rows})
    else:
        print_table(_table(rows, f"{table.task} of {target}: {len(rows)} certified networks in {seconds:.1f} s"))


def _seeds(text: str) -> list[int]:
    """ "0,1,5" and "0-9", or both: whole numbers, each once."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"seeds must be whole numbers such as 0,1,2 or 0-9, got {text!r}.")
        end = int(last) if dash else int(first)
        if not int(first) <= end < 2**32 or end - int(first) >= _MOST_SEEDS:
            raise ValueError(f"seeds must go upwards, {_MOST_SEEDS} at most and below 2^32, got {text!r}.")
        found += range(int(first), end + 1)
    if len(set(found)) < len(found):
        raise ValueError(f"seeds must differ, got {text!r}; the same seed draws the same path.")
    return found


def _announce(seeds: list[int]) -> "OnDone":
    """Prints on standard error which of several paths has ended."""
    counter = count(1)

    def ended(number: int, path: "Path") -> None:
        gap = max(row["relative_gap"] for row in path.rows)
        say(f"seed {seeds[number]}: largest gap {gap:.1e} ({next(counter)} of {len(seeds)} paths)")

    return ended


def _table(rows: list[dict[str, Any]], title: str) -> "Table":
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    if "seed" in rows[0]:
        table.add_column("seed", justify="right")
    for name in ("beta", "beta / beta_max", "train loss per row", "neurons", "certified gap", "seconds"):
        table.add_column(name, justify="right")
    for row in rows:
        numbers = [str(row["seed"])] if "seed" in row else []
        numbers += [f"{row['beta']:.4g}", f"{row['fraction']:.4g}", f"{row['loss']:.5g}", str(row["neurons"])]
        table.add_row(*numbers, f"{row['relative_gap']:.1e}", f"{row['seconds']:.2f}")
    return table
