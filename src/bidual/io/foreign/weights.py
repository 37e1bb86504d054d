"""The weights of a two-layer ReLU network from anywhere, and targets for it: its outputs say how labels are coded."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

Targets = NDArray[np.float64]
Numbers = Tensor | NDArray[np.generic] | Sequence[object]


@dataclass(frozen=True, eq=False)
class TwoLayerWeights:
    """x -> output (hidden x + hidden_bias)_+ + output_bias, on the CPU in float64; a bias that is not there is None.

    ``hidden`` has one row per neuron and ``output`` one row per output.
    """

    hidden: Float[Tensor, "m d"]
    output: Float[Tensor, "c m"]
    hidden_bias: Float[Tensor, " m"] | None = None
    output_bias: Float[Tensor, " c"] | None = None

    def __post_init__(self) -> None:
        tensors = {name: getattr(self, name) for name in ("hidden", "hidden_bias", "output", "output_bias")}
        for name, tensor in tensors.items():
            if tensor is not None and tensor.dtype != torch.float64:
                raise ValueError(f"{name} must be float64, got {tensor.dtype}; use TwoLayerWeights.of to convert.")
        check_finite(**tensors)
        for name, matrix in (("hidden", self.hidden), ("output", self.output)):
            if matrix.ndim != 2 or 0 in matrix.shape:
                shape = tuple(matrix.shape)
                raise ValueError(f"{name} must be a matrix with at least one row and column, got {shape}.")
        if self.output.shape[1] != self.hidden.shape[0]:
            raise ValueError(
                f"the hidden layer has {self.hidden.shape[0]} neurons, but the output layer takes "
                f"{self.output.shape[1]}; both must be the same number."
            )
        biases = ("hidden_bias", self.hidden_bias, self.n_neurons), ("output_bias", self.output_bias, self.n_outputs)
        for name, bias, length in biases:
            if bias is not None and tuple(bias.shape) != (length,):
                raise ValueError(f"{name} must have shape ({length},), as its layer has, got {tuple(bias.shape)}.")

    @classmethod
    def of(
        cls, hidden: Numbers, output: Numbers, hidden_bias: Numbers | None = None, output_bias: Numbers | None = None
    ) -> Self:
        """Copies in float64 of arrays or tensors of any floating type, from any device."""
        return cls(*(None if value is None else _copy(value) for value in (hidden, output, hidden_bias, output_bias)))  # type: ignore[arg-type]

    @property
    def n_features(self) -> int:
        return self.hidden.shape[1]

    @property
    def n_neurons(self) -> int:
        return self.hidden.shape[0]

    @property
    def n_outputs(self) -> int:
        return self.output.shape[0]

    def forward(self, X: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
        """The network's raw outputs, in float64."""
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise ValueError(f"X must have shape (n, {self.n_features}), got {tuple(X.shape)}.")
        linear = torch.nn.functional.linear
        neurons = linear(X.to(torch.float64), self.hidden, self.hidden_bias).relu()
        return linear(neurons, self.output, self.output_bias)

    def magnitude(self, X: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
        """How large the terms are that an output is the sum of."""
        parts = (self.hidden, self.output, self.hidden_bias, self.output_bias)
        return type(self)(*(None if part is None else part.abs() for part in parts)).forward(X.abs())  # type: ignore[arg-type]


def check_finite(**tensors: Tensor | None) -> None:
    """Refuse weights that are no numbers, by name."""
    for name, tensor in tensors.items():
        if tensor is not None and not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{name} holds NaN or infinity; the network diverged in training, train it again.")


def _copy(value: Numbers) -> Tensor:
    tensor = value.detach() if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value))
    if not tensor.is_floating_point():
        raise ValueError(f"weights must be floating point numbers, got {tensor.dtype}; convert them to float64 first.")
    return tensor.to("cpu", torch.float64, copy=True).contiguous()


def class_codes(
    labels: ArrayLike, n_outputs: int, classes: ArrayLike | None = None
) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The classes in the order of the outputs, and the place of every label among them, for :meth:`Loss.encode`.

    One output is for two classes, the first in sorted order and the second.

    Args:
        labels: one per sample.
        n_outputs: how many outputs the network has.
        classes: in the order of the outputs, where it is known; otherwise whole numbers from 0 to c - 1 are the
            numbers of outputs, and other labels stand in sorted order.
    """
    y = np.asarray(labels)
    if y.ndim != 1:
        raise ValueError(f"labels must be one per sample, got shape {y.shape}.")
    known = _classes(y, n_outputs) if classes is None else np.asarray(classes)
    if len(known) != max(n_outputs, 2):
        raise ValueError(
            f"the labels have {len(known)} classes, but a network with {n_outputs} outputs is for "
            f"{max(n_outputs, 2)}; give the data it was trained on, or use regression."
        )
    place = {label: index for index, label in enumerate(known.tolist())}
    codes = np.array([place.get(label, -1) for label in y.tolist()], dtype=np.intp)
    if (codes < 0).any():
        raise ValueError(f"the label {y[codes < 0].tolist()[0]!r} is none of the classes {known.tolist()}.")
    return known, codes


def number_targets(values: ArrayLike, n_outputs: int) -> Targets:
    """Regression targets as the matrix Y (n, c)."""
    Y = np.asarray(values, dtype=np.float64)
    if not Y.size:
        raise ValueError(f"y must have one row per sample, got shape {Y.shape}; give at least one sample.")
    if not Y.ndim:
        raise ValueError(f"y must have one row per sample, got {values!r}; give an array of shape (n,) or (n, c).")
    Y = Y.reshape(len(Y), -1)
    if Y.shape[1] != n_outputs:
        raise ValueError(f"the network has {n_outputs} outputs, but there are {Y.shape[1]} targets per sample.")
    return Y


def _classes(y: NDArray[Any], n_outputs: int) -> NDArray[Any]:
    """A file may lack a class, but whole numbers still say which output is theirs."""
    found = np.unique(y)
    if n_outputs > 1 and found.dtype.kind in "iu" and found[0] >= 0 and found[-1] < n_outputs:
        return np.arange(n_outputs)
    return found
