"""Programs over some of the samples."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from jaxtyping import Int
from torch import Tensor

from bidual.losses.datafit import Datafit
from bidual.operators import GatedOperator, LinearOperator
from bidual.operators.base import SampleOperator
from bidual.problems.problem import Problem
from bidual.solvers.factored.program import FactoredProgram


def batches(n: int, size: int, generator: torch.Generator) -> Iterator[Int[Tensor, " k"]]:
    """All samples in random order, ``size`` at a time."""
    yield from torch.randperm(n, generator=generator).split(size)


def subprogram(program: FactoredProgram, index: Int[Tensor, " k"]) -> FactoredProgram:
    """The program over the samples ``index``, with their share k/n of beta, so that the batches of an epoch add up."""
    problem, n = program.problem, program.problem.operator.output_shape[0]
    data = problem.datafit
    weight = None if data.weight is None else data.weight[index]
    datafit = Datafit(data.loss, data.targets[index], weight, False, data.shift)
    small = Problem(_rows(problem.operator, index), datafit, problem.gauge, problem.beta * len(index) / n)
    return replace(program, problem=small)


def _rows(operator: object, index: Int[Tensor, " k"]) -> SampleOperator:
    if isinstance(operator, GatedOperator):
        return GatedOperator(operator.X[index], operator.patterns[:, index], operator.n_outputs)
    if isinstance(operator, LinearOperator):
        return LinearOperator(operator.X[index], operator.n_outputs, operator.n_blocks)
    raise TypeError(f"{type(operator).__name__} cannot be cut into mini-batches.")
