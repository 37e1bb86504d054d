"""Samples that are not rows of numbers: images and sequences."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from bidual.estimators.mlp import ConvexNetwork
from bidual.estimators.parameters import Check, is_list, is_whole, must
from bidual.losses.datafit import Datafit
from bidual.operators.patches import Patches
from bidual.problems.relu import ReluProblem


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
        array = self._as_array(X)
        found: tuple[int, ...] = getattr(array, "shape", ())[1:]
        if reset:
            self._found = found if len(found) > 1 else None
        elif len(found) > 1:
            self._check_shape(found)
        return array.reshape(len(array), prod(found)) if len(found) > 1 else array

    def _learn_shape(self, n_features: int) -> None:
        found = self.__dict__.pop("_found")
        self.sample_shape_ = self._shape_of_flat(n_features) if found is None else self._shape_of(found)

    def _as_array(self, X: Any) -> Any:
        """Tensors and nested lists as arrays; tables and what scikit-learn should judge stay what they are."""
        if isinstance(X, Tensor):
            return X.detach().cpu().numpy()
        if not isinstance(X, (list, tuple)) and not (isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1):
            return X
        items = [item.detach().cpu().numpy() if isinstance(item, Tensor) else item for item in X]
        try:
            array = np.asarray(items)
        except ValueError as error:
            raise ValueError(f"all {self._what} must have one shape, which they do not; pad or cut them.") from error
        return array if array.dtype != object else X

    def _shape_of(self, found: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of samples that come with one."""
        shape = getattr(self, self._shape_parameter)
        if shape is not None:
            if sorted(found) == sorted(shape) and tuple(found) != tuple(shape):
                raise ValueError(
                    f"{self._what} have shape {tuple(found)}, the axes of {self._shape_parameter}={tuple(shape)} in "
                    "another order; move the axes first."
                )
            return self._resolved(shape, prod(found), f"of shape {tuple(found)}")
        if len(found) not in self._axes:
            raise ValueError(
                f"{self._what} must have shape {self._shapes}, got {tuple(found)}; give "
                f"{self._shape_parameter} to have them reshaped."
            )
        return tuple(int(k) for k in found)

    def _shape_of_flat(self, features: int) -> tuple[int, ...]:
        shape = getattr(self, self._shape_parameter)
        if shape is None:
            raise ValueError(
                f"X has shape (n, {features}), and {self._shape_parameter} does not say what {self._what} these "
                f"numbers make; set it to {self._shapes}, or pass X with these axes."
            )
        return self._resolved(shape, features, f"of {features} numbers")

    def _resolved(self, shape: Sequence[int], size: int, found: str) -> tuple[int, ...]:
        known = prod(k for k in shape if k != -1)
        if not size or (size % known if -1 in shape else size != known):
            raise ValueError(f"{self._shape_parameter}={tuple(shape)} does not fit {self._what} {found}.")
        return tuple(size // known if k == -1 else int(k) for k in shape)

    def _check_shape(self, found: tuple[int, ...]) -> None:
        """Samples of another shape are reshaped only where the shape is a parameter."""
        learned = getattr(self, "sample_shape_", found)
        if tuple(found) != learned and getattr(self, self._shape_parameter) is None:
            raise ValueError(f"the network was trained on {self._what} of shape {learned}, got {tuple(found)}.")
