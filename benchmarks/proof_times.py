"""How tight the product bound is after how many seconds of proof, on one thread.

    python benchmarks/proof_times.py [--cases NAME ...] [--shares 0.1 0.03] [--seconds 10] [--data FOLDER]

Networks are trained first, without a proof; seconds are those of the proof alone. The gap is against the best network
that was found. ``--data`` is the folder with ``uci/`` for the cases that need it.
"""

import argparse
import time
from pathlib import Path

import torch

from bidual.problems.solution import Limits, Record
from bidual.runtime.threads import one_thread
from bidual.solvers.driver import solve
from bidual.training.relu.product_bound import JointProductBound
from tables import CASES, problem

MARKS = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)


def row(name: str, share: float, seconds: float, data: Path) -> str:
    """One line of the table: sizes, seconds of training, and the gap at the marks that were reached."""
    make, table, settings = CASES[name]
    task, plan = problem(make, table(data), share, **settings)
    task = task.to(torch.float64)
    began = time.perf_counter()
    found = plan.train(task, Limits(1e-4), prove=False)
    trained = time.perf_counter() - began
    gaps: list[tuple[float, float]] = []
    began = time.perf_counter()

    def keep(record: Record) -> None:
        gaps.append((time.perf_counter() - began, record.relative_gap))

    with one_thread():
        done = solve(task, JointProductBound(), Limits(1e-5, max_time=seconds), start=found, callback=keep)
    ends = [*(mark for mark in MARKS if mark < gaps[-1][0]), gaps[-1][0]]
    best = ((end, min((gap for at, gap in gaps if at <= end), default=1.0)) for end in ends)
    n, d = task.X.shape
    said = ", ".join(f"{100 * gap:.3g} % @ {end:.3g} s" for end, gap in best)
    return f"| {name} | {n} x {d} | {share:g} | {trained:.1f} | {done.search_gap:.0e} | {said} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--shares", type=float, nargs="+", default=[0.1], help="of beta_max")
    parser.add_argument("--seconds", type=float, default=30.0, help="for a proof")
    parser.add_argument("--data", type=Path, default=Path("data"), help="a folder with uci/")
    given = parser.parse_args()
    print("| data | rows | beta / beta_max | training, s | search gap | certified gap |\n|---|---|---|---|---|---|")
    for name in given.cases:
        for share in given.shares:
            print(row(name, share, given.seconds, given.data), flush=True)


if __name__ == "__main__":
    main()
