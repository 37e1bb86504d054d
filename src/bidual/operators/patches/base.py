"""The common part of convolutional networks and attention."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from math import sqrt
from typing import ClassVar, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bidual.numerics.rounding import gamma, length, rounded_up

_MOST_ROWS = 200_000  # that distinguish gates
_AT_ONCE = 2**23  # numbers held at a time


class Patches(ABC):
    r"""Samples cut into rows x_r in R^h that share hidden weights u, with a linear readout L of their activations:

        prediction_i = sum_j V_j L_i[(x_r u_j)_+],     L_i[...] in R^a,  V_j in R^(c x a).

    A neuron of a plain network sees one row per sample and L is the identity. For a convolution (BM eq. 22) the rows
    are patches and L is the pooling P_a; for self-attention (BM eq. 8) they are pairs of tokens and L multiplies by the
    tokens once more. Lifted, Z_p = sum_j u_j vec(V_j^T)^T is (h, a c), columns ordered by readout and output, so that

        A Z = B Z.reshape(-1, c),     B_p = L[D_p X] in R^(N x h x a),

    and outputs do not mix. The dual sees V through L*: max |V^T L[(X u)_+]|_F is max |(L* V)^T (X u)_+|_2, the polar of
    a plain ReLU network on the rows x_r.

    There are N prediction rows (one per sample, or per token) and R >= N rows x_r, samples outermost.
    """

    unit: ClassVar[str]  # the word for neurons, in the plural
    X: Tensor  # samples

    def __len__(self) -> int:
        return len(self.X)

    @abstractmethod
    def samples(self, some: slice) -> Self:
        """Some of the samples."""

    @abstractmethod
    def with_silent_sample(self) -> Self:
        """One more sample at the end whose rows are zero, constants included, so that its predictions are zero."""

    @abstractmethod
    def to(self, dtype: torch.dtype) -> Self:
        """The same patches in another precision."""

    @property
    def like(self) -> Tensor:
        """A tensor of this dtype and device."""
        return self.X

    @property
    @abstractmethod
    def width(self) -> int:
        """h, the length of a row."""

    @property
    @abstractmethod
    def readouts(self) -> int:
        """a, the number of outputs of L for a neuron and a prediction row."""

    @property
    @abstractmethod
    def per_sample(self) -> tuple[int, int]:
        """Rows x_r and prediction rows of one sample."""

    @property
    def n_rows(self) -> int:
        return len(self) * self.per_sample[0]

    @property
    def n_predictions(self) -> int:
        """N."""
        return len(self) * self.per_sample[1]

    @abstractmethod
    def rows(self) -> Float[Tensor, "R h"]:
        """X, all x_r; for data that fit into memory."""

    @abstractmethod
    def pool(self, H: Float[Tensor, "R q"]) -> Float[Tensor, "N q a"]:
        """L on every column of H."""

    @abstractmethod
    def spread(self, V: Float[Tensor, "N c"]) -> Float[Tensor, "R ac"]:
        """L* V, columns ordered by readout and output."""

    @abstractmethod
    def compress(self, D: Float[Tensor, "R p"]) -> Float[Tensor, "N p h a"]:
        """L[D_p X] for every column D_p, the design of a gated network, in the precision of D."""

    @abstractmethod
    def reach(self) -> Float[Tensor, "N a"]:
        """sum_r |L_r| |x_r|, which bounds |L[D X]| for all D and |L[(X u)_+]| for |u| <= 1."""

    @cached_property
    def magnitude(self) -> float:
        """The size that rounding errors of a product with B scale with; sums over rows have more terms than samples."""
        rows, predictions = self.per_sample
        parts = torch.tensor([length(part.reach()) for part in self._slices()], dtype=torch.float64)
        return rounded_up(sqrt(rows / predictions) * length(parts) * (1 + gamma(2 * rows + 16)))

    @property
    def depth(self) -> int:
        """The number of roundings of a term of L[D X]: products, and a sum over the rows of a sample."""
        return 2 * self.per_sample[0] + 16

    def _slices(self) -> Iterator[Self]:
        """The samples, some at a time."""
        size = max(1, _AT_ONCE // max(self.work, 1))
        yield from (self.samples(slice(start, start + size)) for start in range(0, len(self), size))

    @property
    @abstractmethod
    def work(self) -> int:
        """How many numbers ``rows`` and ``compress`` hold per sample."""

    @cached_property
    def distinct(self) -> tuple[Float[Tensor, "k h"], Int[Tensor, " R"]]:
        """The distinct rows, and the index of every row among them."""
        rows, index = torch.unique(self.rows(), dim=0, return_inverse=True)
        return rows, index

    @abstractmethod
    def is_same(self, other: "Patches") -> bool:
        """Whether ``other`` cuts equal samples in the same way."""

    def distinguishing_rows(self) -> Float[Tensor, "k h"]:
        """Distinct nonzero rows, by which activation patterns differ (CP A.3.2); of every k-th sample if there are very
        many.

        Padding makes zero rows, which are active in every pattern and contribute to none; one is kept if all are zero.
        """
        every = -(-self.n_rows // _MOST_ROWS)
        rows = torch.unique(self.samples(slice(None, None, max(every, 1))).rows(), dim=0)
        return rows[rows.any(1)] if bool(rows.any()) else rows[:1]
