"""ReLU networks whose hidden units see pieces of a sample: what convolutions and attention have in common."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor

from bidual.architectures.on_patches import ReluOnPatches
from bidual.estimators.certifying.decay import HIDDEN_BIASES, DecayedBiases, Penalty
from bidual.estimators.certifying.given import Found, GivenNetwork, Objective
from bidual.estimators.certifying.objective import Price, bounded_objective
from bidual.estimators.certifying.targets import as_numbers
from bidual.estimators.inputs import as_plain_array, refuse_sparse
from bidual.estimators.parameters import check_memory
from bidual.io.foreign.weights import check_finite
from bidual.losses.datafit import Datafit
from bidual.losses.decayed_bias import with_decayed_bias
from bidual.numerics.rounding import TINY, gamma, largest_sum, length
from bidual.operators import NeuronOperator
from bidual.operators.patches import Patches
from bidual.problems.problem import NeuronProblem, ReluProblem
from bidual.problems.solution import Solution
from bidual.runtime.numerical_errors import check_magnitude
from bidual.training.relu.plan import ReluPlan


@dataclass(frozen=True, eq=False, kw_only=True)
class GivenOnPatches(GivenNetwork):
    """prediction_i = sum_j V_j L_i[(x_r u_j)_+] + b (:class:`bidual.operators.patches.Patches`).

    Attributes:
        units: the u_j, a hidden bias last.
        readouts: the V_j^T, one row per readout.
        offset: b, None where the network and its rivals have none.
        sample_shape: of one sample, where it is known: flat samples are taken then too.
    """

    units: Float[Tensor, "m h"]
    readouts: Float[Tensor, "m a c"]
    offset: Float[Tensor, " c"] | None
    sample_shape: tuple[int, ...] | None = None
    decayed: DecayedBiases = HIDDEN_BIASES

    what: ClassVar[str]  # samples are, in the plural

    @property
    @abstractmethod
    def has_hidden_bias(self) -> bool: ...

    def decaying(self, penalty: Penalty) -> "GivenOnPatches":
        if self.has_hidden_bias and not penalty.decayed.hidden:
            raise ValueError('a hidden bias that is not decayed is not supported; use decayed_bias="hidden" or True.')
        return replace(self, decayed=penalty.decayed)

    def __post_init__(self) -> None:
        check_finite(weights=self.units, readouts=self.readouts, bias=self.offset)

    @property
    @abstractmethod
    def axes(self) -> str:
        """Of one sample."""

    @property
    def n_outputs(self) -> int:
        return self.readouts.shape[2]

    @property
    def output_bias(self) -> Float[Tensor, " c"] | None:
        return self.offset

    @abstractmethod
    def patches(self, samples: Tensor) -> Patches:
        """The rows that units see, and their readout."""

    @abstractmethod
    def architecture(self, shape: tuple[int, ...], neurons: Float[Tensor, "m h"]) -> ReluOnPatches:
        """That of its rivals, for samples of this shape."""

    @abstractmethod
    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Refuse samples of a shape that is not for this network."""

    def samples(self, X: ArrayLike) -> Float[Tensor, "n ..."]:
        plain = as_plain_array(X)
        refuse_sparse(plain, self.what)
        array = as_numbers("X", plain, np.float64)
        if self.sample_shape is not None and array.ndim == 2 and array.shape[1] == prod(self.sample_shape):
            array = array.reshape(-1, *self.sample_shape)
        if array.ndim < 2 or not len(array):
            raise ValueError(f"X must be {self.what} of shape (n, {self.axes}), got {array.shape}.")
        self.check_shape(array.shape[1:])
        if not np.isfinite(array).all():
            raise ValueError(f"X must be finite, got NaN or infinity; drop or impute those {self.what}.")
        check_magnitude("X", array)
        return torch.tensor(array)

    def problem(self, samples: Float[Tensor, "n ..."], datafit: Datafit, beta: float) -> ReluProblem:
        patches = self.patches(samples)
        need = 8 * patches.n_rows * (6 * patches.width + 3 * patches.readouts * self.n_outputs)
        what = f"{len(samples)} {self.what} with {patches.n_rows} rows and {self.n_outputs} outputs"
        check_memory(need, samples.device, what, "certify on fewer samples, which is valid for them")
        if self._decays_offset:
            return ReluProblem.on(patches.with_silent_sample(), with_decayed_bias(datafit, beta), beta)
        return ReluProblem.on(patches, datafit, beta)

    @property
    def _decays_offset(self) -> bool:
        return self.offset is not None and self.decayed.output

    def plan(self, problem: NeuronProblem, oracle: str, n_starts: int | str) -> ReluPlan:
        assert isinstance(problem, ReluProblem)
        return ReluPlan(problem.X, oracle, n_starts, readout=problem.readout)

    def neurons(self, problem: NeuronProblem) -> Float[Tensor, "m h"]:
        return self.units

    def objective(self, problem: NeuronProblem) -> Objective:
        r"""The network's own objective.

        | L[|x_r| |u_j|] |V_j| |_F is at most |u_j| |V_j|_F times the ``magnitude`` of the patches, and a term of a
        prediction goes through ``depth`` operations: predictions are off by gamma(depth) times the sum of these.
        """
        assert isinstance(problem, ReluProblem)
        assert problem.readout is not None
        U, V = self.units, self.readouts
        self._check_cut(problem.readout)
        operator = NeuronOperator(problem.X, U, self.n_outputs, problem.readout)
        P = operator.features @ V.flatten(0, 1)
        lengths = torch.linalg.vector_norm(U, dim=1) * torch.linalg.vector_norm(V.flatten(1), dim=1)
        sizes = largest_sum(lengths) * (1 + gamma(U.shape[1] + V[0].numel() + 8)) * problem.readout.magnitude
        underflow = TINY * problem.X.numel() * V.numel() * (1 + length(V)) * (1 + problem.readout.magnitude)
        error = gamma(operator.depth.forward + 8) * sizes + underflow
        return bounded_objective(problem.datafit, problem.beta, P, self.offset, error, Price.of_weight_decay(U, V))

    def _check_cut(self, readout: Patches) -> None:
        """That a rival's rows are those of the problem."""
        silent = int(self._decays_offset)
        own = self.patches(readout.X[: len(readout.X) - silent])
        if not (own.with_silent_sample() if silent else own).is_same(readout):
            raise ValueError(
                f"the network cuts or pools {self.what} in another way than the one that was certified; give one like "
                "that."
            )

    def found(self, done: Solution) -> Found:
        operator = done.problem.operator
        assert isinstance(operator, NeuronOperator)
        assert operator.readout is not None
        shape = tuple(operator.readout.X.shape[1:])
        module = self.architecture(shape, done.neurons).decode(done.Z, done.problem.predictions(done.Z)[1])
        return Found(module, self.rival(module))
