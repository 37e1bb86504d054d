"""Two-layer perceptrons."""

from torch import Tensor
from torch.nn import functional

from bidual.architectures.modules.base import (
    GatedUnits,
    HiddenUnits,
    LinearUnits,
    ReluUnits,
    Sizes,
    Units,
    with_bias,
    zero_linear,
)


class TwoLayerNetwork(HiddenUnits):
    """A hidden and an output layer, each with a bias."""

    def __init__(self, n_features: int, n_neurons: int, n_outputs: int) -> None:
        super().__init__()
        self.hidden = zero_linear(n_features, n_neurons)
        self.output = zero_linear(n_neurons, n_outputs)

    @property
    def sizes(self) -> Sizes:
        features, neurons = self.hidden.in_features, self.hidden.out_features
        return {"n_features": features, "n_neurons": neurons, "n_outputs": self.output.out_features}

    @property
    def n_neurons(self) -> int:
        return int((self.output.weight.detach() != 0).any(0).sum())

    @property
    def units(self) -> Units:
        return Units.of("neuron", with_bias(self.hidden), self.output.weight.T, on_features=True, on_outputs=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.activated(x.to(self.hidden.weight.dtype)))


class LinearNetwork(LinearUnits, TwoLayerNetwork):
    """x -> W (U^T x + a) + b: a two-layer network without a nonlinearity."""

    kind, words = "linear_mlp", "two-layer linear network"
    rivals = "every two-layer linear network, of any width: without an activation there is only one pattern"


class ReluNetwork(ReluUnits, TwoLayerNetwork):
    """x -> sum_j (u_j^T x + a_j)_+ w_j + b: a two-layer ReLU network."""

    kind, words = "relu_mlp", "two-layer ReLU network"
    rivals = "every two-layer ReLU network, of any width and with any weights"


class GatedNetwork(GatedUnits, TwoLayerNetwork):
    """x -> sum_j 1{g_p(j)^T x + h_p(j) >= 0} (u_j^T x + a_j) w_j + b: a two-layer gated-ReLU network."""

    kind, words = "gated_mlp", "two-layer gated-ReLU network"

    def __init__(self, n_features: int, n_gates: int, n_neurons: int, n_outputs: int) -> None:
        super().__init__(n_features, n_neurons, n_outputs)
        self._add_gates(n_neurons, zero_linear(n_features, n_gates))

    def _gate_sizes(self, x: Tensor, weights: dict[str, Tensor]) -> Tensor:
        return functional.linear(x, **weights)  # without the cost of a functional call, for single samples
