"""How tight the product bound is after how many seconds of proof, on one thread.

    python benchmarks/proof_times.py [--cases NAME ...] [--shares 0.1 0.03] [--seconds 10] [--processes 1 2]

Networks are trained first, without a proof; seconds are those of the proof alone. The gap is against the best network
that was found. ``--data`` is the folder with ``uci/`` for the cases that need it; ``--figure FILE`` draws all rows.
With ``--processes 1 2`` every network is proved twice: by one process, and with a helper where a second core is free.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits, Record, Solution
from bidual.runtime.threads import one_thread
from bidual.solvers.driver import solve
from bidual.training.relu.product_bound import JointProductBound
from tables import CASES, problem

Course = tuple[tuple[float, float], ...]
MARKS = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)


@dataclass(frozen=True)
class Proof:
    """One proof: the seconds at which a better bound was known, and its gap."""

    name: str
    rows: tuple[int, int]
    share: float
    trained: float
    search_gap: float
    course: Course
    processes: int = 1

    def __str__(self) -> str:
        """One line of the table: sizes, seconds of training, and the gap at the marks that were reached."""
        last = self.course[-1][0]
        ends = [*(mark for mark in MARKS if mark < last), last]
        best = ((end, min((gap for at, gap in self.course if at <= end), default=1.0)) for end in ends)
        said = ", ".join(f"{100 * gap:.3g} % @ {end:.3g} s" for end, gap in best)
        n, d = self.rows
        name = self.name if self.processes == 1 else f"{self.name}, {self.processes} processes"
        return f"| {name} | {n} x {d} | {self.share:g} | {self.trained:.1f} | {self.search_gap:.0e} | {said} |"


def proof_course(
    task: ReluProblem, found: Solution, *, seconds: float, tol: float = 1e-5, processes: int = 1
) -> Course:
    """Prove how good the network is that was found: seconds, and the gap certified by then."""
    course: list[tuple[float, float]] = []
    began = time.perf_counter()

    def keep(record: Record) -> None:
        course.append((time.perf_counter() - began, record.relative_gap))

    with one_thread(spare=processes > 1):
        solve(task.to(torch.float64), JointProductBound(), Limits(tol, max_time=seconds), start=found, callback=keep)
    return tuple(course)


def proofs(name: str, share: float, seconds: float, data: Path, processes: list[int]) -> Iterator[Proof]:
    """Of one network, by each number of processes."""
    make, table, settings = CASES[name]
    task, plan = problem(make, table(data), share, **settings)
    task = task.to(torch.float64)
    began = time.perf_counter()
    found = plan.train(task, Limits(1e-4), prove=False)
    trained, (n, d) = time.perf_counter() - began, task.X.shape
    torch.set_num_threads(max(processes))
    for count in processes:
        course = proof_course(task, found, seconds=seconds, processes=count)
        yield Proof(name, (n, d), share, trained, found.search_gap, course, count)


def draw(proofs: list[Proof], file: Path) -> None:
    """Gaps against seconds, both on logarithmic scales."""
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for one in proofs:
        seconds, gaps = zip(*one.course, strict=True)
        axes.plot(seconds, np.minimum.accumulate(gaps), drawstyle="steps-post", label=f"{one.name}, {one.share:g}")
    axes.set(xscale="log", yscale="log", xlabel="seconds of proof, one thread", ylabel="certified relative gap")
    axes.grid(which="major", alpha=0.3)
    axes.legend(fontsize=8, title="data, beta / beta_max", title_fontsize=8)
    figure.savefig(file, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--shares", type=float, nargs="+", default=[0.1], help="of beta_max")
    parser.add_argument("--seconds", type=float, default=30.0, help="for a proof")
    parser.add_argument("--data", type=Path, default=Path("data"), help="a folder with uci/")
    parser.add_argument("--figure", type=Path, help="a picture to write, such as proofs.svg")
    parser.add_argument("--processes", type=int, nargs="+", default=[1], choices=[1, 2])
    given = parser.parse_args()
    print("| data | rows | beta / beta_max | training, s | search gap | certified gap |\n|---|---|---|---|---|---|")
    found = []
    for name, share in product(given.cases, given.shares):
        for one in proofs(name, share, given.seconds, given.data, given.processes):
            found.append(one)
            print(one, flush=True)
    if given.figure is not None:
        draw(found, given.figure)


if __name__ == "__main__":
    main()
