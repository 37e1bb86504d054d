"""The copositive program CP (17): its objective, and the map from networks to its points and back (CP Theorem 3)."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.polar.base import Neurons
from bidual.problems.relu import ReluProblem
from bidual.types import Matrix


@dataclass(frozen=True, eq=False)
class CopositiveProgram:
    r"""min 1/2 tr Y^T (I + 2 sum_p D_p X U_p X^T D_p)^-1 Y + beta^2 sum_p tr U_p over U_p in C_p (CP eq. 17).

    A point of C_p = conv { u u^T : u in the cone of pattern p } is a list of neurons of that cone,
    U_p = sum_j u_j u_j^T / (2 beta), and D_p X u = (X u)_+ there. In terms of the neurons the objective is

        psi(u_1, ..., u_m) = 1/2 tr Y^T (I + H H^T / beta)^-1 Y + beta/2 sum_j |u_j|^2,     H = (X u_1)_+, ...,

    and that is the training objective (5) after its minimisation over output weights, the ridge regression
    W = H^T R / beta with the residual R = (I + H H^T / beta)^-1 Y: the proof of CP Theorem 3, read backwards.
    Sample weights multiply the rows of H and Y by their roots; an intercept projects the root of weights out of them.
    """

    problem: ReluProblem

    def value(self, neurons: Neurons) -> float:
        """psi."""
        return float(self._solved(neurons)[0])

    def value_and_slope(self, neurons: Neurons) -> tuple[float, Neurons]:
        """psi and its gradient, where no (X u)_i is zero."""
        value, B, R, lit = self._solved(neurons)
        back = -self._map_back(R @ (R.T @ B)) / self.problem.beta
        return float(value), (back * lit).T @ self.problem.X + self.problem.beta * neurons

    def output_weights(self, neurons: Neurons) -> Float[Tensor, "m c"]:
        """The W that goes with the neurons."""
        _, B, R, _ = self._solved(neurons)
        return B.T @ R / self.problem.beta

    def dual_point(self, neurons: Neurons) -> Matrix:
        """The gradient of the data term at this network."""
        return -self._map_back(self._solved(neurons)[2])

    def _solved(self, neurons: Neurons) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(psi, B, R, where neurons are active), B and R mapped features and residual."""
        hidden, beta = self.problem.X @ neurons.T, self.problem.beta
        B = self._map(hidden.clamp(min=0))
        S = torch.eye(len(B), dtype=B.dtype, device=B.device) + B @ B.T / beta
        R = torch.cholesky_solve(self._targets, torch.linalg.cholesky(S))
        value = 0.5 * (self._targets * R).sum() + 0.5 * beta * neurons.square().sum()
        return value, B, R, hidden > 0

    @cached_property
    def _roots(self) -> Float[Tensor, "n 1"]:
        return self.problem.datafit.weights.sqrt()

    @cached_property
    def _targets(self) -> Matrix:
        return self._map(self.problem.datafit.targets)

    def _map(self, A: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        """Rows times the roots of weights, without their component along these if there is an intercept."""
        return self._project(self._roots * A)

    def _map_back(self, A: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        """The adjoint."""
        return self._roots * self._project(A)

    def _project(self, A: Tensor) -> Tensor:
        if not self.problem.datafit.intercept:
            return A
        q = self._roots / torch.linalg.vector_norm(self._roots)
        return A - q @ (q.T @ A)
