"""One fit over processes, from a memory-mapped file: time, certified gap and peak memory, and how products scale.

    python benchmarks/distributed_fit.py [--quick] [--only fit|scaling] [--out benchmarks/results]

The fit: n = 1,000,000, d = 50, P = 100, c = 1, float32, squared loss, a noisy ReLU teacher, beta a hundredth of
beta_max, to a certified relative gap of 1e-2, on two ranks and on one, by two solvers. Scaling: seconds of a forward
and an adjoint product, the shortest of several, on one rank and on two; strong with the same rows, weak with the same
rows per rank. Every line is a torchrun of its own, with one thread per rank. And what rank 0 does besides products.
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bidual.distributed import Ranks, ShardedOperator, run_on_leader
from bidual.distributed.shards import row_range
from bidual.gauges import Nuclear
from bidual.losses import Logistic, Squared
from bidual.losses.datafit import Datafit
from bidual.operators import LiftedOperator
from bidual.operators.tiled import MappedRows, TiledOperator
from bidual.problems.problem import Problem
from bidual.problems.solution import Limits, Record
from bidual.runtime.files import write_atomically
from bidual.solvers import FISTA, ActiveNeurons
from bidual.solvers.driver import solve
from under_torchrun import answer, launch

TOL, FRACTION, SEED, BLOCK, TEACHER, NOISE = 1e-2, 0.01, 0, 50_000, 10, 0.1
SOLVERS = {"fista": FISTA("float32"), "active_neurons": ActiveNeurons()}


@dataclass(frozen=True)
class Job:
    """What a torchrun does: a fit by a solver, or products that are timed."""

    what: str
    rows: int
    ranks: int
    solver: str = ""
    features: int = 50
    patterns: int = 100


def write_data(folder: Path, n: int, d: int) -> None:
    """X.npy and y.npy in blocks, so that making them takes no memory either; the first rows do not depend on n."""
    rng = np.random.default_rng(SEED)
    hidden, outer = rng.standard_normal((d, TEACHER)) / np.sqrt(d), rng.standard_normal(TEACHER) / np.sqrt(TEACHER)
    X = np.lib.format.open_memmap(folder / "X.npy", mode="w+", dtype=np.float32, shape=(n, d))
    y = np.lib.format.open_memmap(folder / "y.npy", mode="w+", dtype=np.float32, shape=(n, 1))
    for start in range(0, n, BLOCK):
        rows = rng.standard_normal((min(BLOCK, n - start), d), dtype=np.float32)
        X[start : start + len(rows)] = rows
        noise = NOISE * rng.standard_normal(len(rows))
        y[start : start + len(rows), 0] = np.maximum(rows @ hidden, 0) @ outer + noise
    X.flush()
    y.flush()


def work(job: Job, folder: Path, ranks: Ranks) -> dict[str, Any]:
    """A rank's part of a job; the result on rank 0."""
    began = time.perf_counter()
    gates = torch.randn(job.features, job.patterns, generator=torch.Generator().manual_seed(SEED), dtype=torch.float64)
    rows = row_range(job.rows, ranks)
    operator = TiledOperator(MappedRows.open(folder / "X.npy", rows), gates, 1)
    found = run_on_leader(
        ranks, operator, lambda whole: fit(job, folder, whole, began) if job.solver else products(whole)
    )
    peaks = ranks.collect(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
    return {**asdict(job), **(found or {}), "peak_gigabytes": peaks}


def fit(job: Job, folder: Path, operator: ShardedOperator, began: float) -> dict[str, Any]:
    y = torch.from_numpy(np.load(folder / "y.npy")[: job.rows])
    problem = Problem(operator, Datafit(Squared(), y), Nuclear(), 1.0)
    problem = problem.with_beta(FRACTION * problem.beta_max)
    ready = time.perf_counter() - began
    done = solve(problem, SOLVERS[job.solver], Limits(TOL), callback=show)
    return {
        "seconds": time.perf_counter() - began,
        "seconds_before_solving": ready,
        "steps": done.n_steps,
        "gap": done.certificate.relative_gap,
        "primal": done.certificate.primal,
        "dual": done.certificate.dual,
        "status": done.status.name,
    }


def show(record: Record) -> None:
    print(
        f"  {record.seconds:7.1f} s  step {record.step:4d}  gap {record.relative_gap:.2e}", file=sys.stderr, flush=True
    )


def products(operator: ShardedOperator, repeats: int = 15) -> dict[str, Any]:
    Z, V = torch.randn(operator.block_shape), torch.randn(operator.output_shape)
    times = []
    for _ in range(repeats + 1):
        began = time.perf_counter(), time.process_time()
        operator.forward(Z)
        operator.adjoint(V)
        times.append((time.perf_counter() - began[0], time.process_time() - began[1]))
    wall, processor = (sorted(column) for column in zip(*times[1:], strict=True))
    return {"seconds": wall[0], "median": wall[repeats // 2], "processor_seconds": processor[repeats // 2]}


class Nothing(LiftedOperator):
    """An operator whose products cost nothing: what is left of a step is rank 0's own work."""

    magnitude = 1.0

    def __init__(self, rows: int, features: int, patterns: int) -> None:
        self.P, self.G = torch.randn(rows, 1), torch.full((patterns, features, 1), 1e-3)

    block_shape = property(lambda self: tuple(self.G.shape))
    output_shape = property(lambda self: tuple(self.P.shape))
    like = property(lambda self: self.P)

    def to(self, dtype: torch.dtype) -> "Nothing":
        return self

    def _forward(self, Z: torch.Tensor) -> torch.Tensor:
        return self.P

    def _adjoint(self, V: torch.Tensor) -> torch.Tensor:
        return self.G

    def select(self, blocks: torch.Tensor) -> "Nothing":
        return self


def own_work(rows: int, repeats: int = 7) -> list[dict[str, Any]]:
    """Nanoseconds of the processor per row that a step of FISTA takes besides its products, one thread."""
    torch.set_num_threads(1)
    operator, found = Nothing(rows, 50, 100), []
    for loss, intercept in product((Squared(), Logistic()), (False, True)):
        problem = Problem(operator, Datafit(loss, torch.randn(rows, 1).sign(), None, intercept), Nuclear(), 1.0)
        solver, times = FISTA("float32"), []
        state = solver.init(problem, None, None)
        state.lipschitz = 1e30  # no backtracking, which would be products
        for _ in range(repeats):
            began = time.process_time()
            state = solver.step(problem, state)
            times.append(time.process_time() - began)
        nanoseconds = 1e9 * sorted(times)[repeats // 2] / rows
        found.append({"what": "own", "loss": loss.name, "intercept": intercept, "nanoseconds_per_row": nanoseconds})
        print(f"own work {loss.name:<9} {'with' if intercept else 'without'} an intercept: {nanoseconds:.0f} ns a row")
    return found


def line(found: dict[str, Any]) -> str:
    """A result as a line to read."""
    job = f"{found['what']:<8} {found['solver']:<14} n = {found['rows']:>9,}  ranks = {found['ranks']}"
    if "error" in found:
        return f"{job}  {found['error']}"
    peak = ", ".join(f"{peak:.2f}" for peak in found["peak_gigabytes"])
    if found["solver"]:
        return f"{job}  {found['seconds']:.1f} s, {found['steps']} steps, gap {found['gap']:.1e}, peak GB {peak}"
    best, median, processor = (round(1e3 * found[name]) for name in ("seconds", "median", "processor_seconds"))
    return f"{job}  {best} ms a pair of products (median {median}, rank 0's processor {processor}), peak GB {peak}"


def jobs(quick: bool, only: str | None) -> list[Job]:
    n, part = (4000, 1000) if quick else (1_000_000, 250_000)
    fits = [Job("fit", n, ranks, solver) for ranks in ((2,) if quick else (2, 1)) for solver in SOLVERS]
    strong = [Job("strong", 2 * part, ranks) for ranks in (1, 2)]
    weak = [Job("weak", part * ranks, ranks) for ranks in (1, 2)]
    return (strong + weak if only != "fit" else []) + (fits if only != "scaling" else [])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--only", choices=["fit", "scaling"])
    parser.add_argument("--out", type=Path, help="a folder for distributed_fit.json")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.job:
        job = Job(**json.loads(options.job))
        answer(lambda ranks: work(job, options.folder, ranks), options.folder)
        return
    todo = jobs(options.quick, options.only)
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder), max(job.rows for job in todo), todo[0].features)
        results = [] if options.only == "fit" else own_work(5000 if options.quick else 1_000_000)
        for job in todo:
            results.append(launch(__file__, job, Path(folder)))
            print(line(results[-1]), flush=True)
            if options.out:
                write_atomically(options.out / "distributed_fit.json", json.dumps(results, indent=1).encode())


if __name__ == "__main__":
    main()
