"""Convolutional networks as scikit-learn estimators."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from bidual.architectures import Architecture, GatedCNN, LinearCNN, ReluCNN
from bidual.estimators.network import is_whole, matrix
from bidual.estimators.shaped import ShapedSamples
from bidual.estimators.targets import ClassifierTargets, RegressorTargets
from bidual.losses import Loss
from bidual.operators.patches import Convolution, ImagePatches

_FINEST = 4  # cells of the automatic pooling grid along a dimension


class ConvexCNN(ShapedSamples):
    """What the convolutional classifier and regressor share: parameters, and filters that see patches."""

    _shape_parameter, _what = "image_shape", "images"
    _axes = {2: "(channels, length)", 3: "(channels, height, width)"}  # noqa: RUF012
    _gate_rows = "numbers in a patch"
    _auto_patterns = 100
    _auto_fraction = 0.01

    def __init__(
        self,
        *,
        image_shape: Sequence[int] | None = None,
        kernel_size: int | Sequence[int] = 3,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        pooling: str | int | Sequence[int] | ArrayLike = "auto",
        activation: str = "gated_relu",
        beta: float | str = "auto",
        patterns: int | str = "auto",
        gates: ArrayLike | None = None,
        penalty: str = "nuclear",
        loss: str | Loss = "auto",
        solver: str = "auto",
        tol: float = 1e-3,
        max_iter: int | None = None,
        max_time: float | None = None,
        hidden_bias: bool = True,
        fit_intercept: bool = True,
        random_state: int | np.random.RandomState | None = 0,
        warm_start: bool = False,
        verbose: int | bool = 0,
        device: str = "cpu",
    ) -> None:
        self.image_shape = image_shape
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.pooling = pooling
        self.activation = activation
        self.beta = beta
        self.patterns = patterns
        self.gates = gates
        self.penalty = penalty
        self.loss = loss
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.max_time = max_time
        self.hidden_bias = hidden_bias
        self.fit_intercept = fit_intercept
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.device = device

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name, least in (("kernel_size", 1), ("stride", 1), ("padding", 0), ("dilation", 1)):
            _check_numbers(name, getattr(self, name), least)
        if isinstance(self.pooling, str):
            if self.pooling not in ("auto", "global"):
                raise ValueError(f"pooling must be 'auto', 'global', a grid or a matrix, got {self.pooling!r}.")
        elif np.ndim(self.pooling) < 2:
            _check_numbers("pooling", self.pooling, 1)

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
        return torch.tensor(matrix(self.pooling))

    def _shape(self) -> dict[str, Any]:
        return {"image_shape": self.sample_shape_, "convolution": self._convolution(), "bias": self._biased}

    def _patches(self, X: Tensor) -> ImagePatches:
        return ImagePatches(X, self._convolution(), self._biased)

    def _linear(self, X: Tensor) -> Architecture:
        return LinearCNN(**self._shape(), penalty=self.penalty)

    def _gated(self, X: Tensor, gates: Tensor) -> Architecture:
        return GatedCNN(**self._shape(), penalty=self.penalty, gates=gates)

    def _relu(self, X: Tensor, neurons: Tensor) -> Architecture:
        return ReluCNN(**self._shape(), neurons=neurons)


def _check_numbers(name: str, value: Any, least: int) -> None:
    numbers: Any = value if np.ndim(value) == 1 else [value]
    if not len(numbers) or not all(is_whole(k, least) for k in numbers):
        raise ValueError(f"{name} must be one whole number of at least {least}, or one per dimension, got {value!r}.")


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
        patterns: for "gated_relu", how many gates to sample, "auto" is 100; for "relu" as in
            :class:`ConvexMLPClassifier`.
        gates: for "gated_relu", own gates, one number per entry of a patch, shape (channels * kernel, P).
        penalty, loss, solver, tol, max_iter, max_time, hidden_bias, fit_intercept, random_state, warm_start, verbose,
            device: as in :class:`ConvexMLPClassifier`; for "relu" the solver is column generation.

    Attributes:
        certificate_, module_, beta_, beta_max_, n_neurons_, n_iter_, history_, solver_, classes_, n_features_in_: as in
            :class:`ConvexMLPClassifier`; ``module_`` takes images, ``n_neurons_`` counts filters.
        sample_shape_: the shape of one image.
    """


class ConvexCNNRegressor(RegressorTargets, ConvexCNN):
    """Two-layer convolutional regressor, certified; parameters are those of :class:`ConvexCNNClassifier`."""
