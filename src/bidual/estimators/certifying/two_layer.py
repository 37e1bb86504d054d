"""Two-layer ReLU networks on rows of numbers, from anywhere."""

from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from torch import Tensor, nn

from bidual.architectures import ReluMLP
from bidual.architectures.modules import ReluNetwork
from bidual.estimators.certifying.decay import HIDDEN_BIASES, DecayedBiases, Penalty
from bidual.estimators.certifying.given import Found, GivenNetwork, Objective, lacking
from bidual.estimators.certifying.objective import Price, bounded_objective
from bidual.estimators.certifying.targets import as_numbers
from bidual.estimators.inputs import as_plain_array, full_samples
from bidual.io.foreign import TwoLayerWeights, from_module
from bidual.io.foreign.modules import check_outputs
from bidual.losses.datafit import Datafit
from bidual.losses.decayed_bias import with_decayed_bias
from bidual.numerics.rounding import gamma, length
from bidual.numerics.sparse import from_scipy
from bidual.patterns import with_constant
from bidual.problems.problem import NeuronProblem, ReluProblem
from bidual.problems.solution import Solution
from bidual.runtime.numerical_errors import check_magnitude
from bidual.training.relu.plan import ReluPlan


@dataclass(frozen=True, eq=False)
class GivenTwoLayer(GivenNetwork):
    """x -> output (hidden x + hidden_bias)_+ + output_bias. A layer without bias competes with networks without it.

    Attributes:
        module: what the weights were read from, if it is one of torch: it may take samples of more axes than two.
    """

    weights: TwoLayerWeights
    module: nn.Module | None = field(default=None, kw_only=True)
    decayed: DecayedBiases = field(default=HIDDEN_BIASES, kw_only=True)

    @property
    def n_outputs(self) -> int:
        return self.weights.n_outputs

    @property
    def output_bias(self) -> Float[Tensor, " c"] | None:
        return self.weights.output_bias

    @property
    def limits(self) -> str:
        return lacking(self.weights.hidden_bias is None, self.weights.output_bias is None)

    def decaying(self, penalty: Penalty) -> Self:
        return replace(self, decayed=penalty.decayed)

    @property
    def has_free_bias(self) -> bool:
        """Whether hidden biases are not decayed, which is for :class:`GivenFreeBias` to judge."""
        return self.weights.hidden_bias is not None and not self.decayed.hidden

    def samples(self, X: ArrayLike) -> Float[Tensor, "n d"]:
        """With a column of ones where neurons have a bias."""
        return row_samples(self._flat(X), self.weights.n_features, self.weights.hidden_bias is not None)

    def _flat(self, X: ArrayLike) -> ArrayLike:
        """Samples of several axes as rows, where the module answers to them as to these rows."""
        array = as_plain_array(X)
        if self.module is None or issparse(array) or np.ndim(array) < 3 or not len(array):
            return X
        whole = torch.tensor(as_numbers("X", array, np.float64))
        rows = whole.flatten(1)
        if rows.shape[1] != self.weights.n_features:
            return X
        check_outputs(self.module, whole, self.weights.forward(rows), self.weights.magnitude(rows))
        return rows.numpy()

    def problem(self, samples: Float[Tensor, "n d"], datafit: Datafit, beta: float) -> ReluProblem:
        if not (datafit.intercept and self.decayed.output):
            return ReluProblem(samples, datafit, beta)
        silent = torch.cat([samples, torch.zeros_like(samples[:1])])
        return ReluProblem(silent, with_decayed_bias(datafit, beta), beta)

    def plan(self, problem: NeuronProblem, oracle: str, n_starts: int | str) -> ReluPlan:
        return ReluPlan(problem.X, oracle, n_starts)

    def neurons(self, problem: NeuronProblem) -> Float[Tensor, "m d"]:
        return self.units

    @property
    def units(self) -> Float[Tensor, "m d"]:
        """The hidden weights, with the bias as one column more."""
        hidden, bias = self.weights.hidden, self.weights.hidden_bias
        return hidden if bias is None else torch.cat([hidden, bias[:, None]], 1)

    def objective(self, problem: NeuronProblem) -> Objective:
        P, error = self.predictions(problem.X)
        price = Price.of_weight_decay(self.units, self.weights.output)
        return bounded_objective(problem.datafit, problem.beta, P, self.output_bias, error, price)

    def predictions(self, X: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n c"], float]:
        r"""Without the output bias, and how far they are off in the Frobenius norm.

        A term x u w of a prediction goes through d products and sums, m of them in the second layer, and one for the
        bias: predictions are off by gamma(d + m + 8) times |X| |U|^T |W|^T, entry by entry.
        """
        U, W = self.units, self.weights.output
        sizes = (X.abs() @ U.abs().T) @ W.abs().T
        return (X @ U.T).clamp(min=0) @ W.T, gamma(sum(U.shape) + 8) * length(sizes)

    def found(self, done: Solution) -> Found:
        given = self.weights
        module = ReluMLP(done.neurons, given.hidden_bias is not None).decode(
            done.Z, done.problem.predictions(done.Z)[1]
        )
        assert isinstance(module, ReluNetwork)
        hidden_bias = None if given.hidden_bias is None else module.hidden.bias
        output_bias = None if given.output_bias is None else module.output.bias
        weights = TwoLayerWeights.of(module.hidden.weight, module.output.weight, hidden_bias, output_bias)
        return Found(module, replace(self, weights=weights))

    def rival(self, module: nn.Module) -> Self:
        return self.with_weights(from_module(module))

    def with_weights(self, weights: TwoLayerWeights) -> Self:
        """The same network with other weights; where it has no bias they must have none, and zero where it has one."""
        pairs = ((self.weights.hidden_bias, weights.hidden_bias), (self.weights.output_bias, weights.output_bias))
        if any(mine is None and other is not None and bool(other.any()) for mine, other in pairs):
            raise ValueError("the module has a bias that the network which was certified has not; give one like it.")
        sizes = (weights.n_neurons, weights.n_outputs)
        biases = (
            None if mine is None else torch.zeros(size, dtype=torch.float64) if other is None else other
            for (mine, other), size in zip(pairs, sizes, strict=True)
        )
        return replace(self, weights=TwoLayerWeights(weights.hidden, weights.output, *biases))


def row_samples(X: ArrayLike, width: int, constant: bool) -> Float[Tensor, "n d"]:
    """Samples of so many numbers in float64, with a column of ones if there is a constant."""
    plain = as_plain_array(X)
    if issparse(plain):
        full = full_samples(from_scipy(plain), "certify on fewer samples, which is valid for them")
        plain = full.numpy()
    array = as_numbers("X", plain, np.float64)
    if array.ndim != 2 or not len(array) or array.shape[1] != width:
        raise ValueError(f"X must have shape (n, {width}) for this network, got {array.shape}.")
    if not np.isfinite(array).all():
        raise ValueError("X must be finite, got NaN or infinity; drop or impute those samples.")
    check_magnitude("X", array)
    samples = torch.tensor(array)
    return with_constant(samples) if constant else samples
