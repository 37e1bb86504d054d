r"""Algorithm 1 of CP: Frank-Wolfe on the epigraph form (14), with exact cone-constrained PCA. A baseline, as printed.

For a given budget t it minimises F over networks with sum_j |u_j| |w_j| <= t; at the t of an optimum of the penalised
problem that is the same network. It adds one neuron a step and shrinks all others by the same factor, which makes it
slow: :mod:`bidual.training.relu.column_generation` needs a handful of rounds where this needs tens of thousands of
steps.
"""

from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple, Self

import torch
from torch import Tensor

from bidual.polar import NeuronOracle, Neurons
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits, Status, Verdict
from bidual.solvers.driver import NeuronSolver
from bidual.training.relu.closed_form import judged


class Line(NamedTuple):
    """h(t) >= level + slope * t."""

    level: float
    slope: float


@dataclass
class _Network:
    """The neurons for one budget; all their weights share one factor, which is kept apart."""

    t: float
    P: Tensor
    neurons: list[Tensor] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    steps: int = 0

    def step(self, problem: ReluProblem, oracle: NeuronOracle) -> None:
        """Steps 2(a) to 2(c): the steepest neuron u and its best g, |g| = 1, enter with weight t alpha."""
        alpha = 2 / (2 + self.steps)
        self.steps += 1
        V = problem.datafit.grad(self.P)
        u = oracle.steepest(V).neurons[:1]
        if not len(u):  # a gradient of zero: nothing to add
            return
        feature = (problem.X @ u[0]).clamp(min=0)
        g = -feature @ V
        g = g / torch.linalg.vector_norm(g).clamp(min=torch.finfo(g.dtype).tiny)
        self.shares = [share * (1 - alpha) for share in self.shares] + [alpha]
        self.neurons.append(u[0])
        self.weights.append(self.t * g)
        self.P = (1 - alpha) * self.P + alpha * self.t * torch.outer(feature, g)

    def of(self, problem: ReluProblem) -> tuple[Neurons, Tensor]:
        if not self.neurons:
            return problem.X[:0], self.P[:0]
        return torch.stack(self.neurons), torch.stack(self.weights) * self.P.new_tensor(self.shares)[:, None]


@dataclass
class _State:
    """The network of the budget that is tried, and what is known of the best budget: low <= t <= high."""

    network: _Network
    low: float
    high: float
    run_steps: int
    lines: list[Line]
    tried: int = 0
    least: float = inf  # the best objective so far
    last: Verdict | None = None  # of the budget's last network, when it has ended
    over: bool = False


@dataclass(frozen=True, eq=False)
class FrankWolfe(NeuronSolver):
    r"""CP Algorithm 1 with step size 2 / (2 + k), and the outer search over t of CP (14).

    h(t) = beta t + min { F : sum |u||w| <= t } is convex, but the sign of its slope beta - |V|° at an unfinished run is
    worthless, so bisection fails. What any dual point V does prove is h(t) >= -F*(V) + (beta - |V|°) t for all t
    at once; t is only discarded where such a line lies above the best network so far, and where that decides too
    little, the next run is twice as long.

    Attributes:
        oracle: the steepest neuron, and the bound of a certificate.
        t: the budget; None to search for it.
        run_steps: for the first budget of a search.
        max_runs: budgets to try.
    """

    oracle: NeuronOracle
    t: float | None = None
    run_steps: int = 3000
    max_runs: int = 20

    name = "frank_wolfe"
    check_every = 100
    max_steps = 10**9  # a search ends by itself

    def __post_init__(self) -> None:
        if self.t is not None and not self.t > 0:
            raise ValueError(f"t must be positive, got {self.t}; the price of any good network is a start.")

    def check(self, problem: ReluProblem) -> None:
        super().check(problem)
        if reason := refusal(problem):
            raise ValueError(f"{reason} Use solver='auto' or 'column_generation'.")
        problem.check_oracle(self.oracle)
        problem.check_plain("Algorithm 1")

    def within(self, limits: Limits) -> Self:
        """All steps for one budget, if they are limited."""
        return self if limits.max_steps is None else replace(self, run_steps=max(limits.max_steps, 1))

    def init(self, problem: ReluProblem, start: Neurons | None, dual: Tensor | None) -> _State:
        zero = torch.zeros_like(problem.datafit.targets)
        high = problem.datafit.value(zero) / problem.beta or 1.0  # a data term of zero: any budget will do
        network = _Network(_budget(0.0, high) if self.t is None else self.t, zero)
        return _State(network, 0.0, high, self.run_steps, [Line(0.0, problem.beta)])  # F >= 0

    def step(self, problem: ReluProblem, state: _State) -> _State:
        if state.last is not None:
            state.network = _Network(_budget(state.low, state.high), torch.zeros_like(state.network.P))
            state.last = None
        state.network.step(problem, self.oracle)
        if self.t is None and state.network.steps >= state.run_steps:
            self._end(problem, state)
        return state

    def _end(self, problem: ReluProblem, state: _State) -> None:
        """Take note of what the last network of a budget proves about others."""
        state.last = self._judged(problem, state.network)
        state.least = min(state.least, state.last.certificate.primal)
        state.lines.append(self._line(problem, state))
        width, state.tried = state.high - state.low, state.tried + 1
        state.low, state.high = _where_below(state.lines, state.least, state.low, state.high)
        state.over = state.tried >= self.max_runs or state.high - state.low <= 1e-6 * state.high
        if state.high - state.low > 0.7 * width:  # the run was too short to decide
            state.run_steps *= 2

    def _line(self, problem: ReluProblem, state: _State) -> Line:
        assert state.last is not None
        V = problem.datafit.into_domain(problem.datafit.grad(state.network.P))
        polar = self.oracle.steepest(V).bracket.upper + state.last.problem.rounding_of_polar(V)
        return Line(-problem.datafit.conjugate(V), problem.beta - polar)

    def _judged(self, problem: ReluProblem, network: _Network) -> Verdict:
        V = problem.datafit.grad(network.P)
        return judged(problem, *network.of(problem), V, lambda W: self.oracle.steepest(W).bracket.upper)

    def certified(self, problem: ReluProblem, state: _State) -> Verdict:
        found = state.last or self._judged(problem, state.network)
        state.least = min(state.least, found.certificate.primal)
        return found

    def estimate(self, problem: ReluProblem, state: _State) -> float | None:
        return None if state.last is None else 0.0  # the last network of a budget is always worth a certificate

    def finished(self, state: _State) -> Status | None:
        return Status.STALLED if state.over else None


def refusal(problem: ReluProblem) -> str | None:
    """Why Algorithm 1 is not for this loss, if it is not: its first steps go far, where an exponential overflows."""
    loss = problem.datafit.loss
    if not loss.smooth or loss.smoothness is not None:
        return None
    return f"frank_wolfe needs a loss whose slope has a Lipschitz constant; that of {loss.name} grows without bound."


def _budget(low: float, high: float) -> float:
    return (max(low, 1e-6 * high) * high) ** 0.5


def _where_below(lines: list[Line], value: float, low: float, high: float) -> tuple[float, float]:
    """The part of [low, high] where no line exceeds ``value``; never empty, because the best t is in it."""
    for line in lines:
        if line.slope > 0:
            high = min(high, (value - line.level) / line.slope)
        elif line.slope < 0:
            low = max(low, (value - line.level) / line.slope)
    return min(low, high), max(low, high)
