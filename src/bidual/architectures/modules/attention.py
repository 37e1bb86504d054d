"""Multi-head self-attention with a linear, gated or ReLU activation in place of softmax."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from bidual.architectures.modules.base import RebuildableModule, Sizes, check_gate_index
from bidual.architectures.modules.views import Picture, Units, as_numbers
from bidual.numerics.gate_margin import is_on

_HEADS = 4  # whose maps are shown


class AttentionNetwork(RebuildableModule):
    """x (n, s, d) -> sum_j act(x U_j x^T) x V_j + b, for every token, or averaged over tokens (BM eq. 8).

    ``mixing`` (heads, d, d) holds U_j, the product of a head's query and key weights; ``value`` (heads, d, c) holds
    V_j, that of its value and output weights.
    """

    def __init__(self, d: int, n_heads: int, n_outputs: int, average: int) -> None:
        super().__init__()
        self.average = bool(average)
        self.mixing = nn.Parameter(torch.zeros(n_heads, d, d, dtype=torch.float64))
        self.value = nn.Parameter(torch.zeros(n_heads, d, n_outputs, dtype=torch.float64))
        self.bias = nn.Parameter(torch.zeros(n_outputs, dtype=torch.float64))

    @property
    def sizes(self) -> Sizes:
        heads, d, c = self.value.shape
        return {"d": d, "n_heads": heads, "n_outputs": c, "average": int(self.average)}

    @property
    def n_neurons(self) -> int:
        return int((self.value.detach() != 0).flatten(1).any(1).sum())

    @property
    def units(self) -> Units:
        return Units.of("head", self.mixing, self.value)

    @torch.no_grad()
    def pictures(self, x: Tensor | None = None, names: Sequence[str] = ()) -> list[Picture]:
        """Attention maps of the heads that weigh most."""
        if x is None:
            return []
        heads, maps = np.argsort(-self.units.prices, kind="stable")[:_HEADS], as_numbers(self.maps(x))
        caption = (
            f"A row per sample, a column for each of the {len(heads)} heads that weigh most; a token's row says which "
            "tokens it looks at. Red positive, blue negative, each map in its own scale."
        )
        return [
            Picture(
                "Attention maps",
                [maps[row, head] for row in range(len(maps)) for head in heads],
                [f"{name}, head {head}" for name in names for head in heads],
                len(heads),
                caption,
                f"Attention maps of {len(heads)} heads on {len(maps)} sequences.",
            )
        ]

    def maps(self, x: Tensor) -> Tensor:
        """The attention maps act(x U_j x^T) (n, heads, s, s) of all heads."""
        x = x.to(self.mixing.dtype)[:, None]
        return self._activated(x @ self.mixing @ x.mT, x)

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(self.mixing.dtype)
        seen = self.maps(x) @ x[:, None]
        outputs = (seen @ self.value).sum(1)
        return (outputs.mean(1) if self.average else outputs) + self.bias

    @abstractmethod
    def _activated(self, scores: Tensor, x: Tensor) -> Tensor: ...


class LinearAttentionNetwork(AttentionNetwork):
    """Self-attention without a nonlinearity."""

    kind, words, always_on = "linear_attention", "linear self-attention network", True
    rivals = "every linear self-attention network, with any number of heads"

    def _activated(self, scores: Tensor, x: Tensor) -> Tensor:
        return scores


class ReluAttentionNetwork(AttentionNetwork):
    """Self-attention with a ReLU on the scores."""

    kind, words = "relu_attention", "self-attention network with ReLU scores"
    rivals = "every self-attention network of this kind, with any number of heads"

    def on(self, x: Tensor) -> Tensor:
        return self.maps(x) > 0

    def _activated(self, scores: Tensor, x: Tensor) -> Tensor:
        return torch.relu(scores)


class GatedAttentionNetwork(AttentionNetwork):
    """Scores that are on where a constant gate is: 1{x H_p(j) x^T >= 0}; head j uses gate ``gate_index[j]``."""

    kind, words = "gated_attention", "self-attention network with gated scores"

    def __init__(self, d: int, n_heads: int, n_outputs: int, average: int, n_gates: int) -> None:
        super().__init__(d, n_heads, n_outputs, average)
        self.gates: Tensor
        self.gate_index: Tensor
        self.register_buffer("gates", torch.zeros(n_gates, d, d, dtype=torch.float64))
        self.register_buffer("gate_index", torch.zeros(n_heads, dtype=torch.long))

    @property
    def sizes(self) -> Sizes:
        return super().sizes | {"n_gates": len(self.gates)}

    @classmethod
    def rebuild(cls, sizes: Sizes, state: dict[str, Tensor]) -> Self:
        module = super().rebuild(sizes, state)
        check_gate_index(module.gate_index, sizes["n_gates"])
        return module

    def _activated(self, scores: Tensor, x: Tensor) -> Tensor:
        return scores * self._on_pairs(x).to(scores.dtype)

    def on(self, x: Tensor) -> Tensor:
        return self._on_pairs(x[:, None])

    def _on_pairs(self, x: Tensor) -> Tensor:
        """Where a head's gate is on, of x (n, 1, s, d); ties count as on."""
        size = x.abs()
        on = is_on(x @ self.gates @ x.mT, size @ self.gates.abs() @ size.mT, self.gates[0].numel())
        return on[:, self.gate_index]
