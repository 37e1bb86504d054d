"""What an estimator trains: a convex program for any beta, warm-started along a path."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.architectures import Architecture
from bidual.architectures.modules import RebuildableModule
from bidual.losses.datafit import Datafit
from bidual.polar import Neurons
from bidual.polar.products.witness import Witness
from bidual.problems.certificate import SoundnessError
from bidual.problems.problem import NeuronProblem, Problem, ReluProblem
from bidual.problems.solution import Limits, Solution
from bidual.solvers.plan import solve_auto
from bidual.training.relu.fold_networks import FoldNetwork, FoldPaths
from bidual.training.relu.plan import NeuronPlan
from bidual.training.relu.start import NetworkStart
from bidual.types import Blocks, Matrix


class WarmStart(NamedTuple):
    """What is left of an earlier training to start from."""

    architecture: Architecture
    point: Blocks
    dual: Matrix
    witness: Witness | None = None

    @property
    def network(self) -> NetworkStart | None:
        """For programs over neurons; None where the architecture has gates instead."""
        neurons = getattr(self.architecture, "neurons", None)
        return None if neurons is None else NetworkStart(neurons, self.point, self.dual, self.witness)


@dataclass(frozen=True, eq=False)
class Fitted:
    """A solution with the architecture that its Z belongs to."""

    architecture: Architecture
    solution: Solution

    def module(self) -> RebuildableModule:
        """The ordinary network."""
        Z = self.solution.Z
        return self.architecture.decode(Z, self.solution.problem.predictions(Z)[1])

    def expected(self) -> "Expected":
        """Networks add up the same terms as the program, in another order; terms may cancel."""
        problem, Z = self.solution.problem, self.solution.Z
        predictions, offset = problem.predictions(Z)
        size = float(predictions.abs().max() + offset.abs().max())
        return Expected(predictions + offset, 1e-6 * size + 64 * problem.rounding_of_forward(Z) + 1e-300)

    @property
    def start(self) -> WarmStart:
        found = self.solution.certificate
        return WarmStart(self.architecture, found.point, found.dual_point, found.witness)

    @property
    def loss(self) -> float:
        """The data term F, the primal without the price of the weights."""
        problem = self.solution.problem
        return problem.datafit.value(problem.operator.forward(self.solution.Z))


@dataclass(frozen=True, eq=False)
class Expected:
    """What a network must predict, and how far rounding can lead away from it."""

    predictions: Matrix
    tolerance: float

    def check(self, outputs: Matrix) -> None:
        """Raise for a network that is not the one of the certificate, by a bug in decoding; rounding is allowed for."""
        error = float((outputs.reshape(self.predictions.shape) - self.predictions.to(outputs.device)).abs().max())
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
    def train(self, beta: float, limits: Limits, *, start: WarmStart | None = None, **options: Any) -> Fitted:
        """Train for one beta, from an earlier solution if given.

        Options are ``solver``, ``callback``, and ``prove``, without which certificates may be weaker.
        """

    def path(self, betas: Sequence[float], limits: Limits, **options: Any) -> list[Fitted]:
        """Train for every beta, largest first, each from the last; in the order in which betas were given."""
        fits: dict[int, Fitted] = {}
        for index in sorted(range(len(betas)), key=lambda i: -betas[i]):
            start = self._predict(list(fits.values())[-2:], float(betas[index]))
            fits[index] = self.train(float(betas[index]), limits, start=start, **options)
        return [fits[i] for i in range(len(betas))]

    @property
    def trains_folds(self) -> bool:
        """Whether the folds of a cross-validation can be trained together, by :meth:`NeuronProgram.fold_modules`."""
        return False

    def _predict(self, last: list[Fitted], beta: float) -> WarmStart | None:
        """Where to start, from the last one or two fits of a path."""
        return last[-1].start if last else None


@dataclass(frozen=True, eq=False)
class FixedProgram(Program):
    """An architecture whose operator is known before training: linear, or gated with given gates."""

    problem: Problem
    architecture: Architecture

    @classmethod
    def of(cls, architecture: Architecture, X: Tensor, datafit: Datafit) -> Self:
        """The program of an architecture on samples."""
        operator = architecture.lift(X, datafit.targets.shape[1])
        return cls(Problem(operator, datafit, architecture.gauge(), 1.0), architecture)

    @property
    def beta_max(self) -> float:
        return self.problem.beta_max

    def train(
        self, beta: float, limits: Limits, *, start: WarmStart | None = None, prove: bool = True, **options: Any
    ) -> Fitted:
        point, dual = None, None
        if start is not None and tuple(start.point.shape) == self.problem.operator.block_shape:
            point = start.point
            dual = start.dual if start.dual.shape == self.problem.datafit.targets.shape else None
        problem = self.problem.with_beta(beta)
        return Fitted(self.architecture, solve_auto(problem, limits, start=point, dual=dual, **options))

    def _predict(self, last: list[Fitted], beta: float) -> WarmStart | None:
        """On a straight line in beta through the last two: for squared loss and norms that is nearly how paths run."""
        betas = [fit.solution.problem.beta for fit in last]
        if len(last) < 2 or betas[0] <= betas[1]:
            return super()._predict(last, beta)
        old, new = last[0].start, last[1].start
        share = min((betas[1] - beta) / (betas[0] - betas[1]), 2.0)
        point = (new.point + share * (new.point - old.point)) * new.point.flatten(1).any(1)[:, None, None]
        return new._replace(point=point, dual=new.dual + share * (new.dual - old.dual))


@dataclass(frozen=True, eq=False)
class NeuronProgram(Program):
    """A network over all activation patterns: the neurons are found by training, and make an architecture."""

    problem: NeuronProblem
    architecture: Callable[[Neurons], Architecture]
    plan: NeuronPlan

    @property
    def beta_max(self) -> float:
        return self.plan.beta_max(self.problem)

    def train(self, beta: float, limits: Limits, *, start: WarmStart | None = None, **options: Any) -> Fitted:
        given = None if start is None else start.network
        done = self.plan.train(self.problem.with_beta(beta), limits, start=given, **options)
        return Fitted(self.architecture(done.neurons), done)

    @property
    def trains_folds(self) -> bool:
        return isinstance(self.problem, ReluProblem) and self.problem.datafit.loss.smooth

    def fold_modules(
        self, shares: Float[Tensor, "k n"], betas: Sequence[float], gain: float, max_time: float | None
    ) -> Iterator[list[RebuildableModule]]:
        """Networks of all folds, not certified, for one of the falling betas after another; see :class:`FoldPaths`."""
        assert isinstance(self.problem, ReluProblem)
        each = shares.repeat_interleave(len(self.problem.datafit.targets) // shares.shape[1], 1)  # targets of a sample
        paths = FoldPaths(self.problem.to(torch.float64), each, self.plan.seed, gain, max_time)
        for networks in paths.networks(betas):
            yield [self._module(network) for network in networks]

    def _module(self, network: FoldNetwork) -> RebuildableModule:
        shift = self.problem.datafit.shift
        assert shift is not None
        offset = network.offset + shift
        return self.architecture(network.neurons).decode(network.Z, offset)
