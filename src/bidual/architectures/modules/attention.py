"""Multi-head self-attention with a linear, gated or ReLU activation in place of softmax."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from bidual.architectures.modules.base import (
    GatedUnits,
    HiddenUnits,
    LinearUnits,
    Picture,
    ReluUnits,
    Sizes,
    Units,
    as_numbers,
)
from bidual.numerics.gate_margin import is_on

_HEADS = 4  # whose maps are shown


class AttentionNetwork(HiddenUnits):
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
        tiles = [maps[row, head] for row in range(len(maps)) for head in heads]
        titles = [f"{name}, head {head}" for name in names for head in heads]
        alt = f"Attention maps of {len(heads)} heads on {len(maps)} sequences."
        return [Picture("Attention maps", tiles, titles, len(heads), caption, alt)]

    def hidden(self, x: Tensor) -> Tensor:
        """The scores x U_j x^T (n, heads, s, s)."""
        return x[:, None] @ self.mixing @ x[:, None].mT

    def maps(self, x: Tensor) -> Tensor:
        """The attention maps act(x U_j x^T) (n, heads, s, s) of all heads."""
        return self.activated(x.to(self.mixing.dtype))

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(self.mixing.dtype)
        outputs = (self.maps(x) @ x[:, None] @ self.value).sum(1)
        return (outputs.mean(1) if self.average else outputs) + self.bias


class LinearAttentionNetwork(LinearUnits, AttentionNetwork):
    """Self-attention without a nonlinearity."""

    kind, words = "linear_attention", "linear self-attention network"
    rivals = "every linear self-attention network, with any number of heads"


class ReluAttentionNetwork(ReluUnits, AttentionNetwork):
    """Self-attention with a ReLU on the scores."""

    kind, words = "relu_attention", "self-attention network with ReLU scores"
    rivals = "every self-attention network of this kind, with any number of heads"


class GatedAttentionNetwork(GatedUnits, AttentionNetwork):
    """Scores that are on where a constant gate is: 1{x H_p(j) x^T >= 0}."""

    kind, words = "gated_attention", "self-attention network with gated scores"

    def __init__(self, d: int, n_heads: int, n_outputs: int, average: int, n_gates: int) -> None:
        super().__init__(d, n_heads, n_outputs, average)
        self.n_gates = n_gates
        self.register_buffer("gates", torch.zeros(n_gates, d, d, dtype=torch.float64))
        self.register_buffer("gate_index", torch.zeros(n_heads, dtype=torch.long))

    def on(self, x: Tensor) -> Tensor:
        x, size = x[:, None], x[:, None].abs()
        on = is_on(x @ self.gates @ x.mT, size @ self.gates.abs() @ size.mT, self.gates[0].numel())
        return on[:, self.gate_index]
