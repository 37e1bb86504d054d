"""What solvers of a problem over all neurons share: every step ends in a network that is judged over all patterns."""

from abc import abstractmethod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.polar import NeuronOracle, Neurons, SteepestNeurons
from bidual.problems.certificate import Certificate, PolarBound, Scope, judge
from bidual.problems.neuron_problem import NeuronProblem
from bidual.problems.problem import Problem
from bidual.problems.solution import Solution, Status, Verdict
from bidual.solvers.driver import Solver
from bidual.types import Blocks, Matrix


class NeuronSolver(Solver):
    """A solver of a :class:`NeuronProblem`. Starts are neurons; states have a verdict after every step."""

    takes = NeuronProblem
    instead = "column_generation"
    check_every = 1
    untimed_steps = 1  # there is no network before the first step

    def first(self, problem: NeuronProblem, start: Tensor | None, dual: Tensor | None) -> Verdict | None:
        return None

    def resume(self, problem: NeuronProblem, done: Solution) -> Any:
        return self.init(problem, done.neurons, done.dual_point)

    def point(self, problem: NeuronProblem, state: Any) -> Blocks:
        return self.certified(problem, state).certificate.point

    def certified(self, problem: Any, state: Any) -> Verdict:
        return state.verdict


class OneStep(NeuronSolver):
    """A method whose network comes all at once. Its state is the verdict, None before."""

    def init(self, problem: NeuronProblem, start: Tensor | None, dual: Tensor | None) -> Verdict | None:
        return None

    @abstractmethod
    def answer(self, problem: Any) -> Verdict:
        """The network, judged."""

    def step(self, problem: NeuronProblem, state: Verdict | None) -> Verdict:
        return self.answer(problem)

    def certified(self, problem: NeuronProblem, state: Verdict) -> Verdict:
        return state

    def finished(self, state: Verdict | None) -> Status | None:
        return None if state is None else Status.STALLED


def judged(
    problem: NeuronProblem, neurons: Neurons, weights: Float[Tensor, "m c"], V: Matrix, polar: PolarBound
) -> Verdict:
    """A network of any scaling, judged over all patterns by one dual point."""
    program = problem.restricted_to(neurons)
    Z = (torch.linalg.vector_norm(neurons, dim=1, keepdim=True) * weights)[:, None]
    certificate = judge(program, Z, V, polar, Scope.ALL_PATTERNS)
    return Verdict(program, certificate, V, certificate.relative_gap)


def judged_by_oracle(
    program: Problem, Z: Blocks, V: Matrix, oracle: NeuronOracle, seeds: Neurons
) -> tuple[Certificate, SteepestNeurons]:
    """The certificate of a network over all patterns, and what the oracle has found on the way, from ``seeds``."""
    found: list[SteepestNeurons] = []

    def upper(W: Matrix) -> float:
        found.append(oracle.steepest(W, program.beta, seeds))
        return found[0].bracket.upper

    return judge(program, Z, V, upper, Scope.ALL_PATTERNS), found[0]
