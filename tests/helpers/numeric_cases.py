"""Every way to train, found by discovery, each with a tiny problem that it takes; and a digest of what it finds.

As a script: prints the digests of all of them as JSON, for a process of its own.
"""

import hashlib
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from bidual.gauges import GAUGES
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.operators import GatedOperator
from bidual.patterns import activations, sample_gates
from bidual.problems.certificate import Certificate
from bidual.problems.problem import Problem, ReluProblem
from bidual.problems.solution import Limits
from bidual.solvers import SOLVERS
from bidual.solvers.driver import Solver, solve
from bidual.solvers.factored import METHODS, FactoredProgram, train
from bidual.solvers.plan import solve_auto
from bidual.training.relu.plan import RELU_SOLVERS, ReluPlan

TOL = 1e-3
STEPS = 20_000
SETTINGS = {"descent": {"rate": 0.01}}
FEW = {"frank_wolfe": 100}  # its gap falls like one over the steps
LOOSE = {"frank_wolfe": 0.9}


class Found(NamedTuple):
    """A certified point."""

    certificate: Certificate

    @property
    def digest(self) -> str:
        """Of every bit of the point, the dual point and both bounds."""
        one = self.certificate
        parts = [one.point, one.dual_point, torch.tensor([one.primal, one.dual], dtype=torch.float64)]
        return hashlib.sha256(b"".join(part.detach().contiguous().numpy().tobytes() for part in parts)).hexdigest()


Case = Callable[[torch.dtype], Found]


def samples(n: int, d: int, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gated(gauge: str) -> Problem:
    """Squared loss, two outputs, five gates, at a fifth of beta_max."""
    X, Y = samples(10, 3), samples(10, 2, 1)
    active = activations(X, sample_gates(X, 5, torch.Generator().manual_seed(2)))
    problem = Problem(GatedOperator(X, active, 2), Datafit(Squared(), Y), GAUGES[gauge](), 1.0)
    return problem.with_beta(0.2 * problem.beta_max)


def taken_by(solver: Solver) -> Problem:
    """The first problem that a solver does not refuse; a solver that refuses all needs one more here."""
    return next(problem for problem in map(gated, GAUGES) if solver.refusal(problem) is None)


def by_solver(name: str, dtype: torch.dtype) -> Found:
    solver = SOLVERS[name]()
    return Found(solve(taken_by(solver).to(dtype), solver, Limits(TOL, STEPS)).certificate)


def by_plan(dtype: torch.dtype) -> Found:
    return Found(solve_auto(gated("nuclear").to(dtype), Limits(TOL)).certificate)


def relu(white: bool) -> ReluProblem:
    """One output; for the formula, samples with X X^T = I."""
    X = torch.eye(3, 4, dtype=torch.float64) if white else samples(8, 2)
    return ReluProblem(X, Datafit(Squared(), samples(len(X), 1, 1)), 0.3)


def by_relu_method(name: str, dtype: torch.dtype) -> Found:
    problem = relu(white=name == "closed_form")
    problem = problem.to(dtype)
    steps = FEW.get(name)
    return Found(ReluPlan(problem.X).train(problem, Limits(TOL, steps), solver=name).certificate)


def by_factors(name: str, dtype: torch.dtype) -> Found:
    program = FactoredProgram(gated("nuclear").to(dtype), 2)
    return Found(train(program, METHODS[name](**SETTINGS.get(name, {})), tol=TOL, max_steps=STEPS).certificate)


CASES: dict[str, Case] = {
    **{f"solver {name}": partial(by_solver, name) for name in SOLVERS},
    "solver auto": by_plan,
    **{f"relu {name}": partial(by_relu_method, name) for name in ("auto", *RELU_SOLVERS)},
    **{f"factored {name}": partial(by_factors, name) for name in METHODS},
}

if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[1]))
    kinds = {"float32": torch.float32, "float64": torch.float64}
    print(json.dumps({f"{name} {kind}": CASES[name](dtype).digest for name in CASES for kind, dtype in kinds.items()}))
