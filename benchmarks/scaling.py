"""CPU seconds and peak memory of ``solve_auto`` to a certified gap of 1e-4 as n, d, P and c grow over two decades.

    python benchmarks/scaling.py [--quick] [--only n] [--out benchmarks/results]

Squared loss on gated blocks, beta a tenth of beta_max, data of a ReLU teacher, one thread. Every point is a process of
its own; memory is the peak of its resident set, data included, above what it has after imports and a tiny solve (Linux
only). Short solves are repeated and the shortest counts. Exponents are fitted by least squares to the logarithms over
the upper half of each range. Points that fail stay in the tables, not in the fits.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch

from bidual.gauges import GAUGES
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.operators import GatedOperator
from bidual.problems.problem import Problem
from bidual.problems.solution import Limits
from bidual.runtime.files import write_atomically
from bidual.runtime.threads import one_thread
from bidual.solvers.plan import solve_auto
from gated_problems import Case, make_data, make_problem
from scaling_report import MEASURES, TOL, Point, Sweep, exponent_table, figure, fit, table

_LIMIT = 240.0  # seconds for a solve
_ENOUGH = 3.0  # seconds after which a solve is not repeated
_TEACHER, _NOISE = 10, 0.1
_STEPS, _QUICK = (1, 2, 5, 10, 20, 50, 100), (1, 2, 4)


SWEEPS = (
    Sweep("n", "n", Case(500, 10, 50, 0.1), 100),
    Sweep("d", "d", Case(500, 10, 50, 0.1), 2),
    Sweep("P", "patterns", Case(500, 10, 50, 0.1), 10),
    Sweep("c", "c", Case(300, 10, 30, 0.1, 1, "frobenius"), 1),
)


def problem_of(case: Case) -> Problem:
    """``make_problem``, whose teacher has five outputs, or with the group penalty one of as many as are asked for."""
    if case.penalty != "frobenius":
        return make_problem(case)
    X, _, G = (torch.tensor(array) for array in make_data(case.n, case.d, case.patterns))
    rng = np.random.default_rng(1)
    W, V = rng.standard_normal((case.d, _TEACHER)), rng.standard_normal((_TEACHER, case.c)) / _TEACHER**0.5
    Y = np.maximum(X.numpy() @ W / case.d**0.5, 0) @ V + _NOISE * rng.standard_normal((case.n, case.c))
    operator = GatedOperator(X, (X @ G > 0).T.contiguous(), case.c)
    problem = Problem(operator, Datafit(Squared(), torch.tensor(Y / Y.std(axis=0))), GAUGES[case.penalty](), 1.0)
    return problem.with_beta(case.fraction * problem.beta_max)


def measure(case: Case, repeat: int) -> dict[str, float | str]:
    """In the process of the point: the shortest of several solves, and the peak of all."""
    with one_thread():
        timed(replace(case, n=30, d=3, patterns=5, c=1))  # libraries load what they need
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins again from here
        before, runs = resident("VmRSS"), [timed(case)]
        while len(runs) < repeat and sum(seconds for seconds, *_ in runs) < _ENOUGH:
            runs.append(timed(case))
    seconds, gap, solver = min(runs)
    return {"seconds": seconds, "megabytes": resident("VmHWM") - before, "gap": gap, "solver": solver}


def timed(case: Case) -> tuple[float, float, str]:
    """CPU seconds of a solve, without making its problem; the gap, and who solved it."""
    problem, began = problem_of(case), time.process_time()
    solution = solve_auto(problem, Limits(TOL, max_time=_LIMIT))
    return time.process_time() - began, solution.certificate.relative_gap, solution.solver


def resident(field: str) -> float:
    """A line of /proc/self/status, in megabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * float(next(line.split()[1] for line in lines if line.startswith(field))) / 1e6


def point(sweep: Sweep, case: Case, repeat: int) -> Point:
    """A process of its own; what it says last on stderr is kept if it fails."""
    empty = Point(sweep.letter, getattr(case, sweep.field), case)
    command = [sys.executable, __file__, "--point", json.dumps(asdict(case)), "--repeat", str(repeat)]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=3 * _LIMIT, check=True, env={**os.environ, **threads}
        )
    except subprocess.TimeoutExpired:
        return replace(empty, error=f"stopped after {3 * _LIMIT:g} s")
    except subprocess.CalledProcessError as error:
        return replace(empty, error=(error.stderr.strip().splitlines() or [f"ended with {error.returncode}"])[-1])
    return replace(empty, **json.loads(done.stdout))


def write(folder: Path, sweeps: Sequence[Sweep], points: Sequence[Point], text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    laws = {s.letter: {m: fit([p for p in points if p.letter == s.letter], m) for m in MEASURES} for s in sweeps}
    stored = {"tolerance": TOL, "fits": laws, "points": [asdict(found) for found in points]}
    write_atomically(folder / "scaling.json", json.dumps(stored, indent=1).encode())
    write_atomically(folder / "scaling.md", f"# Scaling\n\n{__doc__}\n{text}".encode())
    for suffix in (".png", ".svg"):
        write_atomically(folder / f"scaling{suffix}", figure(sweeps, points, suffix))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three small points of each range")
    parser.add_argument("--only", default="ndPc", help="the letters to vary")
    parser.add_argument("--out", type=Path, help="a folder for scaling.json, .md, .png and .svg")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--point", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.point:
        print(json.dumps(measure(Case(**json.loads(options.point)), options.repeat)))
        return
    sweeps = [sweep for sweep in SWEEPS if sweep.letter in options.only]
    points = []
    for sweep in sweeps:
        for case in sweep.cases(_QUICK if options.quick else _STEPS):
            points.append(point(sweep, case, options.repeat))
            print(*table([sweep], points[-1:]), sep="\n", file=sys.stderr, flush=True)
    text = "\n".join([*exponent_table(sweeps, points), "", *table(sweeps, points), ""])
    print(text)
    if options.out:
        write(options.out, sweeps, points, text)


if __name__ == "__main__":
    main()
