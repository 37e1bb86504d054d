"""Where one algorithm overtakes another: what the table of :mod:`bidual.runtime.crossovers` was set by.

    python benchmarks/crossover.py [--quick] [--proofs] [--out crossover.json]

Each line is one size. For programs over given patterns it has the seconds of the processor of some choices to the same
certified gap, on one thread; for proofs of ReLU networks the certified gaps of the choices, in per cent, after equal
seconds, or after shares of the seconds that training took.
"""

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest.mock import patch

from bidual import ConvexMLPClassifier
from bidual.polar.products.oracle import ProductBound
from bidual.problems.solution import Limits
from bidual.runtime.files import write_atomically
from bidual.runtime.threads import one_thread
from bidual.solvers import ActiveNeurons, EtaNewton, InteriorPoint, KernelADMM, QInteriorPoint
from bidual.solvers.driver import Stage
from bidual.solvers.plan import solve_auto
from bidual.training.relu import product_bound
from gated_problems import Case, make_problem
from proof_times import proof_course
from tables import CASES, low_rank, problem

_TOL, _MOST = 1e-6, 20.0
_PROOF, _SHARES = 10.0, (0.3, 1.0, 3.0)  # seconds of a proof; shares of the seconds of training


@dataclass(frozen=True)
class Line:
    """One size: seconds of every choice, infinite where it did not arrive, or its gap in per cent."""

    question: str
    size: str
    values: dict[str, float]

    @property
    def winner(self) -> str:
        return min(self.values, key=self.values.__getitem__)


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
    narrow: dict[str, Sequence[Stage]] = {
        "active_neurons": (Stage(ActiveNeurons(), Limits(_TOL, 400)),),
        "kernel_admm": (Stage(KernelADMM("float32"), Limits(_TOL, 1000)),),
    }
    for n, patterns in ((4000, 50),) if quick else ((4000, 50), (8000, 200), (20_000, 200)):
        for fraction in (0.1, 0.01):
            yield _line("narrow designs of many rows", Case(n, 12, patterns, fraction), narrow)
    for d, patterns in ((2, 30),) if quick else ((2, 30), (2, 100), (2, 500), (3, 100), (4, 100), (4, 150)):
        for fraction in (0.1, 0.001):
            yield _line("nuclear norms of short blocks", Case(150, d, patterns, fraction, 3, "nuclear"), nuclear)


@dataclass(eq=False)
class _Rows(ProductBound):
    """Products of rows, however many there are."""

    dense: int = 10**9


@dataclass(eq=False)
class _Clusters(ProductBound):
    """Products of clusters of rows, however few there are."""

    dense: int = 0


def proof_lines(quick: bool) -> Iterator[Line]:
    """Rows against clusters, and what a longer proof gains; beta = beta_max / 10."""
    for n in (300,) if quick else (300, 600, 1000):
        task, plan = problem(ConvexMLPClassifier, low_rank(n), 0.1)
        found = plan.train(task, prove=False)
        gaps = {}
        for name, kind in (("rows", _Rows), ("clusters", _Clusters)):
            with patch.object(product_bound, "ProductBound", kind):
                gaps[name] = _gap(proof_course(task, found, seconds=_PROOF, tol=1e-4), _PROOF)
        yield Line(f"products of rows or clusters, {_PROOF:g} s", f"six directions with noise, n={n}", gaps)
    for name in ("gaussian",) if quick else ("gaussian", "wine", "breast cancer", "diabetes"):
        make, samples, settings = CASES[name]
        task, plan = problem(make, samples(Path()), 0.1, **settings)
        began = time.process_time()
        found = plan.train(task, prove=False)
        trained = time.process_time() - began
        course = proof_course(task, found, seconds=max(_SHARES) * trained, tol=1e-4)
        gaps = {f"{share:g}": _gap(course, share * trained) for share in _SHARES}
        yield Line("share of training for the proof", f"{name}, training {trained:.1f} s", gaps)


def _gap(course: list[tuple[float, float]], seconds: float) -> float:
    """In per cent, what was proved in time."""
    return 100 * min(gap for taken, gap in course if taken <= seconds)


def table(found: Sequence[Line]) -> str:
    """Markdown."""
    rows = ["| question | size | seconds, or gap in per cent | winner |", "|---|---|---|---|"]
    for line in found:
        values = ", ".join(f"{name} {value:.3f}" for name, value in line.values.items())
        rows.append(f"| {line.question} | {line.size} | {values} | {line.winner} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    parser.add_argument("--proofs", action="store_true", help="proofs of ReLU networks only")
    parser.add_argument("--out", type=Path, help="JSON file")
    given = parser.parse_args()
    with one_thread():
        asked = [] if given.proofs else [lines(given.quick)]
        found = [line for part in (*asked, proof_lines(given.quick)) for line in part]
    print(table(found))
    if given.out is not None:
        rows = [asdict(line) | {"winner": line.winner} for line in found]
        write_atomically(given.out, json.dumps(rows, indent=1).encode())


if __name__ == "__main__":
    main()
