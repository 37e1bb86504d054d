"""Fashion-MNIST, 60000 x 784, gated network, P = 256, softmax over 10 classes, to a certified gap of 1e-2, in one run.

    python benchmarks/fashion_softmax.py --data-dir data [--threads 1] [--cold] [--out fashion.json]

Pixels are divided by 255. Every fraction of beta_max is solved from the solution of the one before, or from zero with
``--cold``. Seconds include all certificates, but not reading the data, drawing the gates and beta_max, which ``setup``
counts; ``path`` adds up what it took to get there. A pass is a forward or adjoint product with all blocks. Memory is
the peak of the process so far.
"""

import argparse
import json
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from bidual.architectures import GatedMLP
from bidual.io.datasets import load_images
from bidual.losses import Softmax
from bidual.losses.datafit import Datafit
from bidual.patterns import sample_gates
from bidual.problems.problem import Problem
from bidual.problems.solution import Limits, Record, Solution
from bidual.runtime.files import write_atomically
from bidual.solvers.driver import solve
from bidual.solvers.plan import make_solver
from bidual.types import Blocks

_FIRST, _CERTIFICATE = 2, 2  # passes of the start, and of a certificate (in double precision): forward and adjoint


@dataclass(frozen=True)
class Outcome:
    """How one beta went; ``neurons`` are those of the decoded network."""

    fraction: float
    beta: float
    status: str
    gap: float
    primal: float
    seconds: float
    path: float
    gigabytes: float
    steps: int
    passes: int
    neurons: int
    train_accuracy: float
    test_accuracy: float


@dataclass(frozen=True, eq=False)
class Task:
    """The network family, its training problem (at any beta), and samples to predict."""

    family: GatedMLP
    problem: Problem
    X: Float[Tensor, "n d"]
    labels: Int64[Tensor, " n"]
    test_X: Float[Tensor, "m d"]
    test_labels: Int64[Tensor, " m"]


def make_task(args: argparse.Namespace) -> Task:
    data = load_images("fashion-mnist", args.data_dir)
    X, test_X = (
        torch.from_numpy(images).flatten(1).double() / 255
        for images in (data.train_images[: args.samples], data.test_images)
    )
    labels, test_labels = torch.from_numpy(data.train_labels[: args.samples]), torch.from_numpy(data.test_labels)
    gates = sample_gates(X, args.gates, torch.Generator().manual_seed(args.seed), bias=args.bias)
    family = GatedMLP(gates, bias=args.bias)
    targets = torch.eye(len(data.classes), dtype=X.dtype)[labels]
    fit = Datafit(Softmax(), targets, intercept=args.intercept)
    problem = Problem(family.lift(X, len(data.classes)), fit, family.gauge(), 1.0)
    return Task(family, problem, X, labels, test_X, test_labels)


def run(task: Task, args: argparse.Namespace) -> Iterator[Outcome]:
    start: Blocks | None = None
    path = 0.0
    for fraction in args.fractions:
        problem = task.problem.with_beta(fraction * task.problem.beta_max)
        solution = solve(
            problem,
            make_solver(args.solver),
            Limits(args.tol, max_time=args.max_time),
            start=start,
            callback=_tell if args.verbose else None,
        )
        path = solution.seconds + (0.0 if args.cold else path)
        start = None if args.cold else solution.Z
        yield judged(task, problem, fraction, solution, path)


def judged(task: Task, problem: Problem, fraction: float, solution: Solution, path: float) -> Outcome:
    with torch.no_grad():
        module = task.family.decode(solution.Z, problem.predictions(solution.Z)[1])
        right = [(module(X).argmax(1) == y).double().mean() for X, y in samples(task)]
    return Outcome(
        fraction,
        problem.beta,
        solution.status.name,
        solution.certificate.relative_gap,
        solution.certificate.primal,
        solution.seconds,
        path,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
        solution.n_steps,
        solution.n_steps + _FIRST + _CERTIFICATE * len(solution.history),
        problem.gauge.n_atoms(solution.Z),
        float(right[0]),
        float(right[1]),
    )


def samples(task: Task) -> list[tuple[Tensor, Tensor]]:
    return [(task.X, task.labels), (task.test_X, task.test_labels)]


def table(outcomes: Sequence[Outcome]) -> str:
    lines = ["| beta / beta_max | certified gap | s | s along the path | GB | passes | neurons | train | test |"]
    lines.append("|" + "---|" * 9)
    for o in outcomes:
        numbers = f"{o.gap:.1e} | {o.seconds:.0f} | {o.path:.0f} | {o.gigabytes:.2f} | {o.passes} | {o.neurons}"
        lines.append(f"| {o.fraction:g} | {numbers} | {o.train_accuracy:.2%} | {o.test_accuracy:.2%} |")
    return "\n".join(lines)


def _tell(record: Record) -> None:
    print(f"  step {record.step}: {record.seconds:.0f} s, gap {record.relative_gap:.2e}", flush=True)


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data-dir", type=Path, help="the folder above fashion-mnist")
    options.add_argument("--samples", type=int, default=60_000)
    options.add_argument("--gates", type=int, default=256)
    options.add_argument("--fractions", type=float, nargs="+", default=[0.1, 0.03, 0.01], help="of beta_max")
    options.add_argument("--tol", type=float, default=1e-2)
    options.add_argument("--solver", default="active_neurons")
    options.add_argument("--max-time", type=float, default=1200.0, help="seconds for each beta")
    options.add_argument("--cold", action="store_true", help="solve every beta from zero")
    options.add_argument("--bias", action="store_true", help="neurons with a penalised bias")
    options.add_argument("--intercept", action="store_true", help="a free offset of every class")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--threads", type=int, help="of torch; its own default if not given")
    options.add_argument("--out", type=Path, help="a JSON file for the outcomes")
    options.add_argument("--verbose", action="store_true")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    args = parser().parse_args(arguments)
    if args.threads:
        torch.set_num_threads(args.threads)
    began = time.perf_counter()
    task = make_task(args)
    top = task.problem.beta_max
    spent = time.perf_counter() - began
    print(f"setup {spent:.0f} s, beta_max {top:.6g}, {torch.get_num_threads()} threads", flush=True)
    outcomes = []
    for outcome in run(task, args):
        outcomes.append(outcome)
        print(outcome, flush=True)
    print(table(outcomes))
    if args.out:
        settings = {name: str(value) for name, value in vars(args).items()}
        rows = [asdict(outcome) for outcome in outcomes]
        write_atomically(args.out, (json.dumps({"settings": settings, "outcomes": rows}, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
