"""Gradient descent as BM section 4.1 trains: momentum, and a learning rate that decays on plateaus."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from bidual.gauges import Factors
from bidual.losses.datafit import Datafit
from bidual.operators import GatedOperator, LinearOperator
from bidual.operators.gated import SampleOperator
from bidual.problems.problem import Problem
from bidual.solvers.factored.arithmetic import norm, plus
from bidual.solvers.factored.method import Method, State
from bidual.solvers.factored.program import FactoredProgram


@dataclass
class _Memory:
    velocity: Factors
    rate: float
    best: float
    waited: int
    generator: torch.Generator


@dataclass(frozen=True)
class Descent(Method):
    """One step is one epoch; v <- momentum v + g, w <- w - rate v.

    The rate is that of the program's own scaling (``FactoredProgram.scaled``): 1.0 is for a mean over samples and small
    starts, and diverges within three epochs for a sum. It is multiplied with ``decay`` after ``patience`` epochs in
    which the objective fell by less than ``threshold`` of itself; below ``smallest_rate`` the run is over. The
    patience of torch's scheduler, 10, ends most runs far from a stationary point.

    With ``batch`` samples at a time, the data term of a batch is scaled up to the whole; ``seed`` orders them.
    """

    rate: float = 1.0
    momentum: float = 0.9
    decay: float = 0.9
    patience: int = 100
    threshold: float = 1e-6
    smallest_rate: float = 1e-8
    batch: int | None = None
    seed: int = 0
    name = "descent"
    max_steps = 20_000
    check_every = 100

    def __post_init__(self) -> None:
        if not self.rate > 0 or not 0 <= self.momentum < 1 or not 0 < self.decay < 1:
            raise ValueError(
                "descent needs rate > 0, momentum in [0, 1) and decay in (0, 1), "
                f"got {self.rate}, {self.momentum} and {self.decay}."
            )
        if self.batch is not None and self.batch < 1:
            raise ValueError(f"batch must be at least 1 sample, got {self.batch}; None takes all at once.")

    def _refusal(self, program: FactoredProgram) -> str | None:
        if self.batch is not None and program.problem.datafit.intercept:
            return "mini-batches have no common best intercept; append a constant column, or use batch=None."
        if self.batch is not None and not isinstance(program.operator, GatedOperator | LinearOperator):
            return f"{type(program.operator).__name__} cannot be cut into mini-batches; use batch=None."
        return super()._refusal(program)

    def init(self, program: FactoredProgram, factors: Factors) -> State:
        value = program.value(factors)
        still = Factors(torch.zeros_like(factors.U), torch.zeros_like(factors.W))
        memory = _Memory(still, self.rate, value, 0, torch.Generator().manual_seed(self.seed))
        return State(factors, value, memory=memory)

    def step(self, program: FactoredProgram, state: State) -> State:
        memory, factors, n = state.memory, state.factors, program.operator.output_shape[0]
        if self.batch is None or self.batch >= n:
            factors = self._move(program, factors, memory, program.unit)
        else:
            for index in torch.randperm(n, generator=memory.generator).split(self.batch):
                # a batch stands for n / |batch| times its samples, and has that share of beta's pull
                factors = self._move(subprogram(program, index), factors, memory, program.unit * n / len(index))
        value = program.value(factors)
        self._decay_on_plateau(memory, value)
        done = memory.rate < self.smallest_rate or norm(memory.velocity) == 0
        return State(factors, value, done, memory=memory)

    def _move(self, program: FactoredProgram, factors: Factors, memory: _Memory, unit: float) -> Factors:
        memory.velocity = plus(program.gradient(factors), memory.velocity, self.momentum)
        return plus(factors, memory.velocity, -memory.rate * unit)

    def _decay_on_plateau(self, memory: _Memory, value: float) -> None:
        if value < memory.best * (1 - self.threshold):
            memory.best, memory.waited = value, 0
            return
        memory.waited += 1
        if memory.waited > self.patience:
            memory.rate, memory.waited = memory.rate * self.decay, 0


def subprogram(program: FactoredProgram, index: Int[Tensor, " k"]) -> FactoredProgram:
    """The program over the samples ``index``, with their share k/n of beta, so that the batches of an epoch add up."""
    problem, n = program.problem, program.operator.output_shape[0]
    data = problem.datafit
    weight = None if data.weight is None else data.weight[index]
    datafit = Datafit(data.loss, data.targets[index], weight, False, data.shift)
    small = Problem(_rows(problem.operator, index), datafit, problem.gauge, problem.beta * len(index) / n)
    return replace(program, problem=small)


def _rows(operator: object, index: Int[Tensor, " k"]) -> SampleOperator:
    if isinstance(operator, GatedOperator | LinearOperator):
        return operator.rows(index)
    raise TypeError(f"{type(operator).__name__} cannot be cut into mini-batches.")
