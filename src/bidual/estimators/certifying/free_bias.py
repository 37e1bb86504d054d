"""Two-layer ReLU networks whose hidden biases are not decayed."""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor, nn

from bidual.architectures.modules import ReluNetwork
from bidual.estimators.certifying.given import Found, GivenNetwork, Objective
from bidual.estimators.certifying.objective import Price, bounded_objective
from bidual.estimators.certifying.two_layer import GivenTwoLayer
from bidual.io.foreign import from_module
from bidual.losses.datafit import Datafit
from bidual.numerics.rounding import length
from bidual.operators import NeuronOperator
from bidual.patterns import with_constant
from bidual.problems.problem import NeuronProblem, ReluProblem
from bidual.problems.solution import Solution
from bidual.training.relu.plan import ReluPlan

_WIDE, _NARROW = 256.0, 2.0  # the constant column in lengths of samples: for exact oracles, and for products of rows
_STEEP = 2.0**40  # the hidden bias of a neuron that stands for an output bias


@dataclass(frozen=True, eq=False)
class FreeBiasProblem(ReluProblem):
    r"""A problem below that of networks with free hidden biases (docs/certify.md, "Free hidden biases").

    The last column of X is a constant k, ``beta`` is ``decay`` / sqrt(1 + (R / k)^2) or less, for rows x of length R at
    most, and the intercept is free.

    Attributes:
        decay: the beta that networks are judged at.
    """

    decay: float = math.nan

    @property
    def plain(self) -> Float[Tensor, "n d"]:
        """The samples with a column of ones."""
        return with_constant(self.X[:, :-1])

    @classmethod
    def below(cls, samples: Float[Tensor, "n d"], datafit: Datafit, decay: float) -> Self:
        """For samples that end with a column of ones."""
        X = samples[:, :-1]
        reach = _reach(X)
        wide = _WIDE if ReluPlan(samples).exact else _NARROW
        k = wide * reach or 1.0
        beta = decay / math.sqrt(1 + (reach / k) ** 2) * (1 - 1e-15)  # six roundings
        return cls(torch.cat([X, torch.full_like(samples[:, :1], k)], 1), datafit, beta, decay=decay)


def _reach(X: Float[Tensor, "n d"]) -> float:
    """R, an upper bound of the lengths of the rows."""
    return max((length(row) for row in X), default=0.0)


class Neurons(NamedTuple):
    """(x u_j + b_j)_+ a_j, summed up, and a constant."""

    hidden: Float[Tensor, "m d"]
    bias: Float[Tensor, " m"]
    output: Float[Tensor, "c m"]
    constant: Float[Tensor, " c"]

    def normal(self, reach: float) -> "Neurons":
        """The same function on rows of length ``reach`` at most, by weights of the least cost.

        A neuron with b > R |u| is active on all of them, (x u + R |u|)_+ plus the constant b - R |u|; one with
        b <= -R |u| on none. Then |u| = |a|.
        """
        size = torch.linalg.vector_norm(self.hidden, dim=1)
        most = reach * size
        excess = (self.bias - most).clamp(min=0)
        price = torch.linalg.vector_norm(self.output, dim=0)
        live = (self.bias > -most) & (size > 0) & (price > 0)
        scale = (price[live] / size[live]).sqrt()
        return Neurons(
            self.hidden[live] * scale[:, None],
            torch.minimum(self.bias, most)[live] * scale,
            self.output[:, live] / scale,
            self.constant + self.output @ excess,
        )

    def with_constant_neuron(self) -> "Neurons":
        """A neuron (0 x + b)_+ a in the place of the constant: b is free and large, so that a is small."""
        return Neurons(
            torch.cat([self.hidden, self.hidden.new_zeros(1, self.hidden.shape[1])]),
            torch.cat([self.bias, self.bias.new_full((1,), _STEEP)]),
            torch.cat([self.output, self.constant[:, None] / _STEEP], 1),
            torch.zeros_like(self.constant),
        )

    def module(self) -> ReluNetwork:
        m = len(self.bias)
        network = ReluNetwork(self.hidden.shape[1], max(m, 1), len(self.constant))  # one neuron of zeros at least
        with torch.no_grad():
            network.hidden.weight[:m], network.hidden.bias[:m] = self.hidden, self.bias
            network.output.weight[:, :m], network.output.bias[:] = self.output, self.constant
        return network


@dataclass(frozen=True, eq=False)
class GivenFreeBias(GivenNetwork):
    """A two-layer network under decay of its weights, and of its output bias or not, but of no hidden bias.

    A neuron (0 x + b)_+ a costs as little as one wants, so that its rivals have a free output bias in any case.
    """

    inner: GivenTwoLayer

    @property
    def n_outputs(self) -> int:
        return self.inner.n_outputs

    @property
    def output_bias(self) -> Float[Tensor, " c"]:
        own = self.inner.output_bias
        return torch.zeros(self.n_outputs, dtype=torch.float64) if own is None else own

    @property
    def limits(self) -> str:
        """Those of the network with an output bias, which its rivals have in any case."""
        weights = replace(self.inner.weights, output_bias=self.output_bias)
        return replace(self.inner, weights=weights).limits

    @property
    def head(self) -> tuple[str, str] | None:
        return self.inner.head

    def samples(self, X: ArrayLike) -> Float[Tensor, "n d"]:
        return self.inner.samples(X)

    def problem(self, samples: Float[Tensor, "n d"], datafit: Datafit, beta: float) -> FreeBiasProblem:
        return FreeBiasProblem.below(samples, datafit, beta)

    def plan(self, problem: NeuronProblem, oracle: str, n_starts: int | str) -> ReluPlan:
        return self.inner.plan(problem, oracle, n_starts)

    def neurons(self, problem: NeuronProblem) -> Float[Tensor, "m d"]:
        assert isinstance(problem, FreeBiasProblem)
        neurons = self.inner.units.clone()
        neurons[:, -1] /= problem.X[0, -1]
        return neurons

    def objective(self, problem: NeuronProblem) -> Objective:
        assert isinstance(problem, FreeBiasProblem)
        weights, bias = self.inner.weights, self.output_bias
        P, error = self.inner.predictions(problem.plain)
        decayed = (bias,) if self.inner.decayed.output else ()
        price = Price.of_weight_decay(weights.hidden, weights.output, *decayed)
        return bounded_objective(problem.datafit, problem.decay, P, bias, error, price)

    def found(self, done: Solution) -> Found:
        """Of the least cost for its function on the samples."""
        operator = done.problem.operator
        assert isinstance(operator, NeuronOperator)
        X, U = operator.X, operator.neurons
        neurons = Neurons(U[:, :-1], X[0, -1] * U[:, -1], done.Z[:, 0].T, done.problem.predictions(done.Z)[1])
        neurons = neurons.normal(_reach(X[:, :-1]))
        has_constant = self.inner.output_bias is not None and not self.inner.decayed.output
        module = (neurons if has_constant else neurons.with_constant_neuron()).module()
        return Found(module, replace(self, inner=self.inner.with_weights(from_module(module))))

    def rival(self, module: nn.Module) -> Self:
        return replace(self, inner=self.inner.rival(module))
