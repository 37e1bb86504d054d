"""Certified gaps of ReLU training over all activation patterns, against rank, samples, beta and time."""

import argparse
import time

import numpy as np
import torch

from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits
from bidual.training.relu.plan import ReluPlan

CASES = ((25, 2), (100, 3), (250, 3), (40, 4), (20, 5), (30, 5), (40, 5), (20, 6), (20, 8), (30, 8), (20, 10), (40, 10))


def problem(n: int, r: int, beta: float, c: int = 3) -> ReluProblem:
    """Normal samples of rank r, targets from a network with 50 neurons and a little noise."""
    rng = np.random.default_rng(0)
    X, U, W = rng.standard_normal((n, r)), rng.standard_normal((r, 50)), rng.standard_normal((50, c)) / 7
    Y = np.maximum(X @ U, 0) @ W + 0.1 * rng.standard_normal((n, c))
    return ReluProblem(torch.tensor(X), Datafit(Squared(), torch.tensor(Y)), beta)


def row(n: int, r: int, beta: float, max_time: float) -> str:
    task = problem(n, r, beta)
    trainer = ReluPlan(task.X)
    began = time.perf_counter()
    done = trainer.train(task, Limits(1e-6 if r < 4 else 1e-5, max_time=max_time))
    seconds = time.perf_counter() - began
    certificate, how = done.certificate, type(trainer.neuron_oracle).__name__
    return (
        f"| {n} | {r} | {beta:g} | {certificate.primal:.6f} | {certificate.relative_gap:.1e} | "
        f"{done.search_gap:.1e} | {len(done.neurons)} | {how} | {seconds:.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max-time", type=float, default=40.0, help="Seconds for one training.")
    parser.add_argument("--ranks", type=int, nargs="+", default=sorted({r for _, r in CASES}))
    parser.add_argument("--betas", type=float, nargs="+", default=[3.0, 0.3])
    arguments = parser.parse_args()
    print("| n | rank | beta | primal | certified gap | search gap | neurons | oracle | seconds |")
    print("|---|---|---|---|---|---|---|---|---|")
    for n, r in (case for case in CASES if case[1] in arguments.ranks):
        for beta in arguments.betas:
            print(row(n, r, beta, arguments.max_time), flush=True)


if __name__ == "__main__":
    main()
