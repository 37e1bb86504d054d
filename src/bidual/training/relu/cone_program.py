"""CP (9), one second-order cone program over all patterns, for networks with one output."""

from dataclasses import dataclass, replace
from typing import Self

import torch

from bidual import patterns as activation_patterns
from bidual.patterns.reduction import reduce_rank
from bidual.polar import NeuronOracle
from bidual.problems.relu import ReluProblem
from bidual.problems.solution import DEFAULT_LIMITS, Limits, Verdict
from bidual.solvers.conic.cone_program import solve_cone_program
from bidual.training.neuron_solver import OneStep, judged

_CONES = 1e-6  # cone programs are solved at least so far: looser points split neurons over neighbouring cones


@dataclass(frozen=True, eq=False)
class ConeProgram(OneStep):
    """CP (9) in the coordinates of the row space of X; ``oracle`` proves how good its network is."""

    oracle: NeuronOracle
    limits: Limits = DEFAULT_LIMITS

    name = "cone_program"

    def _refusal(self, problem: ReluProblem) -> str | None:
        return refusal(problem)

    def within(self, limits: Limits) -> Self:
        return replace(self, limits=limits)

    def answer(self, problem: ReluProblem) -> Verdict:
        active = activation_patterns.enumerate(problem.X).active
        reduced = reduce_rank(problem.X.detach().to("cpu", torch.float64).numpy())
        small = replace(problem, X=torch.from_numpy(reduced.samples).to(problem.X))
        tol, seconds = min(0.5 * self.limits.tol, _CONES), self.limits.max_time
        found = solve_cone_program(small, active, complete=True, tol=tol, time_limit=seconds)
        neurons = found.neurons @ torch.from_numpy(reduced.basis.T).to(problem.X)
        return judged(problem, neurons, found.weights, found.dual, lambda V: self.oracle.steepest(V).bracket.upper)


def refusal(problem: ReluProblem) -> str | None:
    """Why CP (9) is not for a problem."""
    outputs = problem.datafit.targets.shape[1]
    return None if outputs == 1 else f"solver='cone_program' is CP (9), for one output, got {outputs}."
