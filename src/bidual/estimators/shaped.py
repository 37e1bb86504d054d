"""Samples that are not rows of numbers: images and sequences."""

from abc import abstractmethod
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from bidual.estimators.inputs import as_plain_array, refuse_sparse
from bidual.estimators.mlp import ConvexNetwork
from bidual.estimators.parameters import Check, is_list, is_whole, must
from bidual.losses.datafit import Datafit
from bidual.operators.patches import Patches
from bidual.problems.problem import ReluProblem


def check_shape(axes: dict[int, str]) -> Check:
    """Of the shape of a sample, which has one of these numbers of axes."""

    def holds(shape: Any) -> bool:
        right = is_list(shape) and len(shape) in axes and all(is_whole(k, 1) or k == -1 for k in shape)
        return shape is None or (right and sum(k == -1 for k in shape) < 2)

    return must(f"{' or '.join(axes.values())} in positive whole numbers, at most one of them -1", holds)


@dataclass(kw_only=True, eq=False, repr=False)
class ShapedSamples(ConvexNetwork):
    """Networks on patches. Takes arrays of samples as they are, or flat ones whose shape is a parameter.

    Attributes:
        sample_shape_: the shape of one sample.
    """

    activation: str = "gated_relu"
    tol: float = 1e-3

    _shape_parameter: ClassVar[str]  # its name
    _what: ClassVar[str]  # samples are, in the plural
    _axes: ClassVar[dict[int, str]]  # the allowed numbers of axes of a sample, and their names
    _sparse_samples = False
    _relu_solvers = ("column_generation",)

    @property
    def _shapes(self) -> str:
        return " or ".join(self._axes.values())

    @abstractmethod
    def _patches(self, X: Tensor) -> Patches: ...

    def _relu_problem(self, X: Tensor, datafit: Datafit) -> ReluProblem:
        return ReluProblem.on(self._patches(X), datafit, 1.0)

    def _seen(self, X: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor | None]:
        rows = self._patches(X).distinguishing_rows()
        return rows[:, : rows.shape[1] - self._biased], None

    def _bytes(self, X: Tensor, count: int, n_outputs: int) -> int:
        patches = self._patches(X[:1])
        if self.activation != "relu":
            return 8 * (12 * count * patches.width * patches.readouts * n_outputs + 3 * X.numel())
        return 8 * len(X) * patches.n_rows * (6 * patches.width + 3 * patches.readouts * n_outputs)

    def _flat_samples(self, X: ArrayLike, reset: bool) -> ArrayLike:
        refuse_sparse(X, self._what)
        array = self._as_array(X)
        found: tuple[int, ...] = getattr(array, "shape", ())[1:]
        learned = getattr(self, "sample_shape_", found)
        if reset:
            self._found = found if len(found) > 1 else None
        elif len(found) > 1 and found != learned and getattr(self, self._shape_parameter) is None:
            raise ValueError(f"the network was trained on {self._what} of shape {learned}, got {found}.")
        return array.reshape(len(array), prod(found)) if len(found) > 1 else array

    def _learn_shape(self, n_features: int) -> None:
        found: tuple[int, ...] | None = self.__dict__.pop("_found")
        shape = getattr(self, self._shape_parameter)
        if shape is None:
            self.sample_shape_ = self._found_shape(found, n_features)
        else:
            self.sample_shape_ = self._given_shape(tuple(shape), found, n_features)

    def _as_array(self, X: Any) -> Any:
        """Nested lists as arrays; tables and what scikit-learn should judge stay what they are."""
        if not isinstance(X, (list, tuple)) and not (isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1):
            return X
        items = [as_plain_array(item) for item in X]
        try:
            array = np.asarray(items)
        except ValueError as error:
            raise ValueError(f"all {self._what} must have one shape, which they do not; pad or cut them.") from error
        return array if array.dtype != object else X

    def _found_shape(self, found: tuple[int, ...] | None, n_features: int) -> tuple[int, ...]:
        """The shape of samples that come with one."""
        if found is None:
            raise ValueError(
                f"X has shape (n, {n_features}), and {self._shape_parameter} does not say what {self._what} these "
                f"numbers make; set it to {self._shapes}, or pass X with these axes."
            )
        if len(found) not in self._axes:
            raise ValueError(
                f"{self._what} must have shape {self._shapes}, got {found}; give {self._shape_parameter} to have them "
                "reshaped."
            )
        return tuple(int(k) for k in found)

    def _given_shape(self, shape: tuple[int, ...], found: tuple[int, ...] | None, n_features: int) -> tuple[int, ...]:
        """The shape in the parameter, where it fits the samples."""
        if found is not None and sorted(found) == sorted(shape) and found != shape:
            raise ValueError(
                f"{self._what} have shape {found}, the axes of {self._shape_parameter}={shape} in another order; move "
                "the axes first."
            )
        known = prod(k for k in shape if k != -1)
        if n_features % known if -1 in shape else n_features != known:
            size = f"of {n_features} numbers" if found is None else f"of shape {found}"
            raise ValueError(f"{self._shape_parameter}={shape} does not fit {self._what} {size}.")
        return tuple(n_features // known if k == -1 else int(k) for k in shape)
