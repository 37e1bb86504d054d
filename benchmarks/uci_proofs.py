"""Certified gaps of the default ReLU fit on the 21 UCI sets, on one thread, against the best network found.

    python benchmarks/uci_proofs.py [--sets NAME ...] [--seconds 10] [--data FOLDER] [--out FILE]

Every set is standardised and taken whole. A ``ConvexMLPClassifier`` with beta = beta_max / 10 is fitted with the
proof that it gives itself; then the same network is proved once more, from nothing, in ``--seconds``.
"""

import argparse
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from bidual import ConvexMLPClassifier
from bidual.papers.uci.data import NAMES, SHAPES
from bidual.problems.solution import Limits
from proof_times import proof_course
from tables import problem, uci

HEAD = (
    "| set | rows | training, s | search gap | gap of the fit | its proof, s | gap of one in {seconds:g} s | its s |\n"
    "|---|---|---|---|---|---|---|---|"
)
SHARE = 0.1  # of beta_max


@dataclass(frozen=True)
class Outcome:
    """One set: the default fit, and another proof of the same network; gaps are relative and certified."""

    name: str
    training: float
    search_gap: float
    fit_gap: float
    fit_proof: float
    gap: float
    proof: float

    def __str__(self) -> str:
        n, d = SHAPES[self.name]
        gaps = f"{100 * self.fit_gap:.3g} % | {self.fit_proof:.1f} | {100 * self.gap:.3g} % | {self.proof:.1f}"
        return f"| {self.name} | {n} x {d} | {self.training:.1f} | {100 * self.search_gap:.2g} % | {gaps} |"


def outcome(name: str, seconds: float, data: Path) -> Outcome:
    task, plan = problem(ConvexMLPClassifier, uci(name, None, data), SHARE)
    limits = Limits(ConvexMLPClassifier().tol)
    began = time.perf_counter()
    found = plan.train(task, limits, prove=False)
    trained = time.perf_counter() - began
    fitted = plan.train(task, limits)
    fit_gap, fit_proof = fitted.certificate.relative_gap, max(time.perf_counter() - began - 2 * trained, 0.0)
    gap, proved = fit_gap, fit_proof
    if not fitted.certificate.within(limits.tol):
        proved, gap = min(proof_course(task, found, seconds=seconds, tol=limits.tol), key=lambda point: point[::-1])
    search_gap = fit_gap if found.search_gap is None else found.search_gap
    return Outcome(name, trained, search_gap, fit_gap, fit_proof, gap, proved)


def summary(outcomes: list[Outcome]) -> str:
    lines = []
    for title, gaps in (
        ("gap of the fit", [one.fit_gap for one in outcomes]),
        ("gap of the proof in given seconds", [one.gap for one in outcomes]),
    ):
        worst = outcomes[max(range(len(gaps)), key=gaps.__getitem__)].name
        lines.append(f"{title}: median {100 * statistics.median(gaps):.3g} %, worst {100 * max(gaps):.3g} % ({worst})")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=list(NAMES), choices=list(NAMES))
    parser.add_argument("--seconds", type=float, default=10.0, help="for the second proof")
    parser.add_argument("--data", type=Path, default=Path("data"), help="a folder with uci/")
    parser.add_argument("--out", type=Path, help="write the table")
    given = parser.parse_args()
    lines = [HEAD.format(seconds=given.seconds)]
    print(lines[0])
    outcomes = []
    for name in given.sets:
        outcomes.append(outcome(name, given.seconds, given.data))
        lines.append(str(outcomes[-1]))
        print(lines[-1], flush=True)
    lines.append("\n" + summary(outcomes))
    print(lines[-1])
    if given.out is not None:
        given.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
