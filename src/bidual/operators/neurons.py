from functools import cached_property
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.numerics.rounding import gamma, length
from bidual.operators.base import Depth, LiftedOperator
from bidual.operators.patches import Patches


class NeuronOperator(LiftedOperator):
    r"""A Z = sum_j (X u_j)_+ z_j^T for a dictionary of neurons u_j (m, d): one block (1, c) per neuron (CP eq. 1).

    With |u_j| = 1, the group norm of Z is the weight decay of the balanced network; ``longest`` is the Euclidean length
    that neurons of the problem may have. Where X holds the rows of patches, their ``readout`` L comes in between:
    A Z = sum_j L[(X u_j)_+] Z_j with blocks (a, c), Z_j = V_j^T in BM (22).
    """

    def __init__(
        self,
        X: Float[Tensor, "n d"],
        neurons: Float[Tensor, "m d"],
        n_outputs: int,
        readout: Patches | None = None,
        longest: float = 1.0,
        made_in: torch.dtype | None = None,
    ) -> None:
        if neurons.shape[1] != X.shape[1]:
            raise ValueError(f"neurons must have one column per feature ({X.shape[1]}), got {neurons.shape[1]}.")
        self.X = X
        self.neurons = neurons.to(X)
        self.n_outputs = n_outputs
        self.readout = readout
        self.longest = longest
        self.made_in = coarser(made_in or neurons.dtype, X.dtype)

    @property
    def excess(self) -> float:
        """Neurons scaled to length one in single precision have that length up to its rounding."""
        return gamma(self.neurons.shape[1] + 8, self.made_in) if self.made_in != torch.float64 else 0.0

    @cached_property
    def features(self) -> Float[Tensor, "n k"]:
        """(X u_j)_+ as columns, or L[(X u_j)_+], the readouts of a neuron side by side."""
        H = (self.X @ self.neurons.T).clamp(min=0)
        return H if self.readout is None else self.readout.pool(H).flatten(1)

    @cached_property
    def magnitude(self) -> float:
        """|X|_F times the length of the longest neuron, here or anywhere: neurons of linf norm one are longer."""
        here = float(torch.linalg.vector_norm(self.neurons, dim=1).max()) if len(self.neurons) else 1.0
        size = length(self.X) if self.readout is None else self.readout.magnitude
        return size * max(here, self.longest)

    @property
    def depth(self) -> Depth:
        """Products with features, which are sums over the columns of X and perhaps over the rows of a sample."""
        features = self.X.shape[1] + 4 + (0 if self.readout is None else self.readout.depth)
        return Depth(features + self.design_width, features + self.output_shape[0])

    @property
    def unit(self) -> str:
        return super().unit if self.readout is None else self.readout.unit

    @property
    def like(self) -> Tensor:
        return self.X

    @property
    def output_shape(self) -> tuple[int, int]:
        return len(self.X) if self.readout is None else self.readout.n_predictions, self.n_outputs

    @property
    def block_shape(self) -> tuple[int, int, int]:
        return len(self.neurons), self._rows, self.n_outputs

    @property
    def _rows(self) -> int:
        return 1 if self.readout is None else self.readout.readouts

    @property
    def design_width(self) -> int:
        return len(self.neurons) * self._rows

    def to(self, dtype: torch.dtype) -> Self:
        if dtype == self.X.dtype:
            return self
        readout = None if self.readout is None else self.readout.to(dtype)
        return type(self)(self.X.to(dtype), self.neurons, self.n_outputs, readout, self.longest, self.made_in)

    def _forward(self, Z: Tensor) -> Tensor:
        return self.features @ Z.flatten(0, 1)

    def _adjoint(self, V: Tensor) -> Tensor:
        return (self.features.T @ V).reshape(self.block_shape)

    def select(self, blocks: Tensor) -> Self:
        return type(self)(self.X, self.neurons[blocks], self.n_outputs, self.readout, self.longest, self.made_in)

    def kernel(self, weights: Float[Tensor, " p"] | None = None) -> Float[Tensor, "n n"]:
        A = self.features
        if weights is not None:
            each = weights.repeat_interleave(self._rows)
            A = A[:, each > 0] * each[each > 0].sqrt()
        return A @ A.T

    def responses(self, G: Float[Tensor, "p a"], blocks: Tensor) -> Float[Tensor, "n q"]:
        parts = self.features.reshape(len(self.features), *self.block_shape[:2])[:, blocks]
        return (parts * G[blocks]).sum(2)

    def design(self) -> Float[Tensor, "n k"]:
        return self.features


def coarser(one: torch.dtype, other: torch.dtype) -> torch.dtype:
    """The less precise of two types."""
    return max(one, other, key=lambda dtype: torch.finfo(dtype).eps)
