"""Seconds and peak memory of factored training against the convex solvers, as gates, features and outputs grow.

Linux only: the peak is that of the resident set of a process of its own, above what the data take.
"""

import argparse
import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
import torch

from bidual.gauges import Nuclear
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.operators import GatedOperator
from bidual.problems.problem import Problem
from bidual.problems.solution import Limits
from bidual.solvers.factored import LBFGS, FactoredProgram, train
from bidual.solvers.factored.lbfgs import value_and_gradient
from bidual.solvers.plan import solve_auto


@dataclass(frozen=True)
class Case:
    """n samples, d features, P gates and c outputs; beta is n / 100, that of a mean over samples."""

    n: int = 200
    d: int = 10
    gates: int = 50
    c: int = 10


@dataclass(frozen=True)
class Measured:
    """What one run took: seconds, peak bytes above the data, and the certified relative gap (None without one)."""

    seconds: float
    peak: float
    gap: float | None = None


Job = Callable[[Problem], float | None]


def make_problem(case: Case, seed: int = 0) -> Problem:
    """Outputs of a ReLU teacher with ten neurons and noise 0.1."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((case.n, case.d))
    hidden = np.maximum(X @ rng.standard_normal((case.d, 10)) / case.d**0.5, 0)
    Y = hidden @ rng.standard_normal((10, case.c)) / 10**0.5 + 0.1 * rng.standard_normal((case.n, case.c))
    patterns = torch.from_numpy((X @ rng.standard_normal((case.d, case.gates)) > 0).T.copy())
    operator = GatedOperator(torch.from_numpy(X), patterns, case.c)
    return Problem(operator, Datafit(Squared(), torch.from_numpy(Y)), Nuclear(), 0.01 * case.n)


def convex(tol: float, max_time: float, solver: str = "auto") -> Job:
    return lambda problem: solve_auto(problem, Limits(tol, max_time=max_time), solver=solver).certificate.relative_gap


def factored(m: int, tol: float, max_time: float) -> Job:
    """L-BFGS in short runs: the certificate and the clock are looked at after each."""

    def job(problem: Problem) -> float:
        program = FactoredProgram(problem, m)
        return train(program, LBFGS(chunk=200), tol=tol, max_time=max_time).certificate.relative_gap

    return job


def gradients(m: int, count: int = 5) -> Job:
    """Values and gradients alone: what every step of a first-order method needs."""

    def job(problem: Problem) -> None:
        program = FactoredProgram(problem, m)
        factors = program.start(torch.Generator().manual_seed(0))
        for _ in range(count):
            value_and_gradient(program, factors)

    return job


def certificate(m: int) -> Job:
    """What a look at the gap needs, whatever m is."""

    def job(problem: Problem) -> None:
        program = FactoredProgram(problem, m)
        program.certificate(program.start(torch.Generator().manual_seed(0)))

    return job


def lifted_gradients(count: int = 5) -> Job:
    """The same for the convex program: F and its gradient at a lifted variable."""

    def job(problem: Problem) -> None:
        Z = problem.operator.zeros()
        for _ in range(count):
            problem.datafit.value(problem.operator.forward(Z))
            Z = Z - 1e-6 * problem.gradient(Z)

    return job


def measure(case: Case, job: Job) -> Measured:
    """In a process of its own, so that no peak hides behind an earlier one."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(case, job, sender))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError as error:
        raise RuntimeError(f"the run on {case} died.") from error
    finally:
        process.join()


def _child(case: Case, job: Job, sender: "multiprocessing.connection.Connection") -> None:
    job(make_problem(Case(20, 3, 4, 2)))  # libraries load what they need
    problem = make_problem(case)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins again from here
    before, began = _status("VmHWM"), time.perf_counter()
    gap = job(problem)
    seconds = time.perf_counter() - began
    sender.send(Measured(seconds, _status("VmHWM") - before, gap))


def _status(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * float(next(line.split()[1] for line in lines if line.startswith(field)))


def growth(base: Case) -> Iterator[Case]:
    """One of P, d and c at a time."""
    yield base
    for gates in (100, 200):
        yield replace(base, gates=gates)
    for d in (20, 40):
        yield replace(base, d=d)
    for c in (3, 20, 40):
        yield replace(base, c=c)


def solver_table(m: int, tol: float, max_time: float) -> Iterator[str]:
    """Both to the same certified gap; ratios above one are in favour of the factored solver."""
    yield (
        "| P | d | c | convex: seconds | MB | gap | factored: seconds | MB | gap | ratio of seconds | ratio of memory |"
    )
    yield "|" + "---|" * 11
    for case in growth(Case()):
        lifted = measure(case, convex(tol, max_time))
        short = measure(case, factored(m, tol, max_time))
        ratios = f"{lifted.seconds / short.seconds:.2g} | {lifted.peak / short.peak:.2g}"
        yield f"| {case.gates} | {case.d} | {case.c} | {_numbers(lifted)} | {_numbers(short)} | {ratios} |"


def memory_table(case: Case, factors: tuple[int, ...], outputs: tuple[int, ...]) -> Iterator[str]:
    """Peak megabytes of five values and gradients, lifted and with m factors, and of one certificate."""
    names = " | ".join(f"m = {m}" for m in factors)
    yield f"| c | Z alone | lifted | {names} | certificate |"
    yield "|" + "---|" * (4 + len(factors))
    for c in outputs:
        wide = replace(case, c=c)
        jobs = (lifted_gradients(), *(gradients(m) for m in factors), certificate(factors[0]))
        peaks = [median(measure(wide, job).peak for _ in range(3)) for job in jobs]
        one = 8 * wide.gates * wide.d * c / 1e6
        yield f"| {c} | {one:.0f} | " + " | ".join(f"{peak / 1e6:.0f}" for peak in peaks) + " |"


def _numbers(run: Measured) -> str:
    return f"{run.seconds:.2g} | {run.peak / 1e6:.0f} | {run.gap:.0e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tol", type=float, default=1e-3, help="Certified relative gap for both.")
    parser.add_argument("--m", type=int, default=2, help="Factors per block to begin with.")
    parser.add_argument("--max-time", type=float, default=8.0, help="Seconds for one training.")
    parser.add_argument("--only", choices=("solvers", "memory"), help="One of the two tables.")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.only != "memory":
        for line in solver_table(arguments.m, arguments.tol, arguments.max_time):
            print(line, flush=True)
        print()
    if arguments.only != "solvers":
        for line in memory_table(Case(500, 100, 500), (1, 2, 4, 8), (10, 20, 40, 80, 160)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
