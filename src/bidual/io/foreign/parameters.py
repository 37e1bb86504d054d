"""Which parameters a module has, for networks whose price is that of the weights and biases of their layers."""

from collections.abc import Iterable

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, _BatchNorm)


def check_parameters(module: nn.Module) -> None:
    """Refuse parameters that are not the weight or the bias of one layer alone.

    Rivals have weights of their own in every layer and nothing beside them. Where two layers share a parameter, torch
    decays it once; and a factor g beside the layers, or one that a weight is computed from, gives the same function at
    a smaller sum of squares: then the optimum over such modules may be below the bound.
    """
    check_unshared(module, module.parameters())
    for name, part in module.named_modules():
        for own, parameter in part.named_parameters(recurse=False):
            if not isinstance(part, _LAYERS) or own not in ("weight", "bias"):
                raise ValueError(
                    f"{type(module).__name__} has a parameter {_joined(name, own)!r} of shape "
                    f"{tuple(parameter.shape)} beside the weights and biases of its layers, which networks of this "
                    "kind do not have; fold it into a layer, or leave it out."
                )


def check_unshared(module: nn.Module, parameters: Iterable[nn.Parameter]) -> None:
    """Refuse those of these parameters that a module has at two places."""
    seen = {id(parameter) for parameter in parameters}
    first: dict[int, str] = {}
    for part, layer in module.named_modules():  # each once, whatever names it has
        for own, parameter in layer.named_parameters(recurse=False, remove_duplicate=False):
            name = _joined(part, own)
            if first.setdefault(id(parameter), name) != name and id(parameter) in seen:
                raise ValueError(
                    f"{type(module).__name__} uses one parameter as {first[id(parameter)]!r} and as {name!r}; give "
                    "each layer weights of its own."
                )


def _joined(*names: str) -> str:
    return ".".join(filter(None, names))
