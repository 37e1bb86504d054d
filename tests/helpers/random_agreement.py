"""Run by torchrun: random problems solved over ranks and by rank 0 alone, and how much they differ.

torchrun --nproc-per-node 2 random_agreement.py OUT SEED ...
"""

import json
import sys
from pathlib import Path

import torch

from bidual.distributed import Ranks, ShardedOperator, run_on_leader, torchrun_ranks
from bidual.distributed.shards import row_range
from bidual.gauges import Group, Nuclear
from bidual.losses import Absolute, Hinge, Huber, Logistic, Softmax, Squared, SquaredHinge
from bidual.losses.datafit import Datafit
from bidual.operators import GatedOperator, LiftedOperator
from bidual.patterns import activations
from bidual.problems.problem import Problem
from bidual.problems.solution import Limits
from bidual.solvers import FISTA, ActiveNeurons, BurerMonteiro, KernelADMM, PrimalDual
from bidual.solvers.driver import Solver
from bidual.solvers.plan import solve_auto

SMOOTH = (Squared(), Logistic(), Huber(), SquaredHinge(), Softmax())
KINKS = (Absolute(), Hinge())
# of each solver: what it takes, and the gap to which it is asked to go
SOLVERS: dict[str, tuple[Solver | str, float]] = {
    "fista": (FISTA(), 1e-11),
    "active_neurons": (ActiveNeurons(), 1e-10),
    "burer_monteiro": (BurerMonteiro(), 1e-10),
    "kernel_admm": (KernelADMM("float64"), 1e-10),
    "auto": ("auto", 1e-10),
    "primal_dual": (PrimalDual(), 1e-7),
}


class Draw:
    """Data of one seed, the same on all ranks."""

    def __init__(self, seed: int) -> None:
        rng = torch.Generator().manual_seed(seed)
        self.n, d, p = (int(torch.randint(low, high, (1,), generator=rng)) for low, high in ((9, 40), (1, 4), (1, 6)))
        self.name = list(SOLVERS)[seed % len(SOLVERS)]
        losses = KINKS if self.name == "primal_dual" else SMOOTH
        self.loss = losses[seed // len(SOLVERS) % len(losses)]
        self.c = (
            1 + seed % 2
            if self.loss.name in ("squared", "huber", "absolute")
            else 1 + 2 * (self.loss.name == "softmax")
        )
        self.X = torch.randn(self.n, d, generator=rng, dtype=torch.float64)
        self.D = activations(self.X, torch.randn(d, p, generator=rng, dtype=torch.float64))
        scores = torch.randn(self.n, self.c, generator=rng, dtype=torch.float64) + self.X[:, :1]
        self.Y = scores if self.loss.name in ("squared", "huber", "absolute") else scores.sign()
        if self.loss.name == "softmax":
            self.Y = torch.eye(3, dtype=torch.float64)[scores.argmax(1)]
        self.weight = torch.rand(self.n, generator=rng, dtype=torch.float64) + 0.1 if seed % 3 else None
        self.intercept, self.gauge = bool(seed % 5 % 2), Nuclear() if seed % 4 else Group()

    def operator(self, rows: slice) -> LiftedOperator:
        return GatedOperator(self.X[rows], self.D[:, rows].contiguous(), self.c)

    def problem(self, operator: LiftedOperator) -> Problem:
        whole = Problem(operator, Datafit(self.loss, self.Y, self.weight, self.intercept), self.gauge, 1.0)
        return whole.with_beta(0.3 * whole.beta_max)


def compared(draw: Draw, operator: ShardedOperator) -> dict[str, object]:
    solver, tol = SOLVERS[draw.name]
    alone, shared = draw.problem(draw.operator(slice(None))), draw.problem(operator)
    one, two = (solve_auto(each, Limits(tol, 20_000), solver=solver) for each in (alone, shared))
    difference = alone.operator.forward(one.Z - two.Z).abs().max() / alone.operator.forward(one.Z).abs().max().clamp(
        min=1
    )
    return {
        "case": [
            draw.name,
            draw.loss.name,
            draw.n,
            draw.c,
            draw.weight is not None,
            draw.intercept,
            type(draw.gauge).__name__,
        ],
        "gaps": [one.certificate.relative_gap, two.certificate.relative_gap],
        "primal": abs(one.certificate.primal - two.certificate.primal) / one.certificate.primal,
        "predictions": float(difference),
        "beta_max": abs(alone.beta / shared.beta - 1),
        "sound": two.certificate.dual <= one.certificate.primal and one.certificate.dual <= two.certificate.primal,
        "holds": bool(two.certificate.recheck(alone)),
        "magnitude": operator.magnitude >= alone.operator.magnitude * (1 - 1e-12),
    }


def main(ranks: Ranks, out: Path, seeds: list[int]) -> None:
    found = []
    for draw in map(Draw, seeds):
        local = draw.operator(row_range(draw.n, ranks))
        found.append(run_on_leader(ranks, local, lambda operator, draw=draw: compared(draw, operator)))
    if ranks.leads:
        out.write_text(json.dumps(found))


if __name__ == "__main__":
    torch.set_num_threads(1)
    with torchrun_ranks() as these:
        main(these, Path(sys.argv[1]), [int(seed) for seed in sys.argv[2:]])
