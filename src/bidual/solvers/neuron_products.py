"""Predictions of a list of neurons and their change along a line, without lifted variables where that is cheaper."""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.numerics.lbfgs import Rows
from bidual.numerics.sparse import column_squares, gram
from bidual.operators import GatedOperator, LiftedOperator, LinearOperator
from bidual.problems.problem import Problem
from bidual.types import Matrix

_ROTATED = 3000  # features up to which X^T X is diagonalised for the curvature


class NeuronProducts(ABC):
    r"""f = sum_j A_{p_j} (u_j w_j^T) at a point that moves along lines; neuron j is the row (u_j, w_j) in block p_j.

    Along a line f is quadratic, f + t f_1 + t^2 f_2, so a line search costs no product with A.
    """

    P: Matrix

    def __init__(self, operator: LiftedOperator, block: Tensor, rows: Rows) -> None:
        self.operator, self.block, self.rows = operator, block, rows

    @property
    def parts(self) -> tuple[Tensor, Tensor]:
        """U and W, one neuron a row."""
        return self._split(self.rows)

    @abstractmethod
    def along(self, step: Rows) -> tuple[Matrix, Matrix]:
        """f_1 and f_2 of a step."""

    @abstractmethod
    def pull(self, V: Matrix) -> Rows:
        """(G_p w_j, G_p^T u_j) with G = A* V, the gradient of <V, f>."""

    @abstractmethod
    def move(self, step: Rows, t: float, P: Matrix) -> None:
        """Move to rows + t step, with predictions P; ``step`` is that of the last call of ``along``."""

    def curvature(self, problem: Problem) -> "Curvature | None":
        """An approximation of the Hessian, neuron by neuron; None if there is none cheaper than A."""
        return None

    def _split(self, rows: Rows) -> tuple[Tensor, Tensor]:
        a = self.operator.block_shape[1]
        return rows[:, :a], rows[:, a:]


class LiftedProducts(NeuronProducts):
    """For any operator: every product forms the blocks."""

    def __init__(self, operator: LiftedOperator, block: Tensor, rows: Rows) -> None:
        used, index = torch.unique(block, return_inverse=True)
        super().__init__(operator.select(used), index, rows)
        self.P = self._forward(*self.parts)

    def along(self, step: Rows) -> tuple[Matrix, Matrix]:
        (U, W), (dU, dW) = self.parts, self._split(step)
        both = self._forward(torch.cat([dU, U]), torch.cat([W, dW]))
        return both, self._forward(dU, dW)

    def pull(self, V: Matrix) -> Rows:
        G, (U, W) = self.operator.adjoint(V)[self.block], self.parts
        return torch.cat([torch.einsum("rab,rb->ra", G, W), torch.einsum("rab,ra->rb", G, U)], 1)

    def move(self, step: Rows, t: float, P: Matrix) -> None:
        self.rows, self.P = self.rows + t * step, P

    def _forward(self, U: Tensor, W: Tensor) -> Matrix:
        return self.operator.forward(lifted(self.operator, self.block.repeat(len(U) // len(self.block)), U, W))


class SampleProducts(NeuronProducts):
    """For gated and linear networks: f = H W with the activations H = [D_p X u_j]_j, two products with X a step."""

    operator: GatedOperator | LinearOperator

    def __init__(
        self, operator: GatedOperator | LinearOperator, block: Tensor, rows: Rows, spectrum: "Spectrum"
    ) -> None:
        super().__init__(operator, block, rows)
        self.spectrum = spectrum
        self.mask = operator.patterns[block].T.to(rows).contiguous() if isinstance(operator, GatedOperator) else None
        U, W = self.parts
        self.H, self.dH, self.work = (rows.new_empty(len(operator.X), len(rows)) for _ in range(3))
        self.P = self._hidden(U, self.H) @ W

    def along(self, step: Rows) -> tuple[Matrix, Matrix]:
        W, (dU, dW) = self.parts[1], self._split(step)
        turned, second = (self._hidden(dU, self.dH) @ torch.cat([W, dW], 1)).chunk(2, 1)
        return torch.addmm(turned, self.H, dW), second

    def pull(self, V: Matrix) -> Rows:
        back = self._gated(torch.mm(V, self.parts[1].T, out=self.work))
        return torch.cat([self.operator.back_times(back).T, self.H.T @ V], 1)

    def move(self, step: Rows, t: float, P: Matrix) -> None:
        self.rows, self.P = self.rows + t * step, P
        self.H.add_(self.dH, alpha=t)

    def curvature(self, problem: Problem) -> "Curvature":
        r"""u_j sees w_j^T S w_j X^T D_p X + beta I, w_j sees |D_p X u_j|^2 S + beta I, S the mean Hessian of the loss.

        X^T D_p X is taken to be X^T X times the share of samples that are on.
        """
        W, data = self.parts[1], problem.datafit
        S = data.loss.summed_hessian(self.P + data.offset(self.P), data.targets, data.weights) / len(self.P)
        values, vectors = torch.linalg.eigh(S)
        share = 1.0 if self.mask is None else self.mask.abs().mean(0)
        bend = (((W @ S) * W).sum(1).clamp(min=0) * share)[:, None] * self.spectrum.values
        outer = self.H.square().sum(0)[:, None] * values.clamp(min=0)
        return Curvature(self.spectrum.vectors, bend + problem.beta, vectors, outer + problem.beta)

    def _hidden(self, U: Tensor, out: Tensor) -> Tensor:
        return self._gated(self.operator.times(U.T, out=out))

    def _gated(self, H: Tensor) -> Tensor:
        return H if self.mask is None else H.mul_(self.mask)


class Spectrum:
    """Of X^T X: its eigenvalues and eigenvectors, or its diagonal where there are too many features for that."""

    def __init__(self, X: Float[Tensor, "n d"]) -> None:
        self.vectors: Tensor | None = None
        if X.shape[1] > _ROTATED:
            self.values = column_squares(X)
        else:
            values, self.vectors = torch.linalg.eigh(gram(X))
            self.values = values.clamp(min=0)


class Curvature:
    """E diag E^T for every neuron's u, and the same for its w."""

    def __init__(
        self, left: Tensor | None, inner: Float[Tensor, "r a"], right: Tensor, outer: Float[Tensor, "r b"]
    ) -> None:
        self.left, self.inner, self.right, self.outer = left, inner, right, outer

    def divide(self, rows: Rows) -> Rows:
        """The inverse times the rows."""
        U, W = rows[:, : self.inner.shape[1]], rows[:, self.inner.shape[1] :]
        first = U / self.inner if self.left is None else ((U @ self.left) / self.inner) @ self.left.T
        return torch.cat([first, ((W @ self.right) / self.outer) @ self.right.T], 1)


class ProductsFor:
    """Makes the products of changing lists of neurons; the spectrum of the data is computed once."""

    def __init__(self, operator: LiftedOperator) -> None:
        self.operator = operator
        self.spectrum = Spectrum(operator.X) if isinstance(operator, GatedOperator | LinearOperator) else None

    def __call__(self, block: Tensor, rows: Rows) -> NeuronProducts:
        if self.spectrum is None or not isinstance(self.operator, GatedOperator | LinearOperator):
            return LiftedProducts(self.operator, block, rows)
        return SampleProducts(self.operator, block, rows, self.spectrum)


def lifted(operator: LiftedOperator, block: Tensor, U: Tensor, W: Tensor) -> Float[Tensor, "p a b"]:
    """Z_p = sum of u_j w_j^T over the neurons of block p."""
    return operator.zeros().index_add_(0, block, U[:, :, None] * W[:, None, :])
