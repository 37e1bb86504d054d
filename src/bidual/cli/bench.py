"""`bidual bench`: how long the gated problems of the field take."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bidual.cli.output import print_json, print_table, working
from bidual.cli.training import Json

if TYPE_CHECKING:
    from rich.table import Table

    from bidual.benchmarking import Outcome


def bench(
    quick: Annotated[bool, typer.Option("--quick", help="Only the small size.")] = False,
    peers: Annotated[
        Path | None, typer.Option("--peers", help="Time nothing; show this result of a race with other systems.")
    ] = None,
    json: Json = False,
) -> None:
    """Time the automatic solver, on one thread, to certified relative gaps of 1e-2, 1e-4 and 1e-6."""
    if peers is not None:
        _show_race(peers, json)
        return
    from bidual.benchmarking import GAPS, QUICK, SUITE, run_case
    from bidual.threads import one_thread

    outcomes = []
    for case in QUICK if quick else SUITE:
        what = f"n={case.n} d={case.d} P={case.patterns} c={case.c} {case.penalty} {case.fraction:g}"
        with working(what, quiet=False), one_thread():
            outcomes.append(run_case(case))
    if json:
        print_json({"gaps": list(GAPS), "cases": [asdict(outcome) for outcome in outcomes]})
    else:
        print_table(_table(outcomes))


def _show_race(file: Path, json: bool) -> None:
    from bidual.cli.peers import peer_rows, peer_table
    from bidual.peer_results import read_race

    race = read_race(file)
    if json:
        print_json({**race.facts, "rows": peer_rows(race)})
    else:
        print_table(peer_table(race))


def _table(outcomes: "list[Outcome]") -> "Table":
    from rich.table import Table

    from bidual.benchmarking import GAPS

    table = Table(title="seconds to a certified relative gap (squared loss, given gates)", title_justify="left")
    for name in ("n", "d", "P", "c", "penalty", "lam/lam_max"):
        table.add_column(name, justify="left" if name == "penalty" else "right")
    for name in (*(f"{gap:.0e}" for gap in GAPS), "final gap", "objective", "known optimum"):
        table.add_column(name, justify="right", no_wrap=True)
    for outcome in outcomes:
        case = outcome.case
        sizes = [str(value) for value in (case.n, case.d, case.patterns, case.c)]
        times = ["-" if seconds is None else f"{seconds:.2f}" for seconds in outcome.seconds]
        known = "" if outcome.known is None else f"{outcome.known:.10f}"
        table.add_row(
            *sizes, case.penalty, f"{case.fraction:g}", *times, f"{outcome.gap:.1e}", f"{outcome.objective:.10f}", known
        )
    return table
