"""Self-attention with ReLU scores."""

from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bidual.architectures import ReluAttention
from bidual.architectures.modules import ReluAttentionNetwork
from bidual.estimators.base import ConvexEstimator
from bidual.estimators.certifying.on_patches import GivenOnPatches
from bidual.operators.patches import TokenPairs


@dataclass(frozen=True, eq=False, kw_only=True)
class GivenAttention(GivenOnPatches):
    """x -> the average over tokens of sum_j (x U_j x^T)_+ x V_j + b (BM eq. 8, 136), by heads (U_j, V_j)."""

    has_hidden_bias = False
    what, axes = "sequences", "tokens, features"

    @classmethod
    def read(cls, network: object) -> Self | None:
        """A ReluAttentionNetwork, or that of a fitted estimator; None for anything else."""
        if isinstance(network, ConvexEstimator) and isinstance(network.module_, ReluAttentionNetwork):
            return cls.of(network.module_, network.fit_intercept, getattr(network, "sample_shape_", None))
        return cls.of(network, bool(network.bias.any())) if isinstance(network, ReluAttentionNetwork) else None

    @classmethod
    def of(cls, module: Any, has_bias: bool, shape: tuple[int, ...] | None = None) -> Self:
        """A bias that it may not use, its rivals have not either."""
        if not module.average:
            raise ValueError(
                "self-attention can be certified where predictions are averaged over tokens (average=1), and this "
                "network has one per token."
            )
        U, V, b = (part.detach().to("cpu", torch.float64) for part in (module.mixing, module.value, module.bias))
        return cls(units=U.mT.flatten(1), readouts=V, offset=b if has_bias else None, sample_shape=shape)

    @property
    def d(self) -> int:
        """Features of a token."""
        return self.readouts.shape[1]

    def check_shape(self, shape: tuple[int, ...]) -> None:
        if len(shape) != 2 or shape[1] != self.d:
            found = ", ".join(map(str, shape))
            raise ValueError(f"X must be sequences of shape (n, tokens, {self.d}), got (n, {found}).")

    def patches(self, samples: Float[Tensor, "n s d"]) -> TokenPairs:
        return TokenPairs(samples, average=True)

    def architecture(self, shape: tuple[int, ...], neurons: Float[Tensor, "m h"]) -> ReluAttention:
        return ReluAttention(d=self.d, average=True, neurons=neurons)

    def rival(self, module: nn.Module) -> Self:
        if not isinstance(module, ReluAttentionNetwork):
            raise ValueError(f"expected a ReluAttentionNetwork as was certified, got a {type(module).__name__}.")
        if self.offset is None and bool(module.bias.any()):
            raise ValueError("the module has a bias that the network which was certified has not; give one like it.")
        other = type(self).of(module, self.offset is not None, self.sample_shape)
        return replace(other, decayed=self.decayed)
