"""Where one algorithm overtakes another: what the table ``Crossovers`` of :mod:`bidual.solvers.plan` was set by.

    python benchmarks/crossover.py [--quick] [--out crossover.json]

Each line is one size, with the processor's seconds of two or more choices to the same certified gap, on one thread.
"""

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bidual.problems.solution import Limits
from bidual.runtime.files import write_atomically
from bidual.runtime.threads import one_thread
from bidual.solvers import EtaNewton, InteriorPoint, KernelADMM, QInteriorPoint
from bidual.solvers.driver import Stage
from bidual.solvers.plan import solve_auto
from gated_problems import Case, make_problem

_TOL, _MOST = 1e-6, 20.0


@dataclass(frozen=True)
class Line:
    """One size: seconds of every choice, infinite where it did not arrive."""

    question: str
    size: str
    seconds: dict[str, float]

    @property
    def winner(self) -> str:
        return min(self.seconds, key=self.seconds.__getitem__)


def _hand_over(gap: float) -> tuple[Stage, ...]:
    return Stage(KernelADMM("float32"), Limits(gap, 400)), Stage(EtaNewton(), Limits(_TOL, 60))


def _seconds(case: Case, stages: Sequence[Stage]) -> float:
    """The least of three, of the processor; a problem keeps its kernel, so each is solved once."""
    taken = []
    for _ in range(3):
        problem = make_problem(case)
        began = time.process_time()
        solution = solve_auto(problem, Limits(_TOL, max_time=_MOST), solver=stages)
        taken.append(time.process_time() - began)
        if solution.certificate.relative_gap > _TOL:
            return float("inf")
    return min(taken)


def _line(question: str, case: Case, choices: Mapping[str, Sequence[Stage]]) -> Line:
    size = f"n={case.n} d={case.d} P={case.patterns} c={case.c} lam={case.fraction:g}"
    return Line(question, size, {name: _seconds(case, stages) for name, stages in choices.items()})


def lines(quick: bool) -> Iterator[Line]:
    """All questions; the small sizes only if quick."""
    gaps = {f"{gap:g}": _hand_over(gap) for gap in (3e-3, 1e-3, 2e-4, 3e-5)}
    for n in (200, 500) if quick else (200, 500, 1000, 2000, 4000):
        for fraction in (0.1, 0.01):
            yield _line("gap of the hand-over to Newton", Case(n, 20, 100, fraction), gaps)
    nuclear: dict[str, Sequence[Stage]] = {
        "q_interior_point": (Stage(QInteriorPoint(), Limits(_TOL, 60)),),
        "interior_point": (Stage(InteriorPoint(), Limits(_TOL, 2)),),
        "kernel_admm": (
            Stage(KernelADMM("float32"), Limits(_TOL, 1000)),
            Stage(KernelADMM("float64"), Limits(_TOL, 4000)),
        ),
    }
    for d, patterns in ((2, 30),) if quick else ((2, 30), (2, 100), (2, 500), (3, 100), (4, 100), (4, 150)):
        for fraction in (0.1, 0.001):
            yield _line("nuclear norms of short blocks", Case(150, d, patterns, fraction, 3, "nuclear"), nuclear)


def table(found: Sequence[Line]) -> str:
    """Markdown."""
    rows = ["| question | size | seconds | winner |", "|---|---|---|---|"]
    for line in found:
        seconds = ", ".join(f"{name} {value:.3f}" for name, value in line.seconds.items())
        rows.append(f"| {line.question} | {line.size} | {seconds} | {line.winner} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    parser.add_argument("--out", type=Path, help="JSON file")
    given = parser.parse_args()
    with one_thread():
        found = list(lines(given.quick))
    print(table(found))
    if given.out is not None:
        rows = [asdict(line) | {"winner": line.winner} for line in found]
        write_atomically(given.out, json.dumps(rows, indent=1).encode())


if __name__ == "__main__":
    main()
