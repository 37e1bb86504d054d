"""Batch normalisation in evaluation mode: a scale and a shift per feature, which a neighbouring layer can take in."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from bidual.io.foreign.graph import Affine, Other, Step


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

    def after(self, layer: Affine) -> Affine:
        """What the layer and then this compute."""
        scaled = self.scale[:, None] * _wide(layer.weight)
        return Affine(scaled, self.shift if layer.bias is None else self.scale * _wide(layer.bias) + self.shift)

    def before(self, layer: Affine) -> Affine:
        """What this and then the layer compute."""
        weight = _wide(layer.weight)
        shift = weight @ self.shift
        return Affine(weight * self.scale, shift if layer.bias is None else _wide(layer.bias) + shift)


def _wide(weight: Tensor) -> Tensor:
    return weight.detach().to("cpu", torch.float64)


def folded(steps: Iterable[Step | Scaling]) -> list[Step]:
    """The same steps with every scaling taken in by the linear layer right before it, or else right after it."""
    done: list[Step | Scaling] = []
    for step in steps:
        last = done[-1] if done else None
        if isinstance(step, Scaling) and isinstance(last, Affine) and len(step.scale) == len(last.weight):
            done[-1] = step.after(last)
        elif isinstance(step, Affine) and isinstance(last, Scaling) and len(last.scale) == step.weight.shape[-1]:
            done[-1] = last.before(step)
        else:
            done.append(step)
    return [Other("BatchNorm1d") if isinstance(step, Scaling) else step for step in done]


def check_modes(model: nn.Module) -> None:
    """Refuse layers that compute one thing in training and another in evaluation."""
    for kind, part in _normalisations(model):
        if part.training:
            raise ValueError(
                f"{kind} is in training mode, where it computes something else than in evaluation; call model.eval() "
                "to have the network certified as it predicts."
            )


def check_decays_itself(model: nn.Module) -> None:
    """Refuse the weight decay of a training loop, which does not see the scales that weights have taken in."""
    for kind, _ in _normalisations(model):
        raise ValueError(
            f"{kind} is folded into the layer beside it, whose weights are then not those that weight_decay stood "
            "beside; give beta, at which the folded network is judged."
        )


def check_unfolded(model: nn.Module) -> None:
    """Refuse to put weights beside a normalisation that they have taken in."""
    for kind, _ in _normalisations(model):
        raise ValueError(
            f"{kind} was folded into the layer beside it, so that the weights found do not fit into the module; use "
            "result.better, a module of its own."
        )


def _normalisations(model: nn.Module) -> Iterator[tuple[str, _BatchNorm]]:
    """With their kinds and names, as errors have them."""
    for name, part in model.named_modules():
        if isinstance(part, _BatchNorm):
            yield f"{type(part).__name__} {name!r}", part
