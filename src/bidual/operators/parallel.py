from collections.abc import Sequence
from functools import cached_property
from math import prod, sqrt
from numbers import Integral
from typing import Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from bidual.numerics.rounding import length
from bidual.operators.base import Depth
from bidual.operators.neurons import NeuronOperator, coarser

Widths = int | Sequence[int]


class ParallelOperator(NeuronOperator):
    r"""A Z = sum_k f_k(X) z_k^T for a dictionary of sub-networks f_k with one unit at their end (PR eq. 7).

    Three layers, widths (m_1,):  f(X) = ( sum_j (X p_j)_+ - sum_j (X q_j)_+ )_+ with at most m_1 units p_j, q_j.
    Deeper, widths (m_1, ..., m_(L-2)):  the p_j and q_j of each layer are sub-networks of the layer below, so that a
    sub-network is a tree whose units have at most m_l inputs, of signs +1 and -1.

    One row of ``neurons`` holds all first-layer weights (2, m_(L-2), ..., 2, m_1, d), those of sign +1 first, with
    zeros in empty places. With rows of length one, the group norm of Z is the path norm of the network (PR Lemma 1):
    every path begins at one first-layer unit and goes through weights +-1 to z.
    """

    def __init__(
        self,
        X: Float[Tensor, "n d"],
        neurons: Float[Tensor, "m k"],
        n_outputs: int,
        widths: Widths,
        made_in: torch.dtype | None = None,
    ) -> None:
        self.widths = as_widths(widths)
        size = sub_network_size(self.widths, X.shape[1])
        if neurons.shape[1] != size:
            raise ValueError(
                f"sub-networks of widths {self.widths} on {X.shape[1]} features have {size} numbers, got "
                f"{neurons.shape[1]}."
            )
        self.X, self.neurons, self.n_outputs, self.readout = X, neurons.to(X), n_outputs, None
        self.made_in = coarser(made_in or neurons.dtype, X.dtype)

    @cached_property
    def features(self) -> Float[Tensor, "n k"]:
        return sub_network_features(self.X, self.neurons, self.widths)

    @cached_property
    def magnitude(self) -> float:
        """sqrt(2 m_1 2 m_2 ...) |X|_F, the bound of a sum of that many units of total squared length one, subtracted
        ones included, whose rounding counts too."""
        longest = float(torch.linalg.vector_norm(self.neurons, dim=1).max()) if len(self.neurons) else 1.0
        return sqrt(prod(2 * m for m in self.widths)) * length(self.X) * max(longest, 1.0)

    @property
    def depth(self) -> Depth:
        features = self.X.shape[1] + sum(m + 2 for m in self.widths) + 4
        return Depth(features + len(self.neurons), features + len(self.X))

    def to(self, dtype: torch.dtype) -> Self:
        same = dtype == self.X.dtype
        return self if same else type(self)(self.X.to(dtype), self.neurons, self.n_outputs, self.widths, self.made_in)

    def select(self, blocks: Tensor) -> Self:
        return type(self)(self.X, self.neurons[blocks], self.n_outputs, self.widths, self.made_in)


def as_widths(widths: object) -> tuple[int, ...]:
    """(m_1, ..., m_(L-2)); one number is the m_1 of three layers."""
    several = tuple(np.ravel(widths).tolist()) if isinstance(widths, np.ndarray) else widths
    several = tuple(several) if isinstance(several, Sequence) else (several,)
    if not several or any(isinstance(m, bool) or not isinstance(m, Integral) or m < 1 for m in several):
        raise ValueError(f"widths must be a positive whole number or several, from the input on, got {widths!r}.")
    return tuple(int(m) for m in several)


def places(widths: tuple[int, ...]) -> tuple[int, ...]:
    """(2, m_(L-2), ..., 2, m_1), the array of first-layer units of a sub-network."""
    return tuple(size for m in reversed(widths) for size in (2, m))


def sub_network_size(widths: tuple[int, ...], n_features: int) -> int:
    """How many numbers a sub-network has."""
    return prod(places(widths)) * n_features


def sub_network_features(
    X: Float[Tensor, "n d"], neurons: Float[Tensor, "m k"], widths: tuple[int, ...]
) -> Float[Tensor, "n m"]:
    """The outputs of sub-networks as columns."""
    hidden = torch.relu(X @ neurons.reshape(-1, X.shape[1]).T)
    hidden = hidden.reshape(len(X), len(neurons), *places(widths))
    for _ in widths:
        signed = hidden.sum(-1)
        hidden = torch.relu(signed[..., 0] - signed[..., 1])
    return hidden
