"""Lower bounds over all activation patterns for a network that was found by search, where no exact oracle helps.

These solvers leave the network as it is and improve its certificate.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

from torch import Tensor

from bidual.polar import NeuronOracle, bound_near
from bidual.problems.certificate import PolarBound, Scope, judge
from bidual.problems.problem import NeuronProblem, ReluProblem
from bidual.problems.solution import Limits, Solution, Status, Verdict
from bidual.solvers.driver import NeuronSolver
from bidual.training.copositive.splitting import spike_free_bound
from bidual.types import Matrix

# Multiplications that the program of spike-free data may cost without a limit of time: a fraction of a second. A step
# costs ten times the cube of its size, and beyond the largest size steps are too slow to be worth it at any time.
_QUICK, _STEP, _LARGEST = 1e9, 10.0, 500


@dataclass
class _State:
    """The network, with the verdict by the last dual point, and how many have been tried."""

    done: Solution
    verdict: Verdict
    tried: int = 0


class LowerBound(NeuronSolver):
    """Leaves the network of the solver before as it is, and improves its certificate."""

    instead = "auto"

    def init(self, problem: NeuronProblem, start: Tensor | None, dual: Tensor | None) -> Any:
        raise ValueError(f"{self.name} improves the certificate of a solution; start from one.")


class TriedPoints(LowerBound):
    """Tries dual points; a step is one of them."""

    @property
    def count(self) -> int:
        """How many dual points there are."""
        return 1

    @abstractmethod
    def dual(self, problem: Any, index: int) -> tuple[Matrix, PolarBound]:
        """A dual point, and what bounds its polar."""

    def resume(self, problem: NeuronProblem, done: Solution) -> _State:
        before = Verdict(done.problem, done.certificate, done.dual_point, done.search_gap)
        return _State(done, before)

    def step(self, problem: NeuronProblem, state: _State) -> _State:
        found = self.dual(problem, state.tried)
        certificate = judge(state.done.problem, state.done.Z, *found, Scope.ALL_PATTERNS)
        return _State(state.done, replace(state.verdict, certificate=certificate), state.tried + 1)

    def finished(self, state: _State) -> Status | None:
        return state.done.status if state.tried >= self.count else None


@dataclass(frozen=True, eq=False)
class DualPoints(TriedPoints):
    """Given dual points, each scaled by an oracle's bound of its polar."""

    oracle: NeuronOracle
    points: tuple[Matrix, ...]
    above: float = 0.0  # a polar below it need not be known
    name = "dual_points"

    def check(self, problem: NeuronProblem) -> None:
        super().check(problem)
        problem.check_oracle(self.oracle)

    @property
    def count(self) -> int:
        return len(self.points)

    def dual(self, problem: NeuronProblem, index: int) -> tuple[Matrix, PolarBound]:
        return self.points[index], lambda W: self.oracle.steepest(W, self.above).bracket.upper


@dataclass(frozen=True, eq=False)
class SpikeFreeBound(TriedPoints):
    """CP (20) on spike-free data: dual point and bound of its polar from one semidefinite program.

    There it is the better proof: 1e-11 in 0.8 s where the product bound has 7e-5 after 1.7 s (60 white samples of 80
    features, squared loss), 4e-5 against 3e-4 in 1.6 s (150 of 160, logistic loss).

    Attributes:
        max_time: in seconds.
    """

    max_time: float | None = None
    name = "spike_free_bound"

    def within(self, limits: Limits) -> Self:
        return replace(self, max_time=limits.max_time)

    def dual(self, problem: ReluProblem, index: int) -> tuple[Matrix, PolarBound]:
        steps = affordable_steps(problem, self.max_time)
        bound = spike_free_bound(problem, max_time=self.max_time, max_steps=steps)
        return bound.V, bound_near(problem.X, bound.V, bound.polar)


def affordable_steps(problem: ReluProblem, max_time: float | None) -> int:
    """How many steps of that program are affordable; 0 where it is not worth starting."""
    size = 2 * len(problem.X) + min(problem.X.shape) + problem.datafit.targets.shape[1]
    if size > _LARGEST:
        return 0
    affordable = int(_QUICK / (_STEP * size**3))
    return 3000 if max_time is not None else min(affordable, 1000) if affordable >= 50 else 0
