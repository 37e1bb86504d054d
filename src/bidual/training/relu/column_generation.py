r"""Exact training of ReLU networks by columns: solve over the neurons at hand, ask the oracle for better ones, repeat.

The master problem is a group lasso over a dictionary of neurons (:meth:`NeuronProblem.restricted_to`); its dual point V
is optimal for the network as soon as no neuron anywhere has |V^T (X u)_+| > beta (CP eq. 11). The papers' own method,
Frank-Wolfe, adds one neuron a step and never re-optimises the others; see :mod:`bidual.training.relu.frank_wolfe`.

Where neurons are searched for, they also move: near-copies are merged and the whole network descends every second
round, from a wide random network on (docs/solvers.md, "Neurons that move").
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from time import perf_counter
from typing import NamedTuple, Self

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bidual.numerics.norms import L2
from bidual.polar import NeuronOracle, Neurons, SteepestNeurons
from bidual.problems.certificate import Certificate, Scope, judge
from bidual.problems.problem import NeuronProblem, Problem, ReluProblem
from bidual.problems.solution import Limits, Solution, Status, Verdict, neurons_of
from bidual.runtime.numerical_errors import NUMERICAL
from bidual.solvers import EtaInteriorPoint, InteriorPoint, PrimalDual, SmoothedNewton
from bidual.solvers.driver import NeuronSolver, Solver, solve
from bidual.solvers.plan import solve_auto
from bidual.training.relu.compact_network import compacted
from bidual.training.relu.network_descent import Network, descended, merged, value, wide_network
from bidual.types import Blocks, Matrix

_SMALL_MASTER = 300_000  # numbers in the design of a master problem that an interior point takes within a second
_MASTER_SHARE = 0.03  # of the current gap, what the master problem may leave
_WIDTH, _WIDE_STEPS, _STEPS = 100, 100, 40  # of the random network, of its descent, and of those between rounds
_LIGHT = 0.01  # neurons below this share of the heaviest are dropped where neurons move, less the smaller the gap
_FEWER = 0.9  # of them must be left at most, for another master problem
_LAST = 1e-3  # of the tolerance, what the weights of the network that is returned may leave
_AGAIN = 2e-9  # above its last value, by which a network that is weighed again counts as better
_LIMITS = Limits(1e-6)


class _Weighed(NamedTuple):
    """A master problem with its solution."""

    master: Problem
    Z: Blocks
    V: Matrix
    primal: float

    def with_only(self, problem: NeuronProblem, which: Bool[Tensor, " m"]) -> "_Weighed":
        return self._replace(master=problem.restricted_to(neurons_of(self.master)[which]), Z=self.Z[which])


class _Searched(NamedTuple):
    """A dual point, and how steep the steepest neuron is that any search has found there."""

    V: Matrix
    steepest: float

    def judged(self, master: Problem, Z: Blocks) -> Certificate:
        """What the bounds would be if there were no steeper one."""
        return judge(master, Z, self.V, lambda W: max(self.steepest, master.beta), Scope.BLOCKS)


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
    round: int = 0
    searched: _Searched | None = None


@dataclass(frozen=True, eq=False)
class ColumnGeneration(NeuronSolver):
    """Add neurons until the relative gap is within the tolerance, or no neuron that helps is found.

    Attributes:
        oracle: finds the steepest neurons, and proves how steep they are if it can.
        seeds: neurons to begin with, besides those of the start.
        moving: a seed for the random network where neurons move, for smooth losses under weight decay; None where they
            do not.
        weights: output weights of the start's neurons, near those that a master problem would find.
        limits: of the run.
    """

    oracle: NeuronOracle
    seeds: Neurons | None = None
    moving: int | None = None
    weights: Blocks | None = None
    limits: Limits = _LIMITS

    name = "column_generation"
    instead = "auto"
    max_steps = 500
    untimed_steps = 2  # the first round has no neurons yet, where they do not move

    def check(self, problem: NeuronProblem) -> None:
        super().check(problem)
        problem.check_oracle(self.oracle)

    def within(self, limits: Limits) -> Self:
        return replace(self, limits=limits)

    def init(self, problem: NeuronProblem, start: Neurons | None, dual: Tensor | None) -> _State:
        given = [U for U in (start, self.seeds) if U is not None and len(U)]
        began = perf_counter()
        if self.moving is not None and not given and isinstance(problem, ReluProblem):
            wide = descended(problem, wide_network(problem, _WIDTH, self.moving), _WIDE_STEPS, self._in_time(began))
            return _State(problem.restricted_to(wide.neurons), wide.Z, began)
        neurons = torch.cat([problem.X.new_zeros(0, problem.neuron_size), *given])
        master = problem.restricted_to(neurons)
        Z = master.operator.zeros()
        if start is not None and self.weights is not None and self.weights.shape == (len(start), *Z.shape[1:]):
            Z[: len(start)] = self.weights.to(Z)
        return _State(master, Z, began)

    def resume(self, problem: NeuronProblem, done: Solution) -> _State:
        if self.seeds is not None:
            return super().resume(problem, done)
        state = _State(problem.restricted_to(done.neurons), done.Z.to(problem.X), perf_counter())
        if done.search_gap is None:
            return state
        # as rough as a first round it would drop neurons that the last digits of the search before are made of
        primal = (1 + _AGAIN) * done.certificate.primal
        return replace(state, gap=min(max(done.search_gap, 0.0), 1.0), primal=primal)

    def _in_time(self, began: float) -> Callable[[], bool]:
        limit = self.limits.max_time
        return lambda: limit is None or perf_counter() - began < limit

    def step(self, problem: NeuronProblem, state: _State) -> _State:
        tol = max(min(state.strictness * _MASTER_SHARE * state.gap, 1e-3), 0.1 * self.limits.tol)
        weighed = self._weighed(state, state.master, state.Z, tol)
        falls = weighed.primal < state.primal * (1 - 1e-9)
        if falls:  # idle neurons stay until then: with a kinked loss duals are not unique, and rounds could repeat
            weighed = weighed.with_only(problem, weighed.Z.abs().amax((1, 2)) > 0)
        if self.moving is not None and isinstance(problem, ReluProblem) and self._in_time(state.began)():
            weighed = self._lighter(problem, state, weighed, tol) if falls else weighed
            weighed = self._moved(problem, state, weighed, tol)
        master, Z, V = weighed.master, weighed.Z, weighed.V
        certificate, peaks = judged_by_oracle(master, Z, V, self.oracle, neurons_of(master))
        best = certificate if state.best is None else certificate.with_dual_of(state.best)
        new = spread_out(peaks, problem.beta, neurons_of(master))
        following = problem.restricted_to(torch.cat([neurons_of(master), new]))
        searched = _Searched(V, peaks.bracket.lower)
        if not self.oracle.proves:
            searched = _searched(following, searched, state.searched)
        guess = best if self.oracle.proves else searched.judged(master, Z)
        over = guess.within(self.limits.tol) and not self.oracle.proves
        if over and self.moving is not None and isinstance(problem, ReluProblem):
            master, Z = self._compacted(problem, state, weighed)
            certificate = judge(master, Z, V, lambda W: peaks.bracket.upper, Scope.ALL_PATTERNS)
        return _State(
            following,
            torch.cat([weighed.Z, Z.new_zeros(len(new), *Z.shape[1:])]),
            state.began,
            Verdict(master, certificate, searched.V, guess.relative_gap),
            best,
            guess.relative_gap,
            over,
            not len(new) and tol <= 0.1 * self.limits.tol,
            1.0 if len(new) else state.strictness / 10,  # nothing to add: solve the master better
            weighed.primal if falls else state.primal,
            state.round + 1,
            searched,
        )

    def _weighed(self, state: _State, master: Problem, Z: Blocks, tol: float) -> _Weighed:
        """The neurons of a master problem with their best weights."""
        left = self.limits.after(perf_counter() - state.began, least=1.0).max_time
        solved = solve_master(master, Limits(tol, max_time=left), Z).certificate
        return _Weighed(master, solved.point, solved.dual_point, solved.primal)

    def _lighter(self, problem: NeuronProblem, state: _State, weighed: _Weighed, tol: float) -> _Weighed:
        """Without light neurons, of which near-copies have many, if it is still better than the last time."""
        sizes = torch.linalg.vector_norm(weighed.Z, dim=(1, 2))
        if not len(sizes):
            return weighed
        heavy = sizes > min(_LIGHT, 10 * state.gap) * sizes.max()
        if int(heavy.sum()) > _FEWER * len(heavy):
            return weighed
        few = weighed.with_only(problem, heavy)
        again = self._weighed(state, few.master, few.Z, tol)
        return again if again.primal < state.primal * (1 - 1e-9) else weighed

    def _moved(self, problem: ReluProblem, state: _State, weighed: _Weighed, tol: float) -> _Weighed:
        """In every second round, from the first on: near-copies merged, the network descended, and weighed again."""
        if state.round % 2 or not len(weighed.Z):
            return weighed
        neurons = neurons_of(weighed.master)
        network = Network(neurons, weighed.Z.to(neurons))
        network = descended(problem, merged(network), _STEPS, self._in_time(state.began))
        if not value(problem, network) < weighed.primal:
            return weighed
        return self._weighed(state, problem.restricted_to(network.neurons), network.Z, tol)

    def _compacted(self, problem: ReluProblem, state: _State, weighed: _Weighed) -> tuple[Problem, Blocks]:
        """The network that is returned: without near-copies and light neurons, where its objective does not rise."""

        def weigh(network: Network) -> tuple[Network, float]:
            found = self._weighed(state, problem.restricted_to(network.neurons), network.Z, _LAST * self.limits.tol)
            return Network(network.neurons, found.Z), found.primal

        few = compacted(Network(neurons_of(weighed.master), weighed.Z), weighed.primal, weigh)
        return (weighed.master, weighed.Z) if few is None else (problem.restricted_to(few.neurons), few.Z)

    def finished(self, state: _State) -> Status | None:
        if state.found_all:
            return Status.SEARCHED
        return Status.STALLED if state.stalled else None


def _searched(known: Problem, now: _Searched, before: _Searched | None) -> _Searched:
    """The better of two dual points, the older one judged by all neurons that are known by now too."""
    if before is None:
        return now
    here = known.gauge.polar(known.operator.adjoint(before.V)).upper
    before = before._replace(steepest=max(before.steepest, here))
    values = [_dual_value(known, one) for one in (now, before)]
    return before if values[1] > values[0] else now


def _dual_value(problem: Problem, at: _Searched) -> float:
    """-F* of V, scaled to where its steepest neuron may be."""
    V = problem.datafit.into_domain(at.V * min(1.0, problem.beta / max(at.steepest, 1e-300)))
    return -problem.datafit.conjugate(V)


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
    """The group lasso over a dictionary: by Newton's method from warm starts, else by interior points, in one variable
    per neuron or on the conic form."""
    if problem.operator.block_shape[0] == 0:
        return solve(problem, PrimalDual(), Limits(inf))  # takes every gauge, and has nothing to do
    start = None if start is None or not bool(start.any()) else start
    n, m = problem.operator.output_shape[0], problem.operator.block_shape[0]
    general: list[Solver] = [InteriorPoint()] if n * m <= _SMALL_MASTER else []
    general = [EtaInteriorPoint(), *general] if problem.datafit.loss.half_square else general
    stages = general if start is None else [SmoothedNewton(), *general]
    best: Solution | None = None
    for solver in stages:
        if solver.refusal(problem) is not None:
            continue
        with suppress(*NUMERICAL):  # numbers beyond this solver's precision; the next may have more
            done = solve(problem, solver, replace(limits, max_steps=100), start=start)
            if done.certificate.within(limits.tol):
                return done
            start, best = done.Z, done
    try:
        return solve_auto(problem, limits, start=start)
    except NUMERICAL:  # its kernel is singular to rounding; the interior point's answer is what there is
        if best is None:
            raise
        return best
