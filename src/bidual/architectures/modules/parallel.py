"""Parallel networks: K sub-networks of equal shape, side by side, of ReLUs or with fixed gates."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from bidual.architectures.modules.base import RebuildableModule, Sizes, Units
from bidual.numerics.gate_margin import is_on


class ParallelNetwork(RebuildableModule):
    """x -> sum_k (... ((x W_1k)_+ W_2k)_+ ... W_(L-1)k)_+ W_Lk + b, K sub-networks of L layers (PR eq. 1).

    ``layers[l]`` (K, in, out) holds W_lk. Hidden layers have no biases; with ``constant`` a 1 is appended to x.
    """

    kind, words = "parallel", "parallel ReLU network"

    def __init__(
        self, n_features: int, widths: Sequence[int], n_outputs: int, n_networks: int, constant: int = 0
    ) -> None:
        super().__init__()
        self.constant = bool(constant)
        sizes = [n_features + self.constant, *widths, n_outputs]
        self.layers = nn.ParameterList(
            nn.Parameter(torch.zeros(n_networks, *pair, dtype=torch.float64)) for pair in pairwise(sizes)
        )
        self.bias = nn.Parameter(torch.zeros(n_outputs, dtype=torch.float64))

    @property
    def sizes(self) -> Sizes:
        first, last = self.layers[0], self.layers[-1]
        return {
            "n_features": first.shape[1] - self.constant,
            "widths": [layer.shape[2] for layer in self.layers[:-1]],
            "n_outputs": last.shape[2],
            "n_networks": first.shape[0],
            "constant": int(self.constant),
        }

    @property
    def n_neurons(self) -> int:
        """Sub-networks whose output weights are not all zero."""
        return int(self.layers[-1].detach().flatten(1).any(1).sum())

    @property
    def rivals(self) -> str:  # type: ignore[override]
        """Beyond three layers sub-networks are certified as trees."""
        if len(self.layers) > 3:
            return (
                "every parallel network whose sub-networks are trees of these widths, of any number; denser "
                "sub-networks may do better"
            )
        return "every parallel network of these widths, with any number of sub-networks"

    @property
    def units(self) -> Units:
        return Units.of("sub-network", self.layers[0], self.layers[-1], on_outputs=True, whole=False)

    def on(self, x: Tensor) -> Tensor:
        return (self.hidden(x) > 0).transpose(0, 1)

    def hidden(self, x: Tensor) -> Tensor:
        """The last hidden layer of every sub-network (K, n, width)."""
        h = _seen(self, x)
        for layer in self.layers[:-1]:
            h = torch.relu(h @ layer)
        return h

    def forward(self, x: Tensor) -> Tensor:
        return (self.hidden(x) @ self.layers[-1]).sum(0) + self.bias


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
        return activity(_seen(self, x), self.gates, self.signs).second.T

    def forward(self, x: Tensor) -> Tensor:
        x = _seen(self, x)
        first, second = activity(x, self.gates, self.signs)
        linear = x @ self.weights  # (K, m, n, c)
        inner = (first[:, :, :, None] * linear).sum(1)
        return (second[:, :, None] * inner).sum(0) + self.bias


def _seen(network: ParallelNetwork | GatedParallelNetwork, x: Tensor) -> Tensor:
    """Samples as sub-networks see them."""
    x = x.to(network.bias.dtype)
    return torch.cat([x, x.new_ones(x.shape[0], 1)], 1) if network.constant else x
