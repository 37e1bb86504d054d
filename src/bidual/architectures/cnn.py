"""Convolutional networks with linear pooling (N6, N7): linear, gated ReLU and ReLU, in one and two dimensions."""

from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bidual.architectures.modules import GatedConvNetwork, LinearConvNetwork, RebuildableModule, ReluConvNetwork
from bidual.architectures.modules.products import PoolingMatrix
from bidual.architectures.on_patches import GatedOnPatches, Gating, LinearOnPatches, OnPatches, ReluOnPatches
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

    def _network(
        self, U: Float[Tensor, "h m"], V: Float[Tensor, "m a c"], offset: Tensor, gating: Gating | None = None
    ) -> RebuildableModule:
        m, a, c = V.shape
        sizes = {"n_filters": m, "readouts": a, "n_outputs": c} | self._geometry()
        module: Any = self.network(**sizes, **({} if gating is None else {"n_gates": gating.gates.shape[1]}))
        with torch.no_grad():
            self._fill(module.hidden, U)
            module.output.weight.copy_(V.permute(2, 0, 1).flatten(1))
            module.output.bias.copy_(offset)
            if isinstance(module.pool, PoolingMatrix):
                module.pool.matrix.copy_(torch.as_tensor(self.convolution.pooling))
            if gating is not None:
                self._fill(module.gates, gating.gates)
                module.gate_index.copy_(gating.index)
        return module

    def _geometry(self) -> dict[str, Any]:
        convolution, count = self.convolution, self.convolution.map_of(self.image_shape)
        own = isinstance(convolution.pooling, Tensor)
        return {
            "channels": self.image_shape[0],
            "positions": prod(count),
            "kernel_size": list(convolution.kernel_size),
            "stride": list(convolution.stride),
            "padding": list(convolution.padding),
            "dilation": list(convolution.dilation),
            "window": [] if own else [k // g for k, g in zip(count, convolution.grid, strict=True)],
        }

    def _fill(self, layer: nn.Conv1d | nn.Conv2d, U: Float[Tensor, "h m"]) -> None:
        length = self.convolution.rows_of(self.image_shape[0])
        layer.weight.copy_(U[:length].T.reshape(layer.weight.shape))
        if self.bias:
            layer.bias.copy_(U[length])  # type: ignore[union-attr]

    def _weights(self, module: nn.Module) -> tuple[Float[Tensor, "h m"], Float[Tensor, "b m"]]:
        layers: Any = module
        hidden, output = layers.hidden, layers.output.weight.detach()
        U = hidden.weight.detach().flatten(1).T
        if self.bias:
            U = torch.cat([U, hidden.bias.detach()[None]])
        return U, output.reshape(len(output), hidden.out_channels, -1).permute(2, 0, 1).flatten(0, 1)

    @classmethod
    def _example_settings(cls, generator: torch.Generator) -> tuple[dict[str, Any], Tensor]:
        X = torch.randn(5, 2, 4, 3, generator=generator, dtype=torch.float64)
        convolution = Convolution.of(2, (2, 2), padding=(0, 1), pooling=(3, 2))
        return {"image_shape": (2, 4, 3), "convolution": convolution, "bias": True}, X

    @classmethod
    def _cut(cls, settings: dict[str, Any], X: Tensor) -> ImagePatches:
        return ImagePatches(X, settings["convolution"], settings["bias"])


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
