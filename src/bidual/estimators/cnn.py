"""Convolutional networks as scikit-learn estimators."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from bidual.architectures import GatedCNN, LinearCNN, ReluCNN
from bidual.estimators.parameters import Check, is_whole, must, parameter
from bidual.estimators.shaped import ShapedSamples, check_shape
from bidual.estimators.targets import ClassifierTargets, RegressorTargets
from bidual.operators.patches import Convolution, ImagePatches

_AXES = {2: "(channels, length)", 3: "(channels, height, width)"}
_FINEST = 4  # cells of the automatic pooling grid along a dimension


def _numbers(least: int) -> Check:
    def holds(value: Any) -> bool:
        numbers: Any = value if np.ndim(value) == 1 else [value]
        return len(numbers) > 0 and all(is_whole(k, least) for k in numbers)

    return must(f"one whole number of at least {least}, or one per dimension", holds)


def _check_pooling(name: str, value: Any) -> None:
    if isinstance(value, str):
        must("'auto', 'global', a grid or a matrix", ("auto", "global").__contains__)(name, value)
    elif np.ndim(value) < 2:
        _numbers(1)(name, value)


@dataclass(kw_only=True, eq=False, repr=False)
class ConvexCNN(ShapedSamples):
    """What the convolutional classifier and regressor share: parameters, and filters that see patches."""

    _shape_parameter, _what = "image_shape", "images"
    _axes = _AXES
    _gate_rows = "numbers in a patch"
    _families: ClassVar = {"linear": LinearCNN, "gated_relu": GatedCNN, "relu": ReluCNN}
    _auto_gates = 100
    _auto_fraction = 0.01

    image_shape: Sequence[int] | None = parameter(None, check_shape(_AXES))
    kernel_size: int | Sequence[int] = parameter(3, _numbers(1))
    stride: int | Sequence[int] = parameter(1, _numbers(1))
    padding: int | Sequence[int] = parameter(0, _numbers(0))
    dilation: int | Sequence[int] = parameter(1, _numbers(1))
    pooling: str | int | Sequence[int] | ArrayLike = parameter("auto", _check_pooling)

    def _convolution(self) -> Convolution:
        """The geometry for images of the shape that was found."""
        dims, names = len(self.sample_shape_) - 1, ("kernel_size", "stride", "padding", "dilation")
        plain = Convolution(*(_per_dimension(name, getattr(self, name), dims) for name in names))
        convolution = plain.pooled(self._pooling(plain.map_of(self.sample_shape_)))
        convolution.pooling_for(self.sample_shape_, torch.empty(0, dtype=torch.float64))  # says what does not fit
        return convolution

    def _geometry(self) -> tuple[object, ...]:
        return self.sample_shape_, self._convolution().geometry

    def _pooling(self, patches: tuple[int, ...]) -> tuple[int, ...] | Tensor:
        if isinstance(self.pooling, str):
            return () if self.pooling == "global" else tuple(map(_finest, patches))
        if np.ndim(self.pooling) < 2:
            return _per_dimension("pooling", self.pooling, len(patches))
        pooling: Any = self.pooling
        return torch.tensor(np.asarray(pooling.detach().cpu() if isinstance(pooling, Tensor) else pooling, np.float64))

    def _settings(self, X: Tensor) -> dict[str, Any]:
        return {"image_shape": self.sample_shape_, "convolution": self._convolution(), "bias": self._biased}

    def _patches(self, X: Tensor) -> ImagePatches:
        return ImagePatches(X, self._convolution(), self._biased)


def _per_dimension(name: str, value: Any, dims: int) -> tuple[int, ...]:
    numbers = (int(value),) * dims if is_whole(value, 0) else tuple(int(k) for k in value)
    if len(numbers) != dims:
        raise ValueError(
            f"{name} must be one number, or one for each of the {dims} dimensions of images, got {value!r}."
        )
    return numbers


def _finest(count: int) -> int:
    """The finest grid that divides ``count`` patches."""
    return max(k for k in range(1, _FINEST + 1) if count % k == 0)


@dataclass(kw_only=True, eq=False, repr=False)
class ConvexCNNClassifier(ClassifierTargets, ConvexCNN):
    """Two-layer convolutional classifier (convolution, activation, linear pooling, linear layer), certified.

    It minimises ``sum_i w_i loss_i + beta * Omega(Z)``, where Omega is the weight decay 1/2 sum of squares of the
    network's weights, over all numbers of filters: a convex program (BM eq. 23, 127, 130).

    Args:
        image_shape: (channels, height, width), or (channels, length) for signals; one number may be -1. Not needed
            where X has these axes.
        kernel_size, stride, padding, dilation: of the convolution, one number or one per dimension.
        pooling: "auto" (averages over the finest grid that divides the map of patches, with at most 4 cells along a
            dimension), "global" (one average), a grid such as (2, 2), or a matrix with one column per patch.
        activation: "gated_relu" (fixed random gates), "relu" or "linear". For "relu" the certificate is about all
            activation patterns of patches; with filters of more than five numbers its gap can be large although no
            better network was found.
        beta: the weight decay, in the scaling of a sum over samples; "auto" is a hundredth of ``beta_max_``, the
            smallest beta whose optimum is the zero network.
        n_gates: for "gated_relu", how many gates to sample, "auto" is 100.
        gates: for "gated_relu", own gates, one number per entry of a patch, shape (channels * kernel, P).
        oracle, n_starts, penalty, loss, class_weight, solver, tol, max_iter, max_time, hidden_bias, fit_intercept,
            random_state, warm_start, verbose, device, callback: as in :class:`ConvexMLPClassifier`; for "relu" the
            solver is column generation.

    Attributes:
        certificate_, module_, beta_, beta_max_, n_neurons_, n_iter_, history_, solver_, classes_, n_features_in_: as in
            :class:`ConvexMLPClassifier`; ``module_`` takes images, ``n_neurons_`` counts filters.
        sample_shape_: the shape of one image.
    """


class ConvexCNNRegressor(RegressorTargets, ConvexCNN):
    """Two-layer convolutional regressor, certified; parameters are those of :class:`ConvexCNNClassifier`."""
