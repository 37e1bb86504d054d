"""Convolutional networks: filters, a ReLU, averages as pooling, a linear layer."""

from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor, nn

from bidual.architectures import ReluCNN
from bidual.architectures.modules import RebuildableModule, ReluConvNetwork
from bidual.estimators.base import ConvexEstimator
from bidual.estimators.certifying.given import lacking
from bidual.estimators.certifying.on_patches import GivenOnPatches
from bidual.io.foreign.convolutions import ConvolutionalWeights, from_convolutional
from bidual.io.foreign.modules import check_outputs
from bidual.operators.patches import ImagePatches

_PLAIN = "a torch.nn.Sequential(Conv2d, ReLU, AvgPool2d, Flatten, Linear)"
_AT_ONCE = 64  # samples at which the module and its weights are compared together


@dataclass(frozen=True, eq=False, kw_only=True)
class GivenCNN(GivenOnPatches):
    """x -> sum_j V_j P_a (x * u_j + b_j)_+ + b in one or two dimensions (BM eq. 22, 23), by filters u_j.

    Attributes:
        weights: as they were read.
        module: to be compared with them at X, if any.
    """

    weights: ConvolutionalWeights
    module: nn.Module | None = None

    what = "images"

    @classmethod
    def read(cls, network: object) -> Self | None:
        """A module with a convolution, or that of a fitted estimator; None for anything else."""
        if isinstance(network, ConvexEstimator) and isinstance(network.module_, ReluConvNetwork):
            family: Any = network.architecture_
            weights = _with_biases(_weights(network.module_), family.bias, network.fit_intercept)
            return cls.of(weights, network.module_, tuple(family.image_shape))
        if isinstance(network, ReluConvNetwork):  # it always has biases, zero where it may not use them
            used = bool(network.hidden.bias.any()), bool(network.output.bias.any())
            return cls.of(_with_biases(_weights(network), *used), network)
        if not isinstance(network, nn.Module) or isinstance(network, RebuildableModule):
            return None
        found = from_convolutional(network)
        return None if found is None else cls.of(found, network)

    @classmethod
    def of(
        cls, weights: ConvolutionalWeights, module: nn.Module | None = None, shape: tuple[int, ...] | None = None
    ) -> Self:
        U, b = weights.filters.flatten(1), weights.filter_bias
        V = weights.output.unflatten(1, (len(U), -1)).permute(1, 2, 0)
        units = U if b is None else torch.cat([U, b[:, None]], 1)
        return cls(
            units=units,
            readouts=V,
            offset=weights.output_bias,
            sample_shape=shape,
            weights=weights,
            module=module,
        )

    @property
    def has_hidden_bias(self) -> bool:
        return self.weights.filter_bias is not None

    @property
    def limits(self) -> str:
        return f" of this size and pooling{lacking(not self.has_hidden_bias, self.offset is None)}"

    @property
    def axes(self) -> str:
        return "channels, length" if self.weights.convolution.dims == 1 else "channels, height, width"

    def check_shape(self, shape: tuple[int, ...]) -> None:
        channels = self.weights.filters.shape[1]
        if len(shape) != self.weights.filters.ndim - 1 or shape[0] != channels:
            raise ValueError(
                f"X must be images of shape (n, {self.axes}) with {channels} channels, got (n, {_joined(shape)})."
            )
        made = self.weights.convolution_for(shape).readouts
        if made != self.readouts.shape[1]:
            raise ValueError(
                f"images of shape {shape} give {made} numbers per filter after pooling, and the linear layer takes "
                f"{self.readouts.shape[1]}; pass images as in training, and give pooling as a layer."
            )

    def samples(self, X: ArrayLike) -> Float[Tensor, "n channels *size"]:
        images = super().samples(X)
        for some in images.split(_AT_ONCE):
            self._check(some)
        return images

    def _check(self, images: Float[Tensor, "n channels *size"]) -> None:
        """That the module computes nothing else than its layers do."""
        if self.module is None:
            return
        patches = self.patches(images)
        U, V = self.units, self.readouts.flatten(0, 1)
        b = V.new_zeros(self.n_outputs) if self.offset is None else self.offset
        rows = patches.rows()
        expected = patches.pool((rows @ U.T).clamp(min=0)).flatten(1) @ V + b
        size = patches.pool(rows.abs() @ U.abs().T).abs().flatten(1) @ V.abs() + b.abs()
        check_outputs(self.module, images, expected, size, "a convolutional network", _PLAIN)

    def patches(self, samples: Float[Tensor, "n channels *size"]) -> ImagePatches:
        convolution = self.weights.convolution_for(tuple(samples.shape[1:]))
        return ImagePatches(samples, convolution, self.has_hidden_bias)

    def architecture(self, shape: tuple[int, ...], neurons: Float[Tensor, "m h"]) -> ReluCNN:
        convolution = self.weights.convolution_for(shape)
        return ReluCNN(image_shape=shape, convolution=convolution, bias=self.has_hidden_bias, neurons=neurons)

    def rival(self, module: nn.Module) -> Self:
        biases = self.has_hidden_bias, self.offset is not None
        other = type(self).of(_with_biases(_weights(module), *biases), None, self.sample_shape)
        return replace(other, decayed=self.decayed)


def _weights(module: nn.Module) -> ConvolutionalWeights:
    weights = from_convolutional(module)
    if weights is None:
        raise ValueError(f"expected a convolutional network as was certified, got a {type(module).__name__}.")
    return weights


def _with_biases(weights: ConvolutionalWeights, filters: bool, output: bool) -> ConvolutionalWeights:
    """Biases where there may be some, zero where the module has none; elsewhere none."""
    filter_bias = _bias(weights.filter_bias, filters, weights.filters)
    return replace(weights, filter_bias=filter_bias, output_bias=_bias(weights.output_bias, output, weights.output))


def _bias(given: Tensor | None, wanted: bool, layer: Tensor) -> Tensor | None:
    if wanted:
        return layer.new_zeros(len(layer)) if given is None else given
    if given is not None and bool(given.any()):
        raise ValueError("the module has a bias that the network which was certified has not; give one like it.")
    return None


def _joined(shape: tuple[int, ...]) -> str:
    return ", ".join(map(str, shape))
