"""Batch normalisation in evaluation mode: a scale and a shift per feature, which a neighbouring layer can take in."""

from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


@dataclass(frozen=True, eq=False)
class Scaling:
    """x -> scale x + shift, feature by feature, in float64."""

    scale: Float[Tensor, " d"]
    shift: Float[Tensor, " d"]

    @classmethod
    def of(cls, layer: _BatchNorm, name: str) -> Self:
        r"""(x - mean) / sqrt(var + eps) * weight + bias, with the statistics that training has left."""
        if layer.running_mean is None or layer.running_var is None:
            raise ValueError(
                f"{type(layer).__name__} {name!r} keeps no running statistics, so that it computes something else for "
                "every batch; use track_running_stats=True, or leave the layer out."
            )
        mean, var = (part.detach().to("cpu", torch.float64) for part in (layer.running_mean, layer.running_var))
        scale = (var + layer.eps).rsqrt()
        if layer.weight is not None:
            scale = scale * layer.weight.detach().to("cpu", torch.float64)
        shift = -mean * scale
        return cls(scale, shift if layer.bias is None else shift + layer.bias.detach().to("cpu", torch.float64))


def check_modes(model: nn.Module) -> None:
    """Refuse layers that compute one thing in training and another in evaluation."""
    for name, part in model.named_modules():
        if isinstance(part, _BatchNorm) and part.training:
            raise ValueError(
                f"{type(part).__name__} {name!r} is in training mode, where it computes something else than in "
                "evaluation; call model.eval() to have the network certified as it predicts."
            )
