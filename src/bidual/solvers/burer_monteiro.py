"""The factored program: gradient methods on the neurons themselves."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from bidual.abilities import ability
from bidual.driver import Solver
from bidual.gauges import Factorised, Factors
from bidual.problem import Problem


@dataclass
class _State:
    factors: Factors
    value: float
    stuck: bool = False


@dataclass(frozen=True)
class BurerMonteiro(Solver):
    r"""min_{U,W} F(A (U_p W_p^T)_p) + beta/2 (|U|^2 + |W|^2) by L-BFGS (BM eq. 17, 18).

    ``rank`` is m, the neurons per block; the default min(a, b) leaves no spurious local minima for linear and gated
    networks (docs/corrections.md, BM Thm 3.3). One step is a run of ``chunk`` L-BFGS iterations; the certificate of the
    convex program judges the result, so a saddle is never mistaken for an optimum.
    """

    rank: int | None = None
    chunk: int = 200
    seed: int = 0
    name = "burer_monteiro"
    needs = {"gauge": (Factorised,)}  # noqa: RUF012
    needs_smooth_loss = True
    instead = "kernel_admm"
    check_every = 1

    def __post_init__(self) -> None:
        if self.rank is not None and self.rank < 1:
            raise ValueError(f"rank must be at least 1, got {self.rank}.")

    def _refusal(self, problem: Problem) -> str | None:
        if not ability(problem.gauge, Factorised).smooth_factors(problem.operator.block_shape[2]):
            return (
                f"burer_monteiro needs a smooth price on factors; {problem.gauge.name} with several outputs has none."
            )
        return None

    def init(self, problem: Problem, start: Tensor | None, dual: Tensor | None) -> _State:
        p, a, b = problem.operator.block_shape
        m = self.rank or min(a, b)
        generator = torch.Generator().manual_seed(self.seed)
        scale = 0.1 if start is None else 1e-3
        U, W = (
            scale * torch.randn(p, side, m, generator=generator, dtype=torch.float64).to(problem.operator.like)
            for side in (a, b)
        )
        if start is not None:
            left, right = ability(problem.gauge, Factorised).split(start)
            kept = min(m, left.shape[2])
            U[:, :, :kept] += left[:, :, :kept]
            W[:, :, :kept] += right[:, :, :kept]
        return _State(Factors(U, W), float("inf"))

    def step(self, problem: Problem, state: _State) -> _State:
        shapes = [tuple(part.shape) for part in state.factors]

        def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
            factors = _unpack(x, shapes, problem.operator.like)
            value, gradient = _factored_gradient(problem, factors)
            return value, _pack(gradient)

        options = {"maxiter": self.chunk, "maxfun": 2 * self.chunk, "maxcor": 30, "ftol": 0, "gtol": 1e-12}
        found = minimize(objective, _pack(state.factors), jac=True, method="L-BFGS-B", options=options)
        stuck = not found.fun < state.value * (1 - 1e-12)
        return _State(_unpack(found.x, shapes, problem.operator.like), float(found.fun), stuck)

    def point(self, problem: Problem, state: _State) -> Tensor:
        return state.factors.U @ state.factors.W.mT

    def finished(self, state: _State) -> bool:
        return state.stuck


def _factored_gradient(problem: Problem, factors: Factors) -> tuple[float, Factors]:
    """Value and gradient of BM (18); grad_U = G W + beta U, grad_W = G^T U + beta W with G = A* grad F."""
    U, W = factors
    predictions = problem.operator.forward(U @ W.mT)
    G = problem.operator.adjoint(problem.datafit.grad(predictions))
    price = 0.5 * problem.beta * float(U.square().sum() + W.square().sum())
    return problem.datafit.value(predictions) + price, Factors(G @ W + problem.beta * U, G.mT @ U + problem.beta * W)


def _pack(factors: Factors) -> np.ndarray:
    return torch.cat([part.flatten() for part in factors]).cpu().double().numpy()


def _unpack(x: np.ndarray, shapes: list[tuple[int, ...]], like: Tensor) -> Factors:
    flat = torch.from_numpy(x).to(like)
    first = int(np.prod(shapes[0]))
    return Factors(flat[:first].reshape(shapes[0]), flat[first:].reshape(shapes[1]))
