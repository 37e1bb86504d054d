"""Parts of the set of neurons, on which some signs are known."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Self

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Cell:
    r"""Neurons z = (w, u) with |w| = |u|, output weights w (c,) and hidden weights u (d,), on which

        signs_k w_k >= 0 for all outputs k, if ``signs`` are given, and  s_f x_f u >= 0 for the fixed rows (f, s_f).

    The cells that :func:`orthants` and :meth:`split` make cover all neurons. Rows that are not fixed are free.
    """

    X: Float[Tensor, "n d"]
    n_outputs: int
    signs: Float[Tensor, " c"] | None = None
    fixed: tuple[tuple[int, int], ...] = ()

    @property
    def size(self) -> int:
        """How many numbers a neuron has."""
        return self.n_outputs + self.X.shape[1]

    @cached_property
    def free(self) -> Int[Tensor, " m"]:
        """The rows whose sign is not known."""
        keep = torch.ones(len(self.X), dtype=torch.bool)
        keep[[row for row, _ in self.fixed]] = False
        return keep.nonzero()[:, 0]

    @cached_property
    def positive(self) -> Int[Tensor, " f"]:
        """The rows that are known to be active."""
        return torch.tensor([row for row, sign in self.fixed if sign > 0], dtype=torch.long)

    @cached_property
    def pre(self) -> Float[Tensor, "m z"]:
        """E with E z = X u on the free rows."""
        rows = self.X[self.free]
        return torch.cat([rows.new_zeros(len(rows), self.n_outputs), rows], 1)

    @cached_property
    def forms(self) -> Float[Tensor, "k z"]:
        """P with P z >= 0: output weights times their signs, then fixed rows, over a power of two near their length."""
        P = self.X.new_zeros(self.n_sign_forms + len(self.fixed), self.size)
        if self.signs is not None:
            P[range(self.n_outputs), range(self.n_outputs)] = self.signs
        for k, (row, sign) in enumerate(self.fixed, self.n_sign_forms):
            P[k, self.n_outputs :] = sign / self.unit(row) * self.X[row]
        return P

    @property
    def n_sign_forms(self) -> int:
        return 0 if self.signs is None else self.n_outputs

    def unit(self, row: int) -> float:
        """A power of two near the length of a row, by which its form is divided; division by it is exact."""
        length = float(torch.linalg.vector_norm(self.X[row]))
        return 2.0 ** round(math.log2(length)) if length > 0 else 1.0

    @cached_property
    def norm_form(self) -> Float[Tensor, " z"]:
        """kappa with kappa z >= |u|: the sum of |w_k| is at least |w| = |u|. Zero where signs are not known."""
        form = self.X.new_zeros(self.size)
        if self.signs is not None:
            form[: self.n_outputs] = self.signs
        return form

    @cached_property
    def balance(self) -> Float[Tensor, " z"]:
        """The diagonal of the quadratic form |u|^2 - |w|^2, which vanishes."""
        return torch.cat([-self.X.new_ones(self.n_outputs), self.X.new_ones(self.X.shape[1])])

    def split(self, row: int) -> tuple[Self, Self]:
        """The halves in which a free row is active, and in which it is not."""
        return replace(self, fixed=(*self.fixed, (row, 1))), replace(self, fixed=(*self.fixed, (row, -1)))


def orthants(X: Float[Tensor, "n d"], n_outputs: int, most_outputs: int) -> list[Cell]:
    """One cell for every choice of signs of the output weights; one without signs if there are too many outputs."""
    if n_outputs > most_outputs:
        return [Cell(X, n_outputs)]
    return [Cell(X, n_outputs, X.new_tensor(signs)) for signs in product((1.0, -1.0), repeat=n_outputs)]
