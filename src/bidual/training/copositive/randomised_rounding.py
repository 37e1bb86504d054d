"""The copositive program CP (17), and networks from the moment matrices of a relaxation: draw neurons, then descend."""

import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from math import inf

import torch
from jaxtyping import Float
from numpy import ndarray
from scipy.optimize import minimize
from torch import Tensor

from bidual.polar.base import Neurons
from bidual.problems.problem import ReluProblem
from bidual.types import Matrix

_MOST_DRAWN = 400
_SCALES = tuple(2.0**k for k in range(-8, 9))


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


def rounded_neurons(
    problem: ReluProblem,
    factors: tuple[Float[Tensor, "k d"], ...],
    *,
    seed: int = 0,
    steps: int = 1500,
    max_time: float | None = None,
    enough: float = -inf,
) -> Neurons:
    r"""Neurons u ~ N(0, U_p) of every relaxed U_p, with the axes of U_p and their opposites, then descent on psi.

    Every u is in the cone of some pattern, so every draw is a network; on spike-free data all features (X u)_+ are
    those of the one cone X u >= 0. Descent is L-BFGS on psi, in which output weights are eliminated
    (:class:`CopositiveProgram`). It stops after ``steps``, after ``max_time`` seconds, or where psi is at most
    ``enough``.
    """
    if not factors:
        return problem.X[:0]
    program = CopositiveProgram(problem)
    start = _scaled(program, _drawn(factors, len(problem.X), seed))
    deadline = inf if max_time is None else time.perf_counter() + max_time
    best = inf, start

    def objective(flat: ndarray) -> tuple[float, ndarray]:
        nonlocal best
        point = torch.from_numpy(flat).reshape(start.shape).to(start)
        value, slope = program.value_and_slope(point)
        best = min(best, (value, point.clone()), key=lambda pair: pair[0])
        if value <= enough or time.perf_counter() > deadline:
            raise StopIteration
        return value, slope.cpu().numpy().ravel()

    options = {"maxiter": steps, "maxfun": 2 * steps, "maxcor": 20, "ftol": 1e-13, "gtol": 1e-10}
    with suppress(StopIteration):
        minimize(objective, start.cpu().numpy().ravel(), jac=True, method="L-BFGS-B", options=options)
    return best[1]


def _drawn(factors: tuple[Tensor, ...], n: int, seed: int) -> Neurons:
    """As many as twice the samples, shared by weight, at least both ends of every axis."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.stack([rows.square().sum() for rows in factors])
    total = min(_MOST_DRAWN, max(2 * n, 64))
    drawn = []
    for rows, share in zip(factors, weight / weight.sum().clamp(min=1e-300), strict=True):
        rows = rows[torch.linalg.vector_norm(rows, dim=1) > 1e-7 * float(weight.sum().sqrt())]
        noise = torch.randn(int(total * share), len(rows), generator=generator, dtype=rows.dtype).to(rows)
        drawn += [rows, -rows, noise @ rows]
    return torch.cat(drawn)


def _scaled(program: CopositiveProgram, neurons: Neurons) -> Neurons:
    """The neurons at the best of some sizes; factors of relaxations are right up to one factor."""
    size = float(torch.linalg.vector_norm(neurons)) or 1.0
    unit = float(program.problem.datafit.scale / program.problem.beta) ** 0.5
    return min((neurons * (scale * unit / size) for scale in _SCALES), key=program.value)
