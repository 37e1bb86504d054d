"""How long the gated problems of the field take, on one thread, to certified relative gaps of 1e-2, 1e-4 and 1e-6.

    python benchmarks/bench.py [--quick] [--json] [--peers FILE]

``--peers`` times nothing: it shows the result of a race with other systems, as ``peers/race.py`` wrote it.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from bidual.runtime.console import print_table
from bidual.runtime.threads import one_thread
from gated_problems import GAPS, QUICK, SUITE, Outcome, run_case

sys.path.append(str(Path(__file__).parent / "peers"))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="only the small size")
    parser.add_argument("--peers", type=Path, help="time nothing; show this result of a race with other systems")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(arguments)
    if given.peers is not None:
        try:
            show_race(given.peers, given.json)
        except (OSError, ValueError) as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(2)
        return
    outcomes = []
    for case in QUICK if given.quick else SUITE:
        with one_thread():
            outcomes.append(run_case(case))
    if given.json:
        print(json.dumps({"gaps": GAPS, "cases": [asdict(outcome) for outcome in outcomes]}, indent=1))
    else:
        print_table(table(outcomes))


def show_race(file: Path, as_json: bool) -> None:
    """A table with one line per problem, or the same lines as JSON."""
    from race_on_terminal import peer_rows, peer_table
    from race_results import read_race

    race = read_race(file)
    if as_json:
        print(json.dumps({**race.facts, "rows": peer_rows(race)}, indent=1))
    else:
        print_table(peer_table(race))


def table(outcomes: list[Outcome]) -> Table:
    """One line per problem: its sizes, seconds to each gap, and where it ended."""
    shown = Table(title="seconds to a certified relative gap (squared loss, given gates)", title_justify="left")
    for name in ("n", "d", "P", "c", "penalty", "lam/lam_max"):
        shown.add_column(name, justify="left" if name == "penalty" else "right")
    for name in (*(f"{gap:.0e}" for gap in GAPS), "final gap", "objective", "known optimum"):
        shown.add_column(name, justify="right", no_wrap=True)
    for outcome in outcomes:
        case = outcome.case
        sizes = [str(value) for value in (case.n, case.d, case.patterns, case.c)]
        times = ["-" if seconds is None else f"{seconds:.2f}" for seconds in outcome.seconds]
        known = "" if outcome.known is None else f"{outcome.known:.10f}"
        shown.add_row(
            *sizes, case.penalty, f"{case.fraction:g}", *times, f"{outcome.gap:.1e}", f"{outcome.objective:.10f}", known
        )
    return shown


if __name__ == "__main__":
    main()
