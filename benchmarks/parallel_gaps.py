"""Certified gaps of parallel networks of three layers, against samples, rank, noise and seconds.

OMP_NUM_THREADS=1 python benchmarks/processor_clock.py benchmarks/parallel_gaps.py --max-time 20
"""

import argparse
import time

import torch
from torch import Tensor

from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.problems.parallel import ParallelProblem
from bidual.problems.solution import Limits, Record
from bidual.training.parallel.plan import ParallelPlan

_WIDTH, _SUB_NETWORKS = 3, 5  # of networks, and of the teacher
_EARLY = 5.0  # seconds after which the gap is shown too


def teacher(n: int, rank: int, seed: int, noise: float) -> tuple[Tensor, Tensor]:
    """Normal samples, targets from sub-networks of three layers, and noise in units of their spread."""
    draws = torch.Generator().manual_seed(seed)
    sizes = ((n, rank), (_SUB_NETWORKS, rank, _WIDTH), (_SUB_NETWORKS, _WIDTH, 1), (_SUB_NETWORKS, 1, 1))
    X, W, w, z = (torch.randn(*size, generator=draws).double() for size in sizes)
    y = (torch.relu(torch.relu(X @ W) @ w) @ z).sum(0)
    return X, y + noise * y.std() * torch.randn(y.shape, generator=draws).double()


def row(n: int, rank: int, noise: float, seed: int, share: float, max_time: float | None) -> str:
    X, y = teacher(n, rank, seed, noise)
    problem, plan = ParallelProblem(X, Datafit(Squared(), y), 1.0, _WIDTH), ParallelPlan(X, _WIDTH)
    problem = problem.with_beta(share * plan.beta_max(problem))
    began, seen = time.perf_counter(), []

    def note(record: Record) -> None:
        seen.append((time.perf_counter() - began, record.relative_gap))

    done = plan.train(problem, Limits(1e-4, max_time=max_time), callback=note)
    early = min((gap for seconds, gap in seen if seconds <= _EARLY), default=1.0)
    parts = len(done.certificate.witness or ())
    return (
        f"| {n} | {rank} | {noise:g} | {seed} | {share:g} | {early:.4f} | {done.certificate.relative_gap:.4f} | "
        f"{time.perf_counter() - began:.1f} | {parts} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max-time", type=float, help="Seconds for one training.")
    parser.add_argument("--samples", type=int, nargs="+", default=[60, 100, 200])
    parser.add_argument("--ranks", type=int, nargs="+", default=[5])
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.5])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.1], help="Of beta_max.")
    given = parser.parse_args()
    print(f"| n | rank | noise | seed | beta / beta_max | gap after {_EARLY:g} s | gap | seconds | branches |")
    print("|---|---|---|---|---|---|---|---|---|")
    cases = [(n, r, e, s) for r in given.ranks for n in given.samples for e in given.noise for s in given.seeds]
    for case in cases:
        for share in given.shares:
            print(row(*case, share, given.max_time), flush=True)


if __name__ == "__main__":
    main()
