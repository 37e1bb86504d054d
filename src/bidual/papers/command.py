"""`bidual reproduce`: published results, run and checked claim by claim."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bidual.runtime.console import print_json, print_table, say
from bidual.runtime.files import check_target

if TYPE_CHECKING:
    from rich.table import Table

    from bidual.papers.reproduction import Experiment, Reproduction


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="An experiment such as cp_figure_1 or R4, or all; without it, the list.")
    ] = None,
    scale: Annotated[
        str, typer.Option(help="paper (printed sizes), cpu (an hour at most) or smoke (seconds).")
    ] = "cpu",
    out: Annotated[Path, typer.Option(help="The folder for results; finished ones there are not run again.")] = Path(
        "reproduction"
    ),
    data_dir: Annotated[
        Path | None, typer.Option(help="The folder that holds the data sets.", show_default=False)
    ] = None,
    download: Annotated[bool, typer.Option("--download", help="Download image sets that are missing.")] = False,
    device: Annotated[str, typer.Option(help="The torch device, such as cuda.")] = "cpu",
    jobs: Annotated[
        int, typer.Option("--jobs", "--workers", help="Processes: of `all` for experiments, of R13 for its parts.")
    ] = 1,
    address: Annotated[
        str | None,
        typer.Option("--scheduler", help="The Dask scheduler whose workers run them instead.", show_default=False),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Run again what has been run.")] = False,
    page: Annotated[
        Path | None, typer.Option(help="A Markdown page with all results to write.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run published results, and say which of the papers' claims hold.

    Every result goes to OUT/SCALE/NAME: result.json with all numbers, figure.png and figure.svg. An interrupted run
    goes on where it was. `bidual report OUT/SCALE` makes one HTML page of them.
    """
    _check(scale, jobs, page)
    from bidual.papers.reproduction import everything, find, reproduce_all
    from bidual.papers.reproduction.page import write_page
    from bidual.papers.reproduction.run import place
    from bidual.runtime.jobs import scheduler

    if name is None:
        print_table(_catalogue(out, scale))
        return
    chosen = everything() if name.lower() == "all" else [find(name)]
    place(out, chosen[0].name, scale)
    settings: dict[str, Any] = {"data_dir": data_dir, "download": download, "device": device, "workers": jobs}
    settings["force"] = force
    with scheduler(address):
        if len(chosen) > 1:
            done, failed = reproduce_all(chosen, scale, out, settings, say)
        else:
            done, failed = [_alone(chosen[0], scale, out, settings)], {}
    if page is not None and done:
        write_page(page, done)
    if json:
        print_json({"results": [_summary(result) for result in done], "not_run": failed})
    else:
        _show(done, scale)
    if failed:
        raise ValueError(f"{len(failed)} of {len(chosen)} did not run: " + "; ".join(failed.values()))


def _check(scale: str, jobs: int, page: Path | None) -> None:
    from bidual.papers.reproduction.run import check_scale

    check_scale(scale)
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}.")
    if page is not None:
        check_target(page)


def _alone(experiment: "Experiment", scale: str, out: Path, settings: dict[str, Any]) -> "Reproduction":
    from bidual.papers.reproduction import reproduce as run

    began = time.perf_counter()
    done = run(experiment.name, scale, out, say=say, **settings)  # type: ignore[arg-type]
    say(f"{experiment.row} {experiment.name}: {time.perf_counter() - began:.0f} s")
    return done


def _summary(result: "Reproduction") -> dict[str, Any]:
    kept = ("row", "name", "title", "source", "scale", "seed", "seconds", "started", "version", "commit")
    claims = [asdict(claim) for claim in result.claims]
    return {name: getattr(result, name) for name in kept} | {"claims": claims, "folder": str(result.folder)}


def _show(results: "list[Reproduction]", scale: str) -> None:
    from rich.table import Table

    table = Table(title=_title(results, scale), title_justify="left")
    for heading in ("row", "the paper says", "found", "holds"):
        table.add_column(heading)
    for result in results:
        for number, claim in enumerate(result.claims):
            found = f"{claim.ours} ({claim.why})" if claim.why else claim.ours
            row = result.row if not number else ""
            table.add_row(row, claim.paper, found, "yes" if claim.holds else "no", end_section=_last(result, number))
    print_table(table)


def _last(result: "Reproduction", number: int) -> bool:
    return number == len(result.claims) - 1


def _title(results: "list[Reproduction]", scale: str) -> str:
    total = sum(len(result.claims) for result in results)
    note = "; generated data: only whether everything runs" if scale == "smoke" else ""
    return f"{sum(result.holds for result in results)} of {total} claims hold (scale {scale}{note})"


def _catalogue(out: Path, scale: str) -> "Table":
    from rich.table import Table

    from bidual.papers.reproduction import everything, read
    from bidual.papers.reproduction.run import place

    table = Table(title=f"bidual reproduce NAME (finished at scale {scale}: in {out})", title_justify="left")
    for heading in ("row", "name", "what", "where", "data", "finished"):
        table.add_column(heading)
    for experiment in everything():
        kept = read(place(out, experiment.name, scale))
        when = "" if kept is None else f"{kept.started[:10]}, {kept.seconds:.0f} s"
        table.add_row(
            experiment.row, experiment.name, experiment.title, experiment.source, ", ".join(experiment.needs), when
        )
    return table
