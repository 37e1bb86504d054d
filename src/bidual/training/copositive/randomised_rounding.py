"""Networks from the moment matrices of a relaxation: draw neurons, then descend."""

import time
from contextlib import suppress
from dataclasses import dataclass
from math import inf

import torch
from jaxtyping import Float
from numpy import ndarray
from scipy.optimize import minimize
from torch import Tensor

from bidual.polar.base import Neurons
from bidual.problems.relu import ReluProblem
from bidual.training.copositive.program import CopositiveProgram

_SCALES = tuple(2.0**k for k in range(-8, 9))


@dataclass(frozen=True)
class RandomisedRounding:
    r"""Neurons u ~ N(0, U_p) of every relaxed U_p, with the axes of U_p and their opposites, then descent on psi.

    Every u is in the cone of some pattern, so every draw is a network; on spike-free data all features (X u)_+ are
    those of the one cone X u >= 0. Descent is L-BFGS on psi, in which output weights are eliminated
    (:class:`CopositiveProgram`).

    Attributes:
        neurons: the most to draw.
        steps: of descent.
        seed: of the draws.
    """

    neurons: int = 400
    steps: int = 1500
    seed: int = 0

    def __call__(
        self,
        problem: ReluProblem,
        factors: tuple[Float[Tensor, "k d"], ...],
        max_time: float | None = None,
        enough: float = -inf,
    ) -> Neurons:
        """Hidden neurons from the factors of all U_p; their output weights follow by ridge regression.

        Descent stops after ``max_time`` seconds, or where psi is at most ``enough``.
        """
        if not factors:
            return problem.X[:0]
        program = CopositiveProgram(problem)
        return self._descend(program, _scaled(program, self._draw(factors, len(problem.X))), max_time, enough)

    def _draw(self, factors: tuple[Tensor, ...], n: int) -> Neurons:
        """As many as twice the samples, shared by weight, at least both ends of every axis."""
        generator = torch.Generator().manual_seed(self.seed)
        weight = torch.stack([rows.square().sum() for rows in factors])
        total = min(self.neurons, max(2 * n, 64))
        drawn = []
        for rows, share in zip(factors, weight / weight.sum().clamp(min=1e-300), strict=True):
            rows = rows[torch.linalg.vector_norm(rows, dim=1) > 1e-7 * float(weight.sum().sqrt())]
            noise = torch.randn(int(total * share), len(rows), generator=generator, dtype=rows.dtype).to(rows)
            drawn += [rows, -rows, noise @ rows]
        return torch.cat(drawn)

    def _descend(self, program: CopositiveProgram, start: Neurons, max_time: float | None, enough: float) -> Neurons:
        shape, best = start.shape, (inf, start)
        deadline = inf if max_time is None else time.perf_counter() + max_time

        def objective(flat: ndarray) -> tuple[float, ndarray]:
            nonlocal best
            point = torch.from_numpy(flat).reshape(shape).to(start)
            value, slope = program.value_and_slope(point)
            best = min(best, (value, point.clone()), key=lambda pair: pair[0])
            if value <= enough or time.perf_counter() > deadline:
                raise StopIteration
            return value, slope.cpu().numpy().ravel()

        options = {"maxiter": self.steps, "maxfun": 2 * self.steps, "maxcor": 20, "ftol": 1e-13, "gtol": 1e-10}
        with suppress(StopIteration):
            minimize(objective, start.cpu().numpy().ravel(), jac=True, method="L-BFGS-B", options=options)
        return best[1]


def _scaled(program: CopositiveProgram, neurons: Neurons) -> Neurons:
    """The neurons at the best of some sizes; factors of relaxations are right up to one factor."""
    size = float(torch.linalg.vector_norm(neurons)) or 1.0
    unit = float(program.problem.datafit.scale / program.problem.beta) ** 0.5
    return min((neurons * (scale * unit / size) for scale in _SCALES), key=program.value)
