"""The race: every system on the same problems, one process after another, one thread each, to equal gaps.

    python benchmarks/peers/race.py [--quick] [--only NAME ...] [--limit SECONDS] [--out FOLDER] [--resume]

A system is asked for one tolerance after another, loosest first, each a fresh solve; its time to a gap is that of the
fastest solve which the judge finds to be so good, in CPU seconds. Rivals stop at the target, or when a solve exceeds
the limit. Written are ``peers.json`` (after every case), ``peers.md``, ``peers.png`` and ``peers.svg``; a quick race
has ``peers-quick`` instead. ``--only`` measures some cases again and leaves the others of the file as they are.
"""

import argparse
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bidual.runtime.files import write_atomically
from cases import CASES, QUICK, Case
from course import run_case
from environments import FOLDER, HERE
from facts import facts
from race_results import CaseResult, Race, read_race
from race_table import row
from report import curves, markdown

LIMIT = 150.0


def run_race(
    cases: Sequence[Case], again: Sequence[Case], file: Path, environments: Path, limit: float
) -> Iterator[Race]:
    """The race after each case of ``again``, and once at the end; other ``cases`` are kept as they are in the file."""
    found = facts(cases, environments)
    done = kept(cases, file)
    for case in again:
        done[case.name] = run_case(case, environments, limit, f"{found['date']} {found['commit']}")
        _say(done[case.name])
        yield _race(found, cases, done)
    yield _race(found, cases, done)


def _race(found: Mapping[str, Any], cases: Sequence[Case], done: Mapping[str, CaseResult]) -> Race:
    return Race(found, tuple(done[case.name] for case in cases if case.name in done))


def kept(cases: Sequence[Case], file: Path) -> dict[str, CaseResult]:
    """The stored results of these very problems and rivals, with what is demanded today."""
    stored = {result.name: result for result in read_race(file).cases} if file.exists() else {}
    return {
        case.name: replace(stored[case.name], needs=dict(case.needs), at_most=case.at_most, label=case.spec.label)
        for case in cases
        if case.name in stored and _same(case, stored[case.name])
    }


def _same(case: Case, result: CaseResult) -> bool:
    return (case.spec.as_dict(), case.target, set(case.needs)) == (result.spec, result.target, set(result.needs))


def _say(result: CaseResult) -> None:
    words = row(result)
    rivals = "; ".join(f"{name} {text}" for name, text in words.rivals.items())
    print(f"{result.name}: {words.ours}; {rivals}; {words.ratio}; met: {words.met}", flush=True)


def _write(race: Race, file: Path) -> None:
    write_atomically(file.with_suffix(".md"), markdown(race).encode())
    for suffix in (".png", ".svg"):
        write_atomically(file.with_suffix(suffix), curves(race.cases, suffix))


def chosen(cases: Sequence[Case], only: Sequence[str] | None, finished: Collection[str]) -> list[Case]:
    """The cases to measure: those asked for, or all, without those that are finished."""
    unknown = set(only or ()) - {case.name for case in cases}
    if unknown:
        raise SystemExit(f"no such case: {', '.join(sorted(unknown))}. There are {', '.join(c.name for c in cases)}.")
    return [case for case in cases if (not only or case.name in only) and case.name not in finished]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="Small sizes only.")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="Some cases.")
    parser.add_argument("--limit", type=float, default=LIMIT, help="Seconds for one solve.")
    parser.add_argument("--out", type=Path, default=HERE.parent / "results", help="Where results go.")
    parser.add_argument("--environments", type=Path, default=FOLDER, help="Where environments.py made them.")
    parser.add_argument("--resume", action="store_true", help="Keep the cases that the last run finished.")
    return parser


def main() -> None:
    options = _parser().parse_args()
    cases, file = (QUICK if options.quick else CASES), options.out / f"peers{'-quick' if options.quick else ''}.json"
    again = chosen(cases, options.only, kept(cases, file) if options.resume else ())
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.resume and not options.only:
        file.unlink(missing_ok=True)
    for race in run_race(cases, again, file, options.environments, options.limit):
        write_atomically(file, race.as_json().encode())
    _write(race, file)
    print(markdown(race))


if __name__ == "__main__":
    main()
