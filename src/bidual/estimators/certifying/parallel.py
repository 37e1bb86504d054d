"""Parallel three-layer networks under the path norm."""

from dataclasses import dataclass
from math import prod, sqrt
from typing import Any, Self

import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor, nn

from bidual.architectures import ParallelMLP
from bidual.architectures.modules import ParallelNetwork, RebuildableModule
from bidual.architectures.parallel import squared_paths
from bidual.estimators.base import ConvexEstimator
from bidual.estimators.certifying.decay import Penalty
from bidual.estimators.certifying.given import Found, GivenNetwork, Objective, lacking
from bidual.estimators.certifying.objective import Price, bounded_objective
from bidual.estimators.certifying.two_layer import row_samples
from bidual.io.foreign.modules import check_outputs
from bidual.io.foreign.parallel import ParallelWeights, from_parallel
from bidual.losses.datafit import Datafit
from bidual.numerics.rounding import TINY, UNIT, gamma, largest_sum, length
from bidual.problems.parallel import ParallelProblem
from bidual.problems.problem import NeuronProblem
from bidual.problems.solution import Solution
from bidual.training.parallel.plan import ParallelPlan


@dataclass(frozen=True, eq=False)
class GivenParallel(GivenNetwork):
    r"""sum_k ((X W_1k)_+ W_2k)_+ W_3k + b, priced sum_k sqrt(sum over paths of the squared products) (PR eq. 1, 2.2).

    Its rivals have any number of sub-networks of the same widths m_1, m_2. By Cauchy and Schwarz a sub-network costs at
    least 1 / sqrt(m_2) times what its m_2 second-layer units cost as sub-networks of their own, and no more where these
    are copies of one: the optimum is that of m_2 = 1 at beta / sqrt(m_2).
    """

    weights: ParallelWeights
    module: nn.Module | None = None

    @classmethod
    def read(cls, network: object) -> Self | None:
        """A parallel network of three layers, or that of a fitted estimator; None for anything else."""
        if isinstance(network, ConvexEstimator) and isinstance(network.module_, ParallelNetwork):
            return cls(_weights(network.module_).with_bias(network.fit_intercept))
        if not isinstance(network, nn.Module) or (
            isinstance(network, RebuildableModule) and not isinstance(network, ParallelNetwork)
        ):
            return None
        weights = from_parallel(network)
        if weights is None:
            return None
        if isinstance(network, ParallelNetwork):  # it always has a bias, zero where it may not use one
            return cls(weights.with_bias(bool(network.bias.any())))
        return cls(weights, network)

    def decaying(self, penalty: Penalty) -> GivenNetwork:
        if penalty.weight_decay is not None:
            raise ValueError(
                "parallel networks are judged under the path norm, which no weight_decay of torch is the factor of; "
                "give beta, the factor of the path norm beside a sum of losses."
            )
        return super().decaying(penalty)

    @property
    def n_outputs(self) -> int:
        return self.weights.third.shape[2]

    @property
    def output_bias(self) -> Float[Tensor, " c"] | None:
        return self.weights.bias

    @property
    def limits(self) -> str:
        return f" of these widths{lacking(not self.weights.constant, self.weights.bias is None)}"

    @property
    def widths(self) -> tuple[int, int]:
        """(m_1, m_2)."""
        return self.weights.second.shape[1], self.weights.second.shape[2]

    def samples(self, X: ArrayLike) -> Float[Tensor, "n d"]:
        """With a column of ones where first-layer units have a bias."""
        constant = self.weights.constant
        rows = row_samples(X, self.weights.first.shape[1] - constant, constant)
        self._check(rows)
        return rows

    def _check(self, rows: Float[Tensor, "n d"]) -> None:
        """That the module computes nothing else than the sum of its sub-networks."""
        if self.module is None:
            return
        b = rows.new_zeros(self.n_outputs) if self.output_bias is None else self.output_bias
        expected, size = self.weights.forward(rows) + b, self.weights.magnitude(rows) + b.abs()
        seen = rows[:, : rows.shape[1] - self.weights.constant]
        check_outputs(self.module, seen, expected, size, "a parallel ReLU network", "the sum of its sub-networks")

    def problem(self, samples: Float[Tensor, "n d"], datafit: Datafit, beta: float) -> ParallelProblem:
        """With m_2 = 1 at beta / sqrt(m_2), rounded down."""
        first, second = self.widths
        level = beta if second == 1 else beta / sqrt(second) * (1 - 4 * UNIT)
        return ParallelProblem(samples, datafit, level, first)

    def plan(self, problem: NeuronProblem, oracle: str, n_starts: int | str) -> ParallelPlan:
        return ParallelPlan(problem.X, self.widths[0], oracle, n_starts)

    def neurons(self, problem: NeuronProblem) -> Float[Tensor, "q s"]:
        """Every second-layer unit as a sub-network: the columns of W_1 times |w_2|, by the sign of w_2."""
        W, A = self.weights.first, self.weights.second
        units = W.mT[:, None] * A.mT[..., None].abs()  # (k, m_2, m_1, d)
        positive = (A.mT > 0)[..., None]
        return torch.stack([units * positive, units * ~positive], 2).flatten(2).flatten(0, 1)

    def objective(self, problem: NeuronProblem) -> Objective:
        r"""The network's own objective.

        A ReLU does not magnify errors, so that a prediction is off by gamma of the number of operations on the way of a
        term times the product of absolute values.
        """
        weights, m = self.weights, self.widths[1]
        K, d, first = weights.first.shape
        error = gamma(d + first + K * m + 16) * length(weights.magnitude(problem.X))
        beta = problem.beta if m == 1 else problem.beta * sqrt(m) * (1 + 16 * UNIT)
        return bounded_objective(
            problem.datafit, beta, weights.forward(problem.X), self.output_bias, error, path_norm(weights)
        )

    def found(self, done: Solution) -> Found:
        """With m_2 copies of every second-layer unit, which cost the least there."""
        family = ParallelMLP(done.neurons, self.widths[0], self.weights.constant)
        module: Any = family.decode(done.Z, done.problem.predictions(done.Z)[1])
        module = module if self.widths[1] == 1 else _with_copies(module, self.widths[1])
        return Found(module, self.rival(module))

    def rival(self, module: nn.Module) -> Self:
        weights = _weights(module)
        if weights.constant != self.weights.constant or weights.sizes != self.weights.sizes:
            raise ValueError(
                f"the module's sub-networks have sizes {weights.sizes}, and those that were certified "
                f"{self.weights.sizes}; give one like it."
            )
        return type(self)(weights.with_bias(self.output_bias is not None))


def path_norm(weights: ParallelWeights) -> Price:
    """sum_k of the root of the sum of squared paths (PR section 2.2).

    Weights are scaled first, so that no square leaves the range of numbers; what is lost below it is paid for.
    """
    scales = torch.stack([layer.abs().amax((1, 2)) for layer in weights.layers]).sort(0).values
    unit = [layer / layer.abs().amax((1, 2), keepdim=True).clamp(min=TINY) for layer in weights.layers]
    costs = scales[0] * scales[2] * scales[1]  # the least by the largest, so that nothing is lost on the way
    roots = squared_paths(unit).sum(1).sqrt()
    lost = sqrt(8 * TINY * prod(weights.sizes))
    most = largest_sum(costs * (roots + lost)) * (1 + gamma(sum(weights.sizes) + 32)) + 8 * len(roots) * TINY
    nothing = not bool(squared_paths([(layer != 0).double() for layer in weights.layers]).any())
    return Price(float((costs * roots).sum()), most, nothing)


def _with_copies(module: ParallelNetwork, count: int) -> ParallelNetwork:
    """Every second-layer unit ``count`` times, with as small a share of its output weights."""
    sizes = module.sizes
    wide = ParallelNetwork(**(sizes | {"widths": [sizes["widths"][0], count]}))
    first, second, third = module.layers
    layers = first, second.repeat(1, 1, count), third.repeat(1, count, 1) / count
    with torch.no_grad():
        for layer, weight in zip(wide.layers, layers, strict=True):
            layer.copy_(weight)
        wide.bias.copy_(module.bias)
    return wide


def _weights(module: nn.Module) -> ParallelWeights:
    weights = from_parallel(module)
    if weights is None:
        raise ValueError(f"expected a parallel network as was certified, got a {type(module).__name__}.")
    return weights
