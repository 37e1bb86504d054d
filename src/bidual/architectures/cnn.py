"""Convolutional networks with linear pooling (N6, N7): linear, gated ReLU and ReLU, in one and two dimensions."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bidual.architectures.base import Architecture
from bidual.architectures.pricing import balanced, check_units, live_neurons, make_gauge, price, price_by_gate
from bidual.gauges import Blocks, Gauge, Group
from bidual.networks import ConvNetwork, GatedConvNetwork, LinearConvNetwork, RebuildableModule, ReluConvNetwork
from bidual.networks.cnn import PoolingMatrix
from bidual.operators import LiftedOperator, NeuronOperator, PooledOperator
from bidual.patches import Convolution, ImagePatches
from bidual.patterns import sample_gates


@dataclass(frozen=True, eq=False, kw_only=True)
class ConvolutionalNetwork(Architecture):
    """What the three families share: images of one shape, and how they are cut and pooled.

    ``image_shape`` is (channels, height, width) or (channels, length); ``bias`` adds a penalised bias to filters.
    """

    image_shape: tuple[int, ...]
    convolution: Convolution
    bias: bool = False

    def patches(self, X: Float[Tensor, "n channels *size"]) -> ImagePatches:
        """The rows x_r that filters see, and their pooling."""
        self.check_samples(X.shape[1:])
        return ImagePatches(X, self.convolution, self.bias)

    def check_samples(self, shape: tuple[int, ...]) -> None:
        if tuple(shape) != tuple(self.image_shape):
            raise ValueError(f"images must have shape {tuple(self.image_shape)}, got {tuple(shape)}.")

    @property
    def _positions(self) -> tuple[int, ...]:
        return self.convolution.map_of(self.image_shape)

    @property
    def _filter_length(self) -> int:
        return self.convolution.rows_of(self.image_shape[0])

    def _network(
        self,
        cls: type[ConvNetwork],
        U: Float[Tensor, "h m"],
        V: Float[Tensor, "m a c"],
        offset: Tensor,
        n_gates: int = 0,
    ) -> ConvNetwork:
        """The module with filters U and output weights V."""
        m, a, c = V.shape
        geometry, count = self.convolution, self._positions
        pooled = isinstance(geometry.pooling, Tensor)
        module = cls(
            **({"n_gates": n_gates} if n_gates else {}),
            channels=self.image_shape[0],
            n_filters=m,
            readouts=a,
            n_outputs=c,
            positions=torch.Size(count).numel(),
            kernel_size=list(geometry.kernel_size),
            stride=list(geometry.stride),
            padding=list(geometry.padding),
            dilation=list(geometry.dilation),
            window=[] if pooled else [k // g for k, g in zip(count, geometry.grid, strict=True)],
        )
        with torch.no_grad():
            self._fill(module.hidden, U)
            module.output.weight.copy_(V.permute(2, 0, 1).flatten(1))
            module.output.bias.copy_(offset)
            if isinstance(module.pool, PoolingMatrix):
                module.pool.matrix.copy_(geometry.pooling_for(self.image_shape, V).matrix)
        return module

    def _fill(self, layer: nn.Conv1d | nn.Conv2d, U: Float[Tensor, "h m"]) -> None:
        layer.weight.copy_(U[: self._filter_length].T.reshape(layer.weight.shape))
        if self.bias:
            layer.bias.copy_(U[self._filter_length])  # type: ignore[union-attr]

    def _weights(self, module: nn.Module, cls: type[ConvNetwork]) -> tuple[Float[Tensor, "h m"], Float[Tensor, "b m"]]:
        """U and the output weights, columns vec(V_j^T), of a decoded network."""
        if not isinstance(module, cls):
            raise TypeError(f"expected a {cls.__name__}, got {type(module).__name__}.")
        hidden, output = module.hidden, module.output.weight.detach()
        U = hidden.weight.detach().flatten(1).T
        if self.bias:
            U = torch.cat([U, hidden.bias.detach()[None]])  # type: ignore[union-attr]
        return U, output.reshape(len(output), hidden.out_channels, -1).permute(2, 0, 1).flatten(0, 1)

    @classmethod
    def example(cls, generator: torch.Generator) -> tuple[Self, Tensor]:
        X = torch.randn(5, 2, 4, 3, generator=generator, dtype=torch.float64)
        convolution = Convolution.of(2, (2, 2), padding=(0, 1), pooling=(3, 2))
        return cls._example(ImagePatches(X, convolution, bias=True), generator), X

    @classmethod
    @abstractmethod
    def _example(cls, patches: ImagePatches, generator: torch.Generator) -> Self: ...


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearCNN(ConvolutionalNetwork):
    """pred_i = sum_j V_j P_a X_i u_j, convex in Z = sum_j u_j vec(V_j^T)^T (BM eq. 125, 127)."""

    penalty: str = "nuclear"
    name = "linear_cnn"

    def gauge(self) -> Gauge:
        return make_gauge(self.penalty)

    def n_outputs(self, Z: Blocks) -> int:
        return Z.shape[2] // self.convolution.readouts

    def _lift(self, X: Tensor, n_outputs: int) -> LiftedOperator:
        return PooledOperator(self.patches(X), n_outputs)

    def _decode(self, Z: Tensor, offset: Tensor) -> RebuildableModule:
        U, W, _ = live_neurons(self.gauge(), Z)
        return self._network(LinearConvNetwork, U, W.T.reshape(U.shape[1], -1, self.n_outputs(Z)), offset)

    def regulariser(self, module: nn.Module) -> float:
        return price(self.gauge(), *self._weights(module, LinearConvNetwork))

    @classmethod
    def _example(cls, patches: ImagePatches, generator: torch.Generator) -> Self:
        return cls(image_shape=tuple(patches.X.shape[1:]), convolution=patches.convolution, bias=True)


@dataclass(frozen=True, eq=False, kw_only=True)
class GatedCNN(LinearCNN):
    """pred_i = sum_p sum_j V_jp P_a D_p X_i u_jp with fixed gates on patches (BM eq. 126, 130).

    ``gates`` (h, P) have one row per entry of a patch, and with ``bias`` one more.
    """

    gates: Float[Tensor, "h p"]
    name = "gated_cnn"

    def _lift(self, X: Tensor, n_outputs: int) -> LiftedOperator:
        return PooledOperator(self.patches(X), n_outputs, gates=self.gates.to(X))

    def _decode(self, Z: Tensor, offset: Tensor) -> RebuildableModule:
        U, W, block = live_neurons(self.gauge(), Z)
        used, index = torch.unique(block, return_inverse=True)
        V = W.T.reshape(U.shape[1], -1, self.n_outputs(Z))
        module = self._network(GatedConvNetwork, U, V, offset, n_gates=len(used))
        assert isinstance(module, GatedConvNetwork)
        with torch.no_grad():
            self._fill(module.gates, self.gates.to(Z)[:, used])
            module.gate_index.copy_(index)
        return module

    def regulariser(self, module: nn.Module) -> float:
        U, W = self._weights(module, GatedConvNetwork)
        assert isinstance(module, GatedConvNetwork)
        return price_by_gate(self.gauge(), U, W, module.gate_index)

    @classmethod
    def _example(cls, patches: ImagePatches, generator: torch.Generator) -> Self:
        gates = sample_gates(patches.telling_rows()[:, :-1], 5, generator, bias=True)
        return cls(image_shape=tuple(patches.X.shape[1:]), convolution=patches.convolution, bias=True, gates=gates)


@dataclass(frozen=True, eq=False, kw_only=True)
class ReluCNN(ConvolutionalNetwork):
    """pred_i = sum_j V_j P_a (X_i u_j)_+ over filters of length one, priced sum_j |V_j|_F: weight decay (BM eq. 22)."""

    neurons: Float[Tensor, "m h"]
    name = "relu_cnn"

    def __post_init__(self) -> None:
        check_units(self.neurons)

    def gauge(self) -> Gauge:
        return Group()

    def _lift(self, X: Tensor, n_outputs: int) -> LiftedOperator:
        patches = self.patches(X)
        return NeuronOperator(patches.rows(), self.neurons, n_outputs, patches)

    def _decode(self, Z: Tensor, offset: Tensor) -> RebuildableModule:
        U, V = balanced(self.neurons, Z)
        return self._network(ReluConvNetwork, U.T, V, offset)

    def regulariser(self, module: nn.Module) -> float:
        U, W = self._weights(module, ReluConvNetwork)
        return 0.5 * float(U.square().sum() + W.square().sum())

    @classmethod
    def _example(cls, patches: ImagePatches, generator: torch.Generator) -> Self:
        neurons = torch.randn(4, patches.width, generator=generator, dtype=torch.float64)
        units = neurons / torch.linalg.vector_norm(neurons, dim=1, keepdim=True)
        return cls(image_shape=tuple(patches.X.shape[1:]), convolution=patches.convolution, bias=True, neurons=units)
