"""Gated parallel models (PR eq. 11 without its constraints): gates of sampled three-layer sub-networks, kept fixed."""

from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bidual.architectures.base import Architecture
from bidual.architectures.modules import GatedParallelNetwork, RebuildableModule
from bidual.architectures.modules.parallel import Activity, activity
from bidual.gauges import Gauge, Group
from bidual.operators import LiftedOperator
from bidual.operators.stacked import GatedSubNetworkOperator
from bidual.patterns import with_constant
from bidual.runtime.registry import Part


@dataclass(frozen=True, eq=False)
class SubNetworkGates(Part):
    r"""The gates of K sub-networks h_k = sum_j s_kj (X w_kj)_+: where their units are on, in both layers.

    Sub-network w' has the gates of w_k if it is in the cone (PR A.4, the set C' of eq. 21)

        (2 D_1kj - I) X w'_j >= 0   and   (2 D_2k - I) sum_j s_kj D_1kj X w'_j >= 0,

    on which it is linear: (h)_+ = D_2 sum_j s_j D_1j X w'_j (PR eq. 7).

    Attributes:
        weights: w_kj as columns, with the size of the second-layer weight in them.
        signs: s_kj, +1 or -1.
    """

    weights: Float[Tensor, "k d m"]
    signs: Float[Tensor, "k m"]
    name = "sub_network_gates"

    def __post_init__(self) -> None:
        W, s = self.weights, self.signs
        if W.ndim != 3 or s.ndim != 2 or s.shape != (len(W), W.shape[2]) or not s.numel():
            raise ValueError(
                f"gates need weights (K, d, m1) and signs (K, m1) with K, m1 >= 1, got {tuple(W.shape)} and "
                f"{tuple(s.shape)}."
            )
        if not bool(torch.isfinite(W).all()):
            raise ValueError("the weights of gates must be finite, got NaN or infinity; draw them again.")
        if not bool((s.abs() == 1).all()):
            raise ValueError("the signs of gates must be +1 or -1; multiply the sizes into the weights.")

    @classmethod
    def of(cls, first: Float[Tensor, "k d m"], second: Float[Tensor, "k m"]) -> Self:
        """The gates of the sub-networks ((X W_1)_+ w_2)_+ for any w_2: |w_2| goes into W_1."""
        return cls(first * second.abs()[:, None], torch.where(second >= 0, 1.0, -1.0).to(first))

    @classmethod
    def sample(cls, d: int, count: int, width: int, generator: torch.Generator) -> Self:
        """The gates of ``count`` normal draws of (W_1, w_2) with m_1 = ``width`` (PR A.1)."""
        _positive(d=d, count=count, width=width)
        return cls.of(_normal((count, d, width), generator), _normal((count, width), generator))

    @classmethod
    def product(cls, d: int, firsts: int, seconds: int, width: int, generator: torch.Generator) -> Self:
        """Every one of P_1 = ``firsts`` normal draws of W_1 with every one of P_2 = ``seconds`` draws of w_2."""
        _positive(d=d, firsts=firsts, seconds=seconds, width=width)
        W, w = _normal((firsts, d, width), generator), _normal((seconds, width), generator)
        return cls.of(W.repeat_interleave(seconds, 0), w.repeat(firsts, 1))

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def width(self) -> int:
        return self.weights.shape[2]

    @property
    def interior(self) -> Float[Tensor, "k m d"]:
        """s_kj w_kj, a point of every cone, in the coordinates z = s w of the lifted variable."""
        return self.signs[:, :, None] * self.weights.mT

    def __getitem__(self, chosen: Tensor) -> Self:
        return type(self)(self.weights[chosen], self.signs[chosen])

    def to(self, like: Tensor) -> Self:
        """The same gates in another precision or on another device."""
        return type(self)(self.weights.to(like), self.signs.to(like))

    def activity(self, X: Float[Tensor, "n d"]) -> Activity:
        """1{X w_kj >= 0} and 1{sum_j s_kj (X w_kj)_+ >= 0}, the diagonals of D_1 and D_2; ties count as on."""
        if X.ndim != 2 or X.shape[1] != self.weights.shape[1]:
            raise ValueError(f"samples must have shape (n, {self.weights.shape[1]}), got {tuple(X.shape)}.")
        return activity(X, self.weights.to(X), self.signs.to(X))


@dataclass(frozen=True, eq=False)
class GatedParallel(Architecture):
    r"""f(X) = sum_k D_2k sum_j D_1kj X U_kj with the patterns of given gates, priced sum_k |U_k|_F.

    The limit of PR (11) as lambda -> 0: without the cone constraints z - z' is any U_k, so it is a gated linear model
    and not a ReLU network; :mod:`bidual.papers.methods.gated_report` compares it with one. The gates act on the
    samples as they are passed; with ``bias`` they have one weight more, for a constant 1.
    """

    gates: SubNetworkGates
    bias: bool = False
    name = "gated_parallel"

    def gauge(self) -> Gauge:
        return Group()

    def _lift(self, X: Tensor, n_outputs: int) -> LiftedOperator:
        X = with_constant(X) if self.bias else X
        return GatedSubNetworkOperator.of(X, *self.gates.activity(X), n_outputs)

    def _decode(self, Z: Tensor, offset: Tensor) -> RebuildableModule:
        used = Z.flatten(1).any(1)
        used[0] |= not bool(used.any())  # the zero model keeps one sub-network, whose output is zero
        gates, d = self.gates.to(Z)[used], self.gates.weights.shape[1]
        module = GatedParallelNetwork(d - self.bias, gates.width, Z.shape[2], len(gates), constant=int(self.bias))
        with torch.no_grad():
            module.gates.copy_(gates.weights)
            module.signs.copy_(gates.signs)
            module.weights.copy_(Z[used].reshape(module.weights.shape))
            module.bias.copy_(offset)
        return module

    def regulariser(self, module: nn.Module) -> float:
        if not isinstance(module, GatedParallelNetwork):
            raise TypeError(f"expected a GatedParallelNetwork, got {type(module).__name__}.")
        return float(torch.linalg.vector_norm(module.weights.detach().flatten(1), dim=1).sum())

    @classmethod
    def example(cls, generator: torch.Generator) -> tuple[Self, Tensor]:
        X = torch.randn(9, 4, generator=generator, dtype=torch.float64)
        return cls(SubNetworkGates.sample(5, 6, 3, generator), bias=True), X


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _positive(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name} must be at least 1, got {count}.")
