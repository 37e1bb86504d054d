"""What a network shows of itself in a report: its hidden units, and pictures."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

Numbers = NDArray[np.float64]
_FILTERS, _CHANNELS = 24, 4  # that are shown


@dataclass(frozen=True)
class Units:
    """Hidden units, one row each: what comes in (m, p), a bias last, and what goes out (m, q).

    Attributes:
        name: what a unit is called.
        incoming, outgoing: its weights.
        on_features: whether incoming weights are those of the features, one each.
        on_outputs: whether outgoing weights are those of the outputs, one each.
        whole: whether these are all weights of a unit, so that its price is the product of their norms.
    """

    name: str
    incoming: Numbers
    outgoing: Numbers
    on_features: bool = False
    on_outputs: bool = False
    whole: bool = True

    @classmethod
    def of(cls, name: str, incoming: Tensor, outgoing: Tensor, **flags: bool) -> Self:
        """From tensors whose first axis counts the units."""
        return cls(name, as_numbers(incoming.flatten(1)), as_numbers(outgoing.flatten(1)), **flags)

    @property
    def prices(self) -> Numbers:
        """The product of both norms, which is what weight decay charges a unit once it is balanced."""
        return np.linalg.norm(self.incoming, axis=1) * np.linalg.norm(self.outgoing, axis=1)


@dataclass(frozen=True)
class Picture:
    """Small images in rows of ``columns``, each in its own scale, under a title of their own.

    Attributes:
        title: of the section.
        tiles: matrices of numbers.
        names: one per tile.
        columns: of tiles.
        caption: what to see.
        alt: what is shown, for readers who do not see it.
    """

    title: str
    tiles: Sequence[Numbers]
    names: Sequence[str]
    columns: int
    caption: str
    alt: str


def as_numbers(tensor: Tensor) -> Numbers:
    """A copy on the CPU, in double precision."""
    return np.asarray(tensor.detach().cpu(), dtype=np.float64)


def filters_picture(layer: nn.Module, prices: Numbers) -> list[Picture]:
    """The filters of a convolution that weigh most, their channels side by side."""
    weight: Any = layer.weight
    filters = as_numbers(weight)
    order = [k for k in np.argsort(-prices, kind="stable") if prices[k] > 0][:_FILTERS]
    if not order:
        return []
    channels = min(filters.shape[1], _CHANNELS)
    tiles = [np.hstack([np.atleast_2d(part) for part in filters[k][:channels]]) for k in order]
    note = "" if filters.shape[1] == 1 else f", their first {channels} channels side by side"
    caption = f"The {len(order)} filters that weigh most{note}. Red positive, blue negative, each in its own scale."
    alt = f"{len(order)} learned filters of size {' × '.join(map(str, filters.shape[2:]))}."
    return [Picture("Learned filters", tiles, [f"{k}" for k in order], max(2, 8 // channels), caption, alt)]
