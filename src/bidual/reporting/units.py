"""When the hidden units of a network are on."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bidual.architectures.modules import RebuildableModule
from bidual.architectures.modules.views import Numbers, as_numbers


@dataclass(frozen=True)
class Activity:
    """When units are on.

    Attributes:
        shares: of the places (patches, pairs of tokens) of a sample where a unit is on, (n, m).
        n_patterns: how many of the units' activation patterns on these samples differ.
    """

    shares: Numbers
    n_patterns: int


@torch.no_grad()
def activity_of(module: RebuildableModule, x: Tensor) -> Activity | None:
    """The activity on samples as the network takes them; None for units that are always on."""
    on = module.on(x.to(torch.float64))
    if on is None or not on.numel():
        return None
    places = on.bool().flatten(2) if on.ndim > 2 else on.bool()[:, :, None]
    patterns = len(torch.unique(places.transpose(0, 1).flatten(1), dim=0))
    return Activity(as_numbers(places.double().mean(2)), patterns)
