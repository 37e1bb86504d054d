from functools import cached_property
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.operators.base import SampleOperator, frobenius_norm


class NeuronOperator(SampleOperator):
    r"""A Z = sum_j (X u_j)_+ z_j^T for a dictionary of neurons u_j (m, d): one block (1, c) per neuron (CP eq. 1).

    With |u_j| = 1, the group norm of Z is the weight decay of the balanced network.
    """

    def __init__(self, X: Float[Tensor, "n d"], neurons: Float[Tensor, "m d"], n_outputs: int) -> None:
        if neurons.shape[1] != X.shape[1]:
            raise ValueError(f"neurons must have one column per feature ({X.shape[1]}), got {neurons.shape[1]}.")
        self.X = X
        self.neurons = neurons.to(X)
        self.n_outputs = n_outputs

    @cached_property
    def features(self) -> Float[Tensor, "n m"]:
        """(X u_j)_+ as columns."""
        return (self.X @ self.neurons.T).clamp(min=0)

    @cached_property
    def magnitude(self) -> float:
        """|X|_F, times the length of the longest neuron: those of norm one in linf are longer than one."""
        longest = float(torch.linalg.vector_norm(self.neurons, dim=1).max()) if len(self.neurons) else 1.0
        return frobenius_norm(self.X) * max(longest, 1.0)

    @property
    def block_shape(self) -> tuple[int, int, int]:
        return len(self.neurons), 1, self.n_outputs

    def to(self, dtype: torch.dtype) -> Self:
        return self if dtype == self.X.dtype else type(self)(self.X.to(dtype), self.neurons, self.n_outputs)

    def _forward(self, Z: Tensor) -> Tensor:
        return self.features @ Z[:, 0]

    def _adjoint(self, V: Tensor) -> Tensor:
        return (self.features.T @ V)[:, None]

    def _select(self, blocks: Tensor) -> Self:
        return type(self)(self.X, self.neurons[blocks], self.n_outputs)

    def kernel(self, weights: Float[Tensor, " p"] | None = None) -> Float[Tensor, "n n"]:
        A = self.features
        if weights is not None:
            A = A[:, weights > 0] * weights[weights > 0].sqrt()
        return A @ A.T

    def responses(self, G: Float[Tensor, "p a"], blocks: Tensor) -> Float[Tensor, "n q"]:
        return self.features[:, blocks] * G[blocks, 0]

    def design(self) -> Float[Tensor, "n k"]:
        return self.features
