"""The ordinary torch modules that lifted solutions decode to. They know nothing of convex programs."""

from typing import ClassVar, Self

import torch
from torch import Tensor, nn


class RebuildableModule(nn.Module):
    """A module that can be rebuilt from a dictionary of sizes and its state, without unpickling code."""

    kind: ClassVar[str]

    @property
    def sizes(self) -> dict[str, int]:
        """The constructor's arguments."""
        raise TypeError(f"{type(self).__name__} does not say its sizes.")

    @property
    def n_neurons(self) -> int:
        """Neurons (filters, heads) whose outgoing weights are not all zero."""
        raise TypeError(f"{type(self).__name__} does not count its neurons.")

    @classmethod
    def rebuild(cls, sizes: dict[str, int], state: dict[str, Tensor]) -> Self:
        module = cls(**sizes)
        module.load_state_dict(state)
        return module


class TwoLayerNetwork(RebuildableModule):
    """A hidden and an output layer, each with a bias."""

    def __init__(self, n_features: int, n_neurons: int, n_outputs: int) -> None:
        super().__init__()
        self.hidden = _zero_linear(n_features, n_neurons)
        self.output = _zero_linear(n_neurons, n_outputs)

    @property
    def sizes(self) -> dict[str, int]:
        hidden = self.hidden
        return {
            "n_features": hidden.in_features,
            "n_neurons": hidden.out_features,
            "n_outputs": self.output.out_features,
        }

    @property
    def n_neurons(self) -> int:
        return int((self.output.weight.detach() != 0).any(0).sum())


class LinearNetwork(TwoLayerNetwork):
    """x -> W (U^T x + a) + b: a two-layer network without a nonlinearity."""

    kind = "linear_mlp"

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.hidden(x.to(self.hidden.weight.dtype)))


class ReluNetwork(TwoLayerNetwork):
    """x -> sum_j (u_j^T x + a_j)_+ w_j + b: a two-layer ReLU network."""

    kind = "relu_mlp"

    def forward(self, x: Tensor) -> Tensor:
        return self.output(torch.relu(self.hidden(x.to(self.hidden.weight.dtype))))


class GatedNetwork(TwoLayerNetwork):
    """x -> sum_j 1{g_p(j)^T x + h_p(j) >= 0} (u_j^T x + a_j) w_j + b: a two-layer gated-ReLU network.

    The gates are constants; neuron j uses gate ``gate_index[j]``.
    """

    kind = "gated_mlp"

    def __init__(self, n_features: int, n_gates: int, n_neurons: int, n_outputs: int) -> None:
        super().__init__(n_features, n_neurons, n_outputs)
        self.gates = _zero_linear(n_features, n_gates).requires_grad_(False)
        self.gate_index: Tensor
        self.register_buffer("gate_index", torch.zeros(n_neurons, dtype=torch.long))

    @property
    def sizes(self) -> dict[str, int]:
        return super().sizes | {"n_gates": self.gates.out_features}

    @classmethod
    def rebuild(cls, sizes: dict[str, int], state: dict[str, Tensor]) -> Self:
        module = super().rebuild(sizes, state)
        if not bool(((module.gate_index >= 0) & (module.gate_index < sizes["n_gates"])).all()):
            raise ValueError("gate_index points beyond the gates; the model file is damaged.")
        return module

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(self.hidden.weight.dtype)
        on = (self.gates(x) >= 0).to(x.dtype)
        return self.output(self.hidden(x) * on[:, self.gate_index])


class _ZeroLinear(nn.Linear):
    """A linear layer that starts at zero, without a draw from the global generator; it prints as what it is."""

    def _get_name(self) -> str:
        return "Linear"

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)


def _zero_linear(n_in: int, n_out: int) -> nn.Linear:
    return _ZeroLinear(n_in, n_out, dtype=torch.float64)


NETWORKS: dict[str, type[RebuildableModule]] = {cls.kind: cls for cls in (LinearNetwork, ReluNetwork, GatedNetwork)}
