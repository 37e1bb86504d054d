"""Two-layer perceptrons."""

from typing import Self

import torch
from torch import Tensor, nn

from bidual.architectures.modules.base import RebuildableModule, Sizes, check_gate_index, with_bias, zero_linear
from bidual.architectures.modules.views import Units
from bidual.numerics.gate_margin import is_on


class TwoLayerNetwork(RebuildableModule):
    """A hidden and an output layer, each with a bias."""

    def __init__(self, n_features: int, n_neurons: int, n_outputs: int) -> None:
        super().__init__()
        self.hidden = zero_linear(n_features, n_neurons)
        self.output = zero_linear(n_neurons, n_outputs)

    @property
    def sizes(self) -> Sizes:
        hidden = self.hidden
        return {
            "n_features": hidden.in_features,
            "n_neurons": hidden.out_features,
            "n_outputs": self.output.out_features,
        }

    @property
    def n_neurons(self) -> int:
        return int((self.output.weight.detach() != 0).any(0).sum())

    @property
    def units(self) -> Units:
        return Units.of("neuron", with_bias(self.hidden), self.output.weight.T, on_features=True, on_outputs=True)


class LinearNetwork(TwoLayerNetwork):
    """x -> W (U^T x + a) + b: a two-layer network without a nonlinearity."""

    kind, words, always_on = "linear_mlp", "two-layer linear network", True
    rivals = "every two-layer linear network, of any width: without an activation there is only one pattern"

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.hidden(x.to(self.hidden.weight.dtype)))


class ReluNetwork(TwoLayerNetwork):
    """x -> sum_j (u_j^T x + a_j)_+ w_j + b: a two-layer ReLU network."""

    kind, words = "relu_mlp", "two-layer ReLU network"
    rivals = "every two-layer ReLU network, of any width and with any weights"

    def on(self, x: Tensor) -> Tensor:
        return self.hidden(x) > 0

    def forward(self, x: Tensor) -> Tensor:
        return self.output(torch.relu(self.hidden(x.to(self.hidden.weight.dtype))))


class GatedNetwork(TwoLayerNetwork):
    """x -> sum_j 1{g_p(j)^T x + h_p(j) >= 0} (u_j^T x + a_j) w_j + b: a two-layer gated-ReLU network.

    The gates are constants; neuron j uses gate ``gate_index[j]``.
    """

    kind, words = "gated_mlp", "two-layer gated-ReLU network"

    def __init__(self, n_features: int, n_gates: int, n_neurons: int, n_outputs: int) -> None:
        super().__init__(n_features, n_neurons, n_outputs)
        self.gates = zero_linear(n_features, n_gates).requires_grad_(False)
        self.gate_index: Tensor
        self.register_buffer("gate_index", torch.zeros(n_neurons, dtype=torch.long))

    @property
    def sizes(self) -> Sizes:
        return super().sizes | {"n_gates": self.gates.out_features}

    @classmethod
    def rebuild(cls, sizes: Sizes, state: dict[str, Tensor]) -> Self:
        module = super().rebuild(sizes, state)
        check_gate_index(module.gate_index, sizes["n_gates"])
        return module

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(self.hidden.weight.dtype)
        return self.output(self.hidden(x) * self.on(x).to(x.dtype))

    def on(self, x: Tensor) -> Tensor:
        """Where a neuron's gate is on; ties count as on."""
        sizes = nn.functional.linear(x.abs(), self.gates.weight.abs(), self.gates.bias.abs())
        return is_on(self.gates(x), sizes, x.shape[1] + 1)[:, self.gate_index]
