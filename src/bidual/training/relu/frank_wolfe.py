r"""Algorithm 1 of CP: Frank-Wolfe on the epigraph form (14), with exact cone-constrained PCA. A baseline, as printed.

For a given budget t it minimises F over networks with sum_j |u_j| |w_j| <= t; at the t of an optimum of the penalised
problem that is the same network. It adds one neuron a step and shrinks all others by the same factor, which makes it
slow: :mod:`bidual.training.relu.column_generation` needs a handful of rounds where this needs tens of thousands of
steps.
"""

import time
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

import torch
from torch import Tensor

from bidual.polar import NeuronOracle, Neurons
from bidual.problems.certificate import Certificate, Scope, judge
from bidual.problems.relu import ReluProblem
from bidual.problems.solution import Record

NAME = "frank_wolfe"


@dataclass(frozen=True, eq=False)
class FrankWolfeRun:
    """A network with its certificate for the penalised problem, and the path to it."""

    neurons: Neurons
    weights: Tensor
    t: float
    certificate: Certificate
    history: tuple[Record, ...]
    steps: int
    seconds: float


@dataclass(frozen=True)
class FrankWolfe:
    """CP Algorithm 1 with step size 2 / (2 + k).

    Attributes:
        max_steps: for one budget t.
        look_every: steps between two certificates.
    """

    max_steps: int = 30_000
    look_every: int = 100

    def run(
        self, problem: ReluProblem, oracle: NeuronOracle, t: float, *, tol: float = 0.0, max_time: float | None = None
    ) -> FrankWolfeRun:
        """Minimise F under sum |u||w| <= t, until the penalised problem's certified relative gap is at most ``tol``."""
        problem.check_oracle(oracle)
        problem.check_plain("Algorithm 1")
        if not t > 0:
            raise ValueError(f"t must be positive, got {t}; the price of any good network is a start.")
        began = time.perf_counter()
        history: list[Record] = []
        state, best = _State(problem, oracle, t), None
        for k in range(self.max_steps):
            state.step(2 / (2 + k))
            if (k + 1) % self.look_every and k + 1 < self.max_steps:
                continue
            best = state.look(best)
            seconds = time.perf_counter() - began
            history.append(Record(NAME, k + 1, seconds, best.primal, best.dual, best.relative_gap))
            if best.within(tol) or (max_time is not None and seconds > max_time):
                break
        assert best is not None
        neurons, weights = state.network()
        return FrankWolfeRun(neurons, weights, t, best, tuple(history), k + 1, time.perf_counter() - began)

    def search(
        self,
        problem: ReluProblem,
        oracle: NeuronOracle,
        *,
        tol: float = 1e-2,
        max_runs: int = 20,
        max_time: float = inf,
    ) -> FrankWolfeRun:
        r"""The outer search over t of CP (14): the best run, at the t that is left when others are proved worse.

        h(t) = beta t + min { F : sum |u||w| <= t } is convex, but the sign of its slope beta - |V|° at an unfinished
        run is worthless, so bisection goes astray. What any dual point V does prove is h(t) >= -F*(V) + (beta - |V|°) t
        for all t at once; t is only discarded where such a line lies above the best network so far, and where that
        decides too little, the next run is twice as long.
        """
        inner, best, lines = self, None, [Line(0.0, problem.beta)]  # F >= 0
        low, high = 0.0, problem.datafit.value(torch.zeros_like(problem.datafit.targets)) / problem.beta
        high, deadline = high or 1.0, time.perf_counter() + max_time  # a data term of zero: any budget will do
        for _ in range(max_runs):
            left = deadline - time.perf_counter()
            run = inner.run(problem, oracle, (max(low, 1e-6 * high) * high) ** 0.5, tol=tol, max_time=left)
            lines.append(_line(problem, oracle, run))
            if best is None or run.certificate.primal < best.certificate.primal:
                best = run
            width = high - low
            low, high = _where_below(lines, best.certificate.primal, low, high)
            done = best.certificate.within(tol) or high - low <= 1e-6 * high
            if done or time.perf_counter() > deadline:
                break
            if high - low > 0.7 * width:  # the run was too short to decide
                inner = replace(inner, max_steps=2 * inner.max_steps)
        assert best is not None
        return best


class Line(NamedTuple):
    """h(t) >= level + slope * t."""

    level: float
    slope: float


def _line(problem: ReluProblem, oracle: NeuronOracle, run: FrankWolfeRun) -> Line:
    master = problem.restricted_to(run.neurons)
    V = problem.datafit.into_domain(master.residual(run.weights[:, None]))
    polar = oracle.steepest(V).bracket.upper + master.rounding_of_polar(V)
    return Line(-problem.datafit.conjugate(V), problem.beta - polar)


def _where_below(lines: list[Line], value: float, low: float, high: float) -> tuple[float, float]:
    """The part of [low, high] where no line exceeds ``value``; never empty, because the best t is in it."""
    for line in lines:
        if line.slope > 0:
            high = min(high, (value - line.level) / line.slope)
        elif line.slope < 0:
            low = max(low, (value - line.level) / line.slope)
    return min(low, high), max(low, high)


class _State:
    """The neurons so far; all their weights share one factor, which is kept apart."""

    def __init__(self, problem: ReluProblem, oracle: NeuronOracle, t: float) -> None:
        self.problem, self.oracle, self.t = problem, oracle, t
        self.P = torch.zeros_like(problem.datafit.targets)
        self.neurons: list[Tensor] = []
        self.weights: list[Tensor] = []
        self.shares: list[float] = []

    def step(self, alpha: float) -> None:
        """Steps 2(a) to 2(c): the steepest neuron u and its best g, |g| = 1, enter with weight t alpha."""
        V = self.problem.datafit.grad(self.P)
        u = self.oracle.steepest(V).neurons[:1]
        if not len(u):  # a gradient of zero: nothing to add
            return
        feature = (self.problem.X @ u[0]).clamp(min=0)
        g = -feature @ V
        g = g / torch.linalg.vector_norm(g).clamp(min=torch.finfo(g.dtype).tiny)
        self.shares = [share * (1 - alpha) for share in self.shares] + [alpha]
        self.neurons.append(u[0])
        self.weights.append(self.t * g)
        self.P = (1 - alpha) * self.P + alpha * self.t * torch.outer(feature, g)

    def network(self) -> tuple[Neurons, Tensor]:
        if not self.neurons:
            return self.problem.X[:0], self.P[:0]
        return torch.stack(self.neurons), torch.stack(self.weights) * self.P.new_tensor(self.shares)[:, None]

    def look(self, best: Certificate | None) -> Certificate:
        neurons, weights = self.network()
        master = self.problem.restricted_to(neurons)
        V = self.problem.datafit.grad(self.P)
        upper = lambda W: self.oracle.steepest(W).bracket.upper  # noqa: E731
        certificate = judge(master, weights[:, None], V, upper, Scope.ALL_PATTERNS)
        return certificate if best is None else certificate.with_dual_of(best)
