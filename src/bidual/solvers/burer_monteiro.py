"""The factored program: methods that move the neurons themselves."""

import warnings
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from bidual.gauges import Factorised, Factors
from bidual.problems.problem import Problem
from bidual.solvers.active_neurons import smooth_price_refusal
from bidual.solvers.driver import Solver
from bidual.solvers.factored import FactoredProgram, make_method, resized
from bidual.solvers.factored.escape import go_on
from bidual.solvers.factored.method import Method, State
from bidual.solvers.factored.training import BLOWN_UP
from bidual.types import as_protocol


@dataclass
class _Run:
    program: FactoredProgram
    state: State
    left_at: float  # the objective at which the last saddle was left; minus infinity if none may be
    stuck: bool = False


@dataclass(frozen=True)
class BurerMonteiro(Solver):
    r"""min_{U,W} F(A (U_p W_p^T)_p) + beta/2 (|U|^2 + |W|^2) (BM eq. 17, 18), by a method of
    :mod:`bidual.solvers.factored`.

    ``rank`` is m, the neurons per block; the default min(a, b) leaves no spurious local minima for linear and gated
    networks (docs/corrections.md, BM Thm 3.3). Where the method stops, ``escape`` adds the direction that violates the
    dual constraint. The certificate of the convex program tells saddles from optima.
    """

    rank: int | None = None
    method: str | Method = "lbfgs"
    escape: bool = True
    seed: int = 0
    name = "burer_monteiro"
    needs = {"gauge": (Factorised,)}  # noqa: RUF012
    needs_smooth_loss = True
    instead = "kernel_admm"
    check_every = 1

    def __post_init__(self) -> None:
        if self.rank is not None and self.rank < 1:
            raise ValueError(f"rank must be at least 1, got {self.rank}.")
        make_method(self.method)

    def _refusal(self, problem: Problem) -> str | None:
        refusal = smooth_price_refusal(self.name, problem)
        return refusal or make_method(self.method).refusal(FactoredProgram(problem, self._rank(problem)))

    def _rank(self, problem: Problem) -> int:
        return self.rank or min(problem.operator.block_shape[1:])

    def init(self, problem: Problem, start: Tensor | None, dual: Tensor | None) -> _Run:
        program, generator = FactoredProgram(problem, self._rank(problem)), torch.Generator().manual_seed(self.seed)
        program.warn_if_wasteful()
        factors = program.start(generator, 0.1 if start is None else 1e-3)
        if start is not None:
            near = resized(as_protocol(problem.gauge, Factorised).split(start), program.m)
            factors = Factors(factors.U + near.U, factors.W + near.W)
        return _Run(program, make_method(self.method).init(program, factors), inf if self.escape else -inf)

    def step(self, problem: Problem, state: _Run) -> _Run:
        """``check_every`` steps of the method, after an escape where it has finished."""
        method, program, inner = make_method(self.method), state.program, state.state
        left_at = state.left_at
        if inner.finished or inner.slow:
            following = go_on(program, method, inner, left_at)
            if following is None:
                return _Run(program, inner, left_at, True)
            left_at = left_at if following[1] is inner else inner.value
            program, inner = following
        before = inner
        for _ in range(method.check_every):
            inner = method.step(program, inner)
            if not inner.value <= BLOWN_UP * max(before.value, problem.datafit.scale):  # NaN included
                warnings.warn(f"{self.name} diverged by {method.name}; lower its learning rate.", stacklevel=2)
                return _Run(program, before, left_at, True)
            if inner.finished or inner.slow:
                break
        return _Run(program, inner, left_at)

    def point(self, problem: Problem, state: _Run) -> Tensor:
        return state.program.product(state.state.factors)

    def finished(self, state: _Run) -> bool:
        return state.stuck
