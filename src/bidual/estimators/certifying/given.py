"""A trained network of any family that can be certified: what it costs, and which problem its rivals solve."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor, nn

from bidual.architectures.modules import RebuildableModule
from bidual.estimators.certifying.decay import Penalty
from bidual.losses.datafit import Datafit
from bidual.polar import Neurons
from bidual.problems.problem import NeuronProblem
from bidual.problems.solution import Solution
from bidual.training.relu.plan import NeuronPlan
from bidual.types import Matrix


class Objective(NamedTuple):
    """Bounds of a network's objective in real arithmetic, and the gradient of its data term."""

    least: float
    most: float
    gradient: Matrix


class Found(NamedTuple):
    """The network of a solution: as a module, and with the biases that the given network has."""

    module: RebuildableModule
    network: "GivenNetwork"


class GivenNetwork(ABC):
    """A trained network; its rivals are all networks of its family, of any width. A new family is one subclass."""

    @property
    @abstractmethod
    def n_outputs(self) -> int: ...

    @property
    @abstractmethod
    def output_bias(self) -> Float[Tensor, " c"] | None:
        """None where it has none: then its rivals have none either."""

    @property
    def limits(self) -> str:
        """What its rivals share with it besides the family, in words that may follow "of any width"."""
        return lacking(output=self.output_bias is None)

    @property
    def head(self) -> tuple[str, str] | None:
        """The names of its layers in a larger module; None where it is the whole of it."""
        return None

    def decaying(self, penalty: Penalty) -> "GivenNetwork":
        """This network under that penalty, or a refusal; by default under decay of all but the output bias."""
        if (self.output_bias is not None and penalty.decayed.output) or not penalty.decayed.hidden:
            raise ValueError(
                "networks of this kind cannot have a decayed output bias, or a free hidden one; use "
                'decayed_bias="hidden" for the objective without the decay of the output bias.'
            )
        return self

    @abstractmethod
    def samples(self, X: ArrayLike) -> Tensor:
        """X in float64, or a refusal of samples that are not for this network."""

    @abstractmethod
    def problem(self, samples: Tensor, datafit: Datafit, beta: float) -> NeuronProblem:
        """The training problem over all networks of its family."""

    @abstractmethod
    def plan(self, problem: NeuronProblem, oracle: str, n_starts: int | str) -> NeuronPlan:
        """How that problem is solved."""

    @abstractmethod
    def neurons(self, problem: NeuronProblem) -> Neurons:
        """Its neurons, of any length, as the problem has them."""

    @abstractmethod
    def objective(self, problem: NeuronProblem) -> Objective:
        """Of the network as it is, at its own output bias and scaling."""

    @abstractmethod
    def found(self, done: Solution) -> Found:
        """The network of a solution of the problem, with the biases that this one has."""

    @abstractmethod
    def rival(self, module: nn.Module) -> "GivenNetwork":
        """Another network of the same kind, with the same biases, given as a module."""


@dataclass(frozen=True, eq=False)
class Question:
    """The training problem that a network is judged by, and how it was solved."""

    given: GivenNetwork
    problem: NeuronProblem
    done: Solution | None = None

    def objective(self, module: nn.Module) -> Objective:
        """Of another network of the kind, on the same samples."""
        return self.given.rival(module).objective(self.problem)


def lacking(hidden: bool = False, output: bool = False) -> str:
    """The biases that networks do not have, in words."""
    if hidden and output:
        return " without biases"
    return " without hidden biases" if hidden else " without an output bias" if output else ""
