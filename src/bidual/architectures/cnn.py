"""Convolutional networks with linear pooling (N6, N7): linear, gated ReLU and ReLU, in one and two dimensions."""

from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.architectures.base import Gating
from bidual.architectures.modules import GatedConvNetwork, LinearConvNetwork, RebuildableModule, ReluConvNetwork
from bidual.architectures.modules.cnn import PoolingMatrix
from bidual.architectures.on_patches import GatedOnPatches, LinearOnPatches, OnPatches, ReluOnPatches
from bidual.operators.patches import Convolution, ImagePatches


@dataclass(frozen=True, eq=False, kw_only=True)
class ConvolutionalNetwork(OnPatches):
    """The common part of the three families: images of one shape, and how they are cut and pooled.

    ``image_shape`` is (channels, height, width) or (channels, length); ``bias`` adds a penalised bias to filters.
    """

    image_shape: tuple[int, ...]
    convolution: Convolution
    bias: bool = False

    def patches(self, X: Float[Tensor, "n channels *size"]) -> ImagePatches:
        self.check_samples(X.shape[1:])
        return ImagePatches(X, self.convolution, self.bias)

    def check_samples(self, shape: tuple[int, ...]) -> None:
        if tuple(shape) != tuple(self.image_shape):
            raise ValueError(f"images must have shape {tuple(self.image_shape)}, got {tuple(shape)}.")

    @property
    def readouts(self) -> int:
        return self.convolution.readouts

    def _network(self, U: Tensor, V: Tensor, offset: Tensor, gating: Gating | None = None) -> RebuildableModule:
        module: Any = super()._network(U, V, offset, gating)
        if isinstance(module.pool, PoolingMatrix):
            module.pool.matrix.copy_(torch.as_tensor(self.convolution.pooling))
        return module

    def _sizes(self, h: int, m: int, a: int, c: int) -> dict[str, Any]:
        convolution, count = self.convolution, self.convolution.map_of(self.image_shape)
        own = isinstance(convolution.pooling, Tensor)
        return {
            "channels": self.image_shape[0],
            "n_filters": m,
            "readouts": a,
            "n_outputs": c,
            "positions": prod(count),
            "kernel_size": list(convolution.kernel_size),
            "stride": list(convolution.stride),
            "padding": list(convolution.padding),
            "dilation": list(convolution.dilation),
            "window": [] if own else [k // g for k, g in zip(count, convolution.grid, strict=True)],
        }

    @classmethod
    def _example_settings(cls, generator: torch.Generator) -> tuple[dict[str, Any], Tensor, Tensor]:
        X = torch.randn(5, 2, 4, 3, generator=generator, dtype=torch.float64)
        convolution = Convolution.of(2, (2, 2), padding=(0, 1), pooling=(3, 2))
        settings = {"image_shape": (2, 4, 3), "convolution": convolution, "bias": True}
        return settings, ImagePatches(X, convolution, bias=True).distinguishing_rows(), X


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearCNN(ConvolutionalNetwork, LinearOnPatches):
    """pred_i = sum_j V_j P_a X_i u_j, convex in Z = sum_j u_j vec(V_j^T)^T (BM eq. 125, 127)."""

    name, network = "linear_cnn", LinearConvNetwork


@dataclass(frozen=True, eq=False, kw_only=True)
class GatedCNN(ConvolutionalNetwork, GatedOnPatches):
    """pred_i = sum_p sum_j V_jp P_a D_p X_i u_jp with fixed gates on patches (BM eq. 126, 130)."""

    name, network = "gated_cnn", GatedConvNetwork


@dataclass(frozen=True, eq=False, kw_only=True)
class ReluCNN(ConvolutionalNetwork, ReluOnPatches):
    """pred_i = sum_j V_j P_a (X_i u_j)_+ over filters of length one (BM eq. 22, 23)."""

    name, network = "relu_cnn", ReluConvNetwork
