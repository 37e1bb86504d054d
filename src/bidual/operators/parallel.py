from functools import cached_property
from math import sqrt
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.operators.base import frobenius_norm
from bidual.operators.neurons import NeuronOperator


class ParallelOperator(NeuronOperator):
    r"""A Z = sum_k ( sum_j (X p_kj)_+ - sum_j (X q_kj)_+ )_+ z_k^T for a dictionary of sub-networks (PR eq. 7).

    A sub-network is one row (2 m_1 d) of ``neurons``: the first-layer weights p_j that enter the second layer with sign
    +1, then those with sign -1, at most m_1 of them not zero. With rows of length one, the group norm of Z is the path
    norm of the network (PR Lemma 1).
    """

    def __init__(self, X: Float[Tensor, "n d"], neurons: Float[Tensor, "m k"], n_outputs: int, width: int) -> None:
        if neurons.shape[1] != 2 * width * X.shape[1]:
            raise ValueError(
                f"sub-networks must have 2 m1 d = {2 * width * X.shape[1]} numbers, got {neurons.shape[1]}."
            )
        self.X, self.neurons, self.n_outputs = X, neurons.to(X), n_outputs
        self.width, self.readout = width, None

    @cached_property
    def features(self) -> Float[Tensor, "n k"]:
        return sub_network_features(self.X, self.neurons, self.width)

    @cached_property
    def magnitude(self) -> float:
        """sqrt(m_1) |X|_F: m_1 units of total squared length one add up to at most that."""
        longest = float(torch.linalg.vector_norm(self.neurons, dim=1).max()) if len(self.neurons) else 1.0
        return sqrt(self.width) * frobenius_norm(self.X) * max(longest, 1.0)

    def to(self, dtype: torch.dtype) -> Self:
        same = dtype == self.X.dtype
        return self if same else type(self)(self.X.to(dtype), self.neurons, self.n_outputs, self.width)

    def _select(self, blocks: Tensor) -> Self:
        return type(self)(self.X, self.neurons[blocks], self.n_outputs, self.width)


def sub_network_features(X: Float[Tensor, "n d"], neurons: Float[Tensor, "m k"], width: int) -> Float[Tensor, "n m"]:
    """((X W_1)_+ w_2)_+ of sub-networks (m, 2 m_1 d) as columns."""
    hidden = torch.relu(X @ neurons.reshape(-1, X.shape[1]).T)
    sums = hidden.reshape(len(X), len(neurons), 2, width).sum(3)
    return torch.relu(sums[:, :, 0] - sums[:, :, 1])
