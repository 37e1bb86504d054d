"""The best network found within a width: descents from the heaviest neurons of a wider one, and from given ones.

Training within a width is not convex, so that these are good networks and not optimal ones; the lower bound over all
widths holds for them too.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch

from bidual.architectures.modules import RebuildableModule
from bidual.estimators.certifying.given import Question
from bidual.numerics.norms import L2
from bidual.polar import Neurons
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits, Solution
from bidual.solvers.plan import solve_auto
from bidual.training.relu.network_descent import Network, descended, merged

_STEPS = 500  # of L-BFGS
_WEIGHED = Limits(1e-3, max_time=5.0)  # of the output weights that a descent starts from


def narrowed(question: Question, width: int) -> RebuildableModule | None:
    """The best of them; None where there is none, as for programs without neurons that move."""
    for room in range(width, max(width - 2, 0), -1):  # one neuron less where one stands for a constant
        found = [module for module in _candidates(question, room) if module.n_neurons <= width]
        if found:
            return min(found, key=lambda module: question.objective(module).most)
    return None


def _candidates(question: Question, width: int) -> Iterator[RebuildableModule]:
    problem, done = question.problem, question.done
    if not isinstance(problem, ReluProblem) or done is None:
        return
    for neurons in _starts(question, problem, done, width):
        weighed = _weighed(problem, neurons)
        ends = [weighed]
        if bool(weighed.Z.any()):
            # a loss with kinks has slopes too: the descent stops early, and its neurons are weighed once more
            moved = descended(problem, weighed, _STEPS)
            ends += [moved, _weighed(problem, moved.neurons)]
        for end in ends:
            fitting = replace(done, problem=problem.restricted_to(end.neurons), Z=end.Z)
            yield question.given.found(fitting).module


def _weighed(problem: ReluProblem, neurons: Neurons) -> Network:
    """With the best output weights."""
    return Network(neurons, solve_auto(problem.restricted_to(neurons), _WEIGHED).Z)


def _starts(question: Question, problem: ReluProblem, done: Solution, width: int) -> Iterator[Neurons]:
    """Neurons of length one, as many as fit."""
    together = merged(Network(done.neurons, done.Z))
    order = torch.linalg.vector_norm(together.Z, dim=(1, 2)).argsort(descending=True)
    heaviest, own = together.neurons[order], question.given.neurons(problem)
    yield from (neurons[:width] for neurons in (heaviest, L2.unit(own[own.any(1)])) if len(neurons))
