"""What an estimator trains: a convex program for any beta, warm-started along a path."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from bidual.architectures import Architecture
from bidual.architectures.modules import RebuildableModule
from bidual.polar import Neurons
from bidual.problems.certificate import SoundnessError
from bidual.problems.neuron_problem import NeuronProblem
from bidual.problems.problem import Problem
from bidual.problems.solution import Callback, Limits, Solution
from bidual.solvers.plan import solve_auto
from bidual.training.relu.column_generation import Training
from bidual.types import Blocks, Matrix


class WarmStart(NamedTuple):
    """What is left of an earlier training to start from."""

    architecture: Architecture
    point: Blocks
    dual: Matrix


@dataclass(frozen=True, eq=False)
class Fitted:
    """A solution with the problem and the architecture that its Z belongs to."""

    problem: Problem
    architecture: Architecture
    solution: Solution

    def module(self) -> RebuildableModule:
        """The ordinary network."""
        return self.architecture.decode(self.solution.Z, self.problem.predictions(self.solution.Z)[1])

    def expected(self) -> "Expected":
        """Networks add up the same terms as the program, in another order; terms may cancel."""
        predictions, offset = self.problem.predictions(self.solution.Z)
        size = float(predictions.abs().max() + offset.abs().max())
        rounding = 64 * self.problem.rounding_of_forward(self.solution.Z)
        return Expected(predictions + offset, 1e-6 * size + rounding + 1e-300)

    @property
    def start(self) -> WarmStart:
        return WarmStart(self.architecture, self.solution.certificate.point, self.solution.certificate.dual_point)

    @property
    def loss(self) -> float:
        """The data term F, the primal without the price of the weights."""
        return self.problem.datafit.value(self.problem.operator.forward(self.solution.Z))


@dataclass(frozen=True, eq=False)
class Expected:
    """What a network must predict, and how far rounding can lead away from it."""

    predictions: Matrix
    tolerance: float

    def check(self, outputs: Matrix) -> None:
        """A bug in decoding would show here, not a rounding."""
        error = float((outputs - self.predictions.to(outputs.device)).abs().max())
        if error > self.tolerance:
            raise SoundnessError(
                f"the network's predictions differ by {error:.1e} from those that were certified; please report this."
            )


class Program(ABC):
    """A training problem of which beta is still open."""

    @property
    @abstractmethod
    def beta_max(self) -> float:
        """The smallest beta whose optimum is the zero network."""

    @abstractmethod
    def train(
        self,
        beta: float,
        *,
        solver: str = "auto",
        tol: float = 1e-4,
        max_steps: int | None = None,
        max_time: float | None = None,
        start: WarmStart | None = None,
        callback: Callback | None = None,
        prove: bool = True,
    ) -> Fitted:
        """Train for one beta, from an earlier solution if given; without ``prove``, certificates may be weaker."""

    def path(self, betas: Sequence[float], **options: Any) -> list[Fitted]:
        """Train for every beta, largest first, each from the last; in the order in which betas were given."""
        fits: dict[int, Fitted] = {}
        for index in sorted(range(len(betas)), key=lambda i: -betas[i]):
            start = self._predict(list(fits.values())[-2:], float(betas[index]))
            fits[index] = self.train(float(betas[index]), start=start, **options)
        return [fits[i] for i in range(len(betas))]

    def _predict(self, last: list[Fitted], beta: float) -> WarmStart | None:
        """Where to start, from the last one or two fits of a path."""
        return last[-1].start if last else None


@dataclass(frozen=True, eq=False)
class FixedProgram(Program):
    """An architecture whose operator is known before training: linear, or gated with given gates."""

    problem: Problem
    architecture: Architecture

    @property
    def beta_max(self) -> float:
        return self.problem.beta_max

    def train(
        self,
        beta: float,
        *,
        tol: float = 1e-4,
        max_steps: int | None = None,
        max_time: float | None = None,
        start: WarmStart | None = None,
        prove: bool = True,
        **options: Any,
    ) -> Fitted:
        point, dual = (None, None) if start is None else self._warm(start)
        problem = self.problem.with_beta(beta)
        return Fitted(
            problem,
            self.architecture,
            solve_auto(problem, Limits(tol, max_steps, max_time), start=point, dual=dual, **options),
        )

    def _warm(self, start: WarmStart) -> tuple[Tensor | None, Tensor | None]:
        if tuple(start.point.shape) != self.problem.operator.block_shape:
            return None, None
        return start.point, start.dual if start.dual.shape == self.problem.datafit.targets.shape else None

    def _predict(self, last: list[Fitted], beta: float) -> WarmStart | None:
        """On a straight line in beta through the last two: for squared loss and norms that is nearly how paths run."""
        if len(last) < 2 or last[0].problem.beta <= last[1].problem.beta:
            return super()._predict(last, beta)
        old, new = last[0].start, last[1].start
        share = min((last[1].problem.beta - beta) / (last[0].problem.beta - last[1].problem.beta), 2.0)
        point = (new.point + share * (new.point - old.point)) * new.point.flatten(1).any(1)[:, None, None]
        return new._replace(point=point, dual=new.dual + share * (new.dual - old.dual))


class Trainer(Protocol):
    """Finds the neurons of networks on fixed samples."""

    def beta_max(self, problem: Any) -> float: ...

    @property
    def train(self) -> Callable[..., Training]: ...


@dataclass(frozen=True, eq=False)
class NeuronProgram(Program):
    """A network over all activation patterns: the neurons are found by training, and make an architecture."""

    problem: NeuronProblem
    architecture: Callable[[Neurons], Architecture]
    trainer: Trainer

    @property
    def beta_max(self) -> float:
        return self.trainer.beta_max(self.problem)

    def train(self, beta: float, *, start: WarmStart | None = None, **options: Any) -> Fitted:
        neurons = None if start is None else getattr(start.architecture, "neurons", None)
        if neurons is not None and neurons.shape[1] != self.problem.neuron_size:
            neurons = None
        done = self.trainer.train(self.problem.with_beta(beta), start=neurons, **options)
        return Fitted(done.problem, self.architecture(done.neurons), done.solution)
