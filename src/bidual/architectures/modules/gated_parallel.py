"""Gated parallel models: sums of K gated linear models, with the gates of a three-layer sub-network each."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from bidual.architectures.modules.base import RebuildableModule, Sizes
from bidual.architectures.modules.views import Units
from bidual.numerics.gate_margin import is_on


class Activity(NamedTuple):
    """Which units of the first and of the second layer of every sub-network are on."""

    first: Bool[Tensor, "k m n"]
    second: Bool[Tensor, "k n"]


def activity(x: Float[Tensor, "n d"], gates: Float[Tensor, "k d m"], signs: Float[Tensor, "k m"]) -> Activity:
    """1{x w_kj >= 0} and 1{sum_j s_kj (x w_kj)_+ >= 0} (the D_1 and D_2 of PR eq. 7); ties count as on."""
    d = x.shape[1]
    products, sizes = x @ gates, x.abs() @ gates.abs()
    second = (torch.relu(products) @ signs[:, :, None])[:, :, 0]
    return Activity(is_on(products, sizes, d).mT, is_on(second, sizes.sum(2), d + gates.shape[2]))


class GatedParallelNetwork(RebuildableModule):
    r"""x -> sum_k 1{sum_j s_kj (x w_kj)_+ >= 0} sum_j 1{x w_kj >= 0} x U_kj + b: linear where no gate switches.

    Not a ReLU network: the gates w, s are constants, and nothing ties them to the weights U, so f jumps where a gate
    switches. ``weights`` (K, m, d, c) holds U. With ``constant`` a 1 is appended to x.
    """

    kind, words = "gated_parallel", "gated parallel network"

    def __init__(self, n_features: int, width: int, n_outputs: int, n_networks: int, constant: int = 0) -> None:
        super().__init__()
        self.constant = bool(constant)
        d = n_features + self.constant
        self.gates: Tensor
        self.signs: Tensor
        self.register_buffer("gates", torch.zeros(n_networks, d, width, dtype=torch.float64))
        self.register_buffer("signs", torch.ones(n_networks, width, dtype=torch.float64))
        self.weights = nn.Parameter(torch.zeros(n_networks, width, d, n_outputs, dtype=torch.float64))
        self.bias = nn.Parameter(torch.zeros(n_outputs, dtype=torch.float64))

    @property
    def sizes(self) -> Sizes:
        k, m, d, c = self.weights.shape
        return {
            "n_features": d - self.constant,
            "width": m,
            "n_outputs": c,
            "n_networks": k,
            "constant": int(self.constant),
        }

    @property
    def n_neurons(self) -> int:
        """Sub-networks whose weights are not all zero."""
        return int(self.weights.detach().flatten(1).any(1).sum())

    @property
    def units(self) -> Units:
        ones = torch.ones(len(self.weights), 1)
        return Units.of("sub-network", self.weights, ones, on_outputs=True, whole=False)

    def on(self, x: Tensor) -> Tensor:
        return activity(self._seen(x), self.gates, self.signs).second.T

    def _seen(self, x: Tensor) -> Tensor:
        x = x.to(self.bias.dtype)
        return torch.cat([x, x.new_ones(x.shape[0], 1)], 1) if self.constant else x

    def forward(self, x: Tensor) -> Tensor:
        x = self._seen(x)
        first, second = activity(x, self.gates, self.signs)
        linear = x @ self.weights  # (K, m, n, c)
        inner = (first[:, :, :, None] * linear).sum(1)
        return (second[:, :, None] * inner).sum(0) + self.bias
