r"""Exact training of ReLU networks by columns: solve over the neurons at hand, ask the oracle for better ones, repeat.

The master problem is a group lasso over a dictionary of neurons (:meth:`NeuronProblem.restricted_to`); its dual point V
is optimal for the network as soon as no neuron anywhere has |V^T (X u)_+| > beta (CP eq. 11). The papers' own method,
Frank-Wolfe, adds one neuron a step and never re-optimises the others; see :mod:`bidual.training.relu.frank_wolfe`.
"""

from dataclasses import dataclass, replace
from math import inf
from time import perf_counter
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.numerics.norms import L2
from bidual.polar import NeuronOracle, Neurons, SteepestNeurons
from bidual.problems.certificate import Certificate, Scope, judge
from bidual.problems.problem import NeuronProblem, Problem
from bidual.problems.solution import Limits, Solution, Status, Verdict, neurons_of
from bidual.solvers import EtaInteriorPoint, InteriorPoint, PrimalDual
from bidual.solvers.driver import NeuronSolver, Solver, solve
from bidual.solvers.plan import solve_auto
from bidual.types import Blocks, Matrix

_SMALL_MASTER = 300_000  # numbers in the design of a master problem that an interior point takes within a second
_MASTER_SHARE = 0.03  # of the current gap, what the master problem may leave
_LIMITS = Limits(1e-6)


@dataclass
class _State:
    """The master problem of the next round: its neurons with their last weights, zero for new ones."""

    master: Problem
    Z: Blocks
    began: float
    verdict: Verdict | None = None
    best: Certificate | None = None  # the last network with the best dual so far
    gap: float = 1.0
    found_all: bool = False
    stalled: bool = False
    strictness: float = 1.0  # how much better than usual the master is solved
    primal: float = inf  # of the last master from which neurons were dropped


@dataclass(frozen=True, eq=False)
class ColumnGeneration(NeuronSolver):
    """Add neurons until the relative gap is within the tolerance, or no neuron that helps is found.

    Attributes:
        oracle: finds the steepest neurons, and proves how steep they are if it can.
        seeds: neurons to begin with, besides those of the start.
        limits: of the run.
    """

    oracle: NeuronOracle
    seeds: Neurons | None = None
    limits: Limits = _LIMITS

    name = "column_generation"
    instead = "auto"
    max_steps = 500
    untimed_steps = 2  # the first round has no neurons yet

    def check(self, problem: NeuronProblem) -> None:
        super().check(problem)
        problem.check_oracle(self.oracle)

    def within(self, limits: Limits) -> Self:
        return replace(self, limits=limits)

    def init(self, problem: NeuronProblem, start: Neurons | None, dual: Tensor | None) -> _State:
        given = [U for U in (start, self.seeds) if U is not None]
        neurons = torch.cat([problem.X.new_zeros(0, problem.neuron_size), *given])
        master = problem.restricted_to(neurons)
        return _State(master, master.operator.zeros(), perf_counter())

    def step(self, problem: NeuronProblem, state: _State) -> _State:
        tol = max(min(state.strictness * _MASTER_SHARE * state.gap, 1e-3), 0.1 * self.limits.tol)
        left = self.limits.after(perf_counter() - state.began, least=1.0).max_time
        solved = solve_master(state.master, Limits(tol, max_time=left), state.Z).certificate
        master, Z = self._without_idle(problem, state, solved)
        certificate, peaks = judged_by_oracle(master, Z, solved.dual_point, self.oracle, neurons_of(master))
        best = certificate if state.best is None else certificate.with_dual_of(state.best)
        steepest = max(peaks.bracket.lower, problem.beta)
        guess = best if self.oracle.proves else judge(master, Z, solved.dual_point, lambda W: steepest, Scope.BLOCKS)
        new = spread_out(peaks, problem.beta, neurons_of(master))
        return _State(
            problem.restricted_to(torch.cat([neurons_of(master), new])),
            torch.cat([Z, Z.new_zeros(len(new), *Z.shape[1:])]),
            state.began,
            Verdict(master, certificate, solved.dual_point, guess.relative_gap),
            best,
            guess.relative_gap,
            guess.within(self.limits.tol) and not self.oracle.proves,
            not len(new) and tol <= 0.1 * self.limits.tol,
            1.0 if len(new) else state.strictness / 10,  # nothing to add: solve the master better
            solved.primal if self._falls(state, solved) else state.primal,
        )

    def _falls(self, state: _State, solved: Certificate) -> bool:
        return solved.primal < state.primal * (1 - 1e-9)

    def _without_idle(self, problem: NeuronProblem, state: _State, solved: Certificate) -> tuple[Problem, Blocks]:
        """The master without idle neurons, and its solution. They stay until the value falls: with a kinked loss duals
        are not unique, and rounds could repeat."""
        used = (solved.point.abs().amax((1, 2)) > 0) | (not self._falls(state, solved))
        return problem.restricted_to(neurons_of(state.master)[used]), solved.point[used]

    def finished(self, state: _State) -> Status | None:
        if state.found_all:
            return Status.SEARCHED
        return Status.STALLED if state.stalled else None


def judged_by_oracle(
    program: Problem, Z: Blocks, V: Matrix, oracle: NeuronOracle, seeds: Neurons
) -> tuple[Certificate, SteepestNeurons]:
    """The certificate of a network over all patterns, and what the oracle has found on the way, from ``seeds``."""
    found: list[SteepestNeurons] = []

    def upper(W: Matrix) -> float:
        found.append(oracle.steepest(W, program.beta, seeds))
        return found[0].bracket.upper

    return judge(program, Z, V, upper, Scope.ALL_PATTERNS), found[0]


def spread_out(
    peaks: SteepestNeurons, beta: float, known: Neurons, *, add: int = 60, apart: float = 1e-3, steepest: int = 20
) -> Neurons:
    """Violated neurons that are not known yet: up to ``add`` with cosines of at most 1 - ``apart``, because near-copies
    make the master ill-conditioned, and the ``steepest`` ones of all."""
    steep = peaks.neurons[peaks.values > beta * (1 + 1e-12)][: 50 * add]
    if not len(steep):
        return steep
    chosen, unit = [0], L2.unit(steep)
    near = unit @ unit[0] > 1 - apart
    while len(chosen) < add and not bool(near.all()):
        chosen.append(int(torch.argmin(near.to(torch.int8))))
        near |= unit @ unit[chosen[-1]] > 1 - apart
    found = steep[sorted({*chosen, *range(min(steepest, len(steep)))})]
    return found[(L2.unit(found) @ L2.unit(known).T).amax(1) < 1 - 1e-13] if len(known) else found


def solve_master(problem: Problem, limits: Limits, start: Float[Tensor, "m a c"] | None = None) -> Solution:
    """The group lasso over a dictionary, by interior points: in one variable per neuron, or on the conic form."""
    if problem.operator.block_shape[0] == 0:
        return solve(problem, PrimalDual(), Limits(inf))  # takes every gauge, and has nothing to do
    start = None if start is None or not bool(start.any()) else start
    n, m = problem.operator.output_shape[0], problem.operator.block_shape[0]
    general: list[Solver] = [InteriorPoint()] if n * m <= _SMALL_MASTER else []
    stages = [EtaInteriorPoint(), *general] if problem.datafit.loss.half_square else general
    best: Solution | None = None
    for solver in stages:
        if solver.refusal(problem) is None:
            done = solve(problem, solver, replace(limits, max_steps=100), start=start)
            if done.certificate.within(limits.tol):
                return done
            start, best = done.Z, done
    try:
        return solve_auto(problem, limits, start=start)
    except FloatingPointError:  # its kernel is singular to rounding; the interior point's answer is what there is
        if best is None:
            raise
        return best
