"""The package itself: the automatic choice of solvers, accelerated proximal gradient alone, or a path.

With each point it hands over the dual point of its own certificate, which is what its users get.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from bidual.architectures import GatedMLP
from bidual.estimators.programs import FixedProgram
from bidual.problems.solution import Limits, Solution
from bidual.solvers.conic.cone_program import solve_cone_program
from bidual.solvers.plan import solve_auto
from convex import gated_problem, patterns, relu_problem
from harness import Answer, Task, main

_MANY_STEPS = 1_000_000


def prepare(task: Task, tolerance: float) -> Callable[[], Answer]:
    """Its tolerance is the certified relative gap."""
    if task.spec.network == "relu":
        return _relu(task, tolerance)
    problem = gated_problem(task.spec, task.arrays, task.betas[0])
    if task.method == "fista":
        return lambda: _answer([solve_auto(problem, Limits(tolerance, _MANY_STEPS), solver="fista")])
    if task.method == "last":
        last = problem.with_beta(task.betas[-1])
        return lambda: _answer([solve_auto(last, Limits(tolerance))])
    if len(task.betas) > 1:
        program = FixedProgram(problem, GatedMLP(torch.from_numpy(task.arrays.gates), task.spec.penalty))
        return lambda: _answer([fit.solution for fit in program.path(task.betas, tol=tolerance)])
    return lambda: _answer([solve_auto(problem, Limits(tolerance))])


def _relu(task: Task, tolerance: float) -> Callable[[], Answer]:
    problem, active = relu_problem(task.spec, task.arrays, task.beta), patterns(task.arrays)

    def solve() -> Answer:
        found = solve_cone_program(problem, active, tol=tolerance)
        return {
            "neurons": found.neurons.numpy(),
            "signs": found.weights[:, 0].numpy(),
            "dual": found.dual.numpy()[None],
            "claimed": np.array([found.gap]),
        }

    return solve


def _answer(solutions: Sequence[Solution]) -> Answer:
    return {
        "Z": np.stack([solution.Z.to(torch.float64).numpy() for solution in solutions]),
        "dual": np.stack([solution.certificate.dual_point.to(torch.float64).numpy() for solution in solutions]),
        "claimed": np.array([solution.certificate.relative_gap for solution in solutions]),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(prepare)
