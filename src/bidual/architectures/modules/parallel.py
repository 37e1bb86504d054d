"""Parallel networks: K sub-networks of equal shape, side by side."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from bidual.architectures.modules.base import RebuildableModule, Sizes
from bidual.architectures.modules.views import Units


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
        x = x.to(self.bias.dtype)
        h = torch.cat([x, x.new_ones(x.shape[0], 1)], 1) if self.constant else x
        for layer in self.layers[:-1]:
            h = torch.relu(h @ layer)
        return h

    def forward(self, x: Tensor) -> Tensor:
        return (self.hidden(x) @ self.layers[-1]).sum(0) + self.bias
