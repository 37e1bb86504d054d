"""Certificates of convex programs over given blocks: every architecture, loss, gauge and solver."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import cvxpy as cp
import numpy as np
import torch
from numpy import ndarray
from numpy.random import Generator

from bidual.gauges import GAUGES
from bidual.operators import GatedOperator, LiftedOperator, LinearOperator, NeuronOperator, PooledOperator
from bidual.operators.patches import Convolution, ImagePatches
from bidual.operators.patches.tokens import TokenPairs
from bidual.operators.stacked import GatedSubNetworkOperator
from bidual.patterns import activations, sample_gates
from bidual.problems.certificate import Certificate, certify
from bidual.problems.problem import Problem
from bidual.problems.solution import Limits
from bidual.solvers import SOLVERS
from bidual.solvers.driver import solve
from bidual.solvers.plan import solve_auto
from oracles.cvxpy_oracle import cvxpy_point
from oracles.explicit_readouts import explicit_tokens, image_rows, pooled_readout, window_averages
from soundness.cases import BREAKDOWNS, TRANSLATING, Fit, Issued, labels, share_of_beta_max, single
from soundness.extended import GAUGES as PRICES
from soundness.extended import LOSSES, gated_design, token_rows, wide
from soundness.samples import kind_of, samples, targets

VARIANTS = 4  # of every problem: other units, another solver, another precision
_SECONDS = 0.4  # for one solver


@dataclass(frozen=True)
class Lifted:
    """An operator, and the design B of A Z = B Z.reshape(-1, c) in extended precision."""

    operator: LiftedOperator
    design: ndarray

    def predictions(self, Z: ndarray) -> ndarray:
        return self.design @ wide(Z).reshape(-1, self.operator.output_shape[1])


class Architectures:
    """One method per architecture: the operator for samples in given units."""

    def __init__(self, rng: Generator) -> None:
        self.double = bool(rng.random() < 0.4)
        self.c, self.kind = int(rng.integers(1, 4)), kind_of(rng, self.double)
        self.n, self.d = int(rng.integers(1, 9)), int(rng.integers(1, 4))
        self.seed = int(rng.integers(2**31))

    def _samples(self, n: int, d: int, unit: float) -> torch.Tensor:
        return torch.from_numpy(samples(np.random.default_rng(self.seed), self.kind, n, d, self.double) * unit)

    def _patterns(self, rows: torch.Tensor, count: int = 3) -> torch.Tensor:
        """The same in all units, which are powers of two."""
        generator = torch.Generator().manual_seed(self.seed)
        scaled = rows / rows.abs().max().clamp(min=1e-300) if bool(rows.any()) else rows
        return activations(scaled, sample_gates(scaled, count, generator))

    def linear(self, unit: float) -> Lifted:
        X = self._samples(self.n, self.d, unit)
        return Lifted(LinearOperator(X, self.c), wide(X.numpy()))

    def gated(self, unit: float) -> Lifted:
        X = self._samples(self.n, self.d, unit)
        active = self._patterns(X)
        return Lifted(GatedOperator(X, active, self.c), gated_design(X.numpy(), active.numpy()))

    def neurons(self, unit: float) -> Lifted:
        X = self._samples(self.n, self.d, unit)
        drawn = np.random.default_rng(self.seed).standard_normal((4, self.d))
        neurons = (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32).astype(np.float64)
        design = np.maximum(wide(X.numpy()) @ wide(neurons).T, 0)
        return Lifted(NeuronOperator(X, torch.from_numpy(neurons), self.c), design)

    def cells(self, unit: float) -> Lifted:
        X = self._samples(self.n, self.d, unit)
        active = self._patterns(X, 4)
        active = active[: 2 * (len(active) // 2)] if len(active) > 1 else active.repeat(2, 1)
        return Lifted(
            GatedSubNetworkOperator(X, active.reshape(-1, 2, self.n), self.c), gated_design(X.numpy(), active.numpy())
        )

    def convolution(self, unit: float) -> Lifted:
        X = self._samples(self.n, 3 + self.d, unit)[:, None]
        patches = ImagePatches(X, Convolution.of(1, self.d, pooling=(2,) if self.seed % 2 else ()))
        explicit = image_rows(X, (self.d,), (1,), (0,), (1,))
        pooling = window_averages((4,), (2,) if self.seed % 2 else (1,))
        return self._pooled(patches, pooled_readout(pooling, self.n), wide(explicit.numpy()))

    def attention(self, unit: float) -> Lifted:
        n, d = min(self.n, 4), min(self.d, 2)
        X = self._samples(n * 2, d, unit).reshape(n, 2, d)
        return self._pooled(TokenPairs(X, True), explicit_tokens(X, True).readout, token_rows(X.numpy()))

    def _pooled(self, patches: ImagePatches | TokenPairs, readout: torch.Tensor, rows: ndarray) -> Lifted:
        active = self._patterns(patches.rows(), 2)
        design = np.einsum("iar,pr,rh->ipha", wide(readout.numpy()), wide(active.numpy()), rows)
        return Lifted(PooledOperator(patches, self.c, patterns=active), design.reshape(len(design), -1))


DEGREE = {"attention": 3}  # by how much predictions grow where samples double, as a power
NAMES = ("linear", "gated", "neurons", "cells", "convolution", "attention")


def block_case(rng: Generator) -> Iterator[Issued]:
    """One problem in four units, with four solvers, held against cvxpy in units where that is at its best."""
    name = str(rng.choice(NAMES))
    made, loss, gauge = Architectures(rng), str(rng.choice(list(LOSSES))), str(rng.choice(list(GAUGES)))
    lifted = getattr(made, name)(1.0)
    n, c = lifted.operator.output_shape
    fit = Fit.draw(rng, loss, targets(rng, loss, n, c))
    problem = Problem(lifted.operator, fit.datafit, GAUGES[gauge](), 1.0)
    beta = single(share_of_beta_max(rng) * (problem.beta_max or 1.0))
    known = reference(fit, problem.with_beta(beta))
    for _ in range(VARIANTS):
        power = int(rng.integers(-40, 41)) if rng.random() < 0.6 else 0
        up = int(rng.integers(-40, 41)) if loss in TRANSLATING and rng.random() < 0.6 else 0
        if 0 < beta * fit.value_scale(up) * 2.0 ** (DEGREE.get(name, 1) * power - up) < np.inf:
            yield _issued(rng, made, name, fit, gauge, beta, known, (power, up))


def reference(fit: Fit, problem: Problem) -> list[ndarray]:
    """A point of cvxpy's; none beyond what Clarabel copes with, where the other solvers' points are left."""
    moderate, unit = fit.of_moderate_weight()
    try:
        return [cvxpy_point(replace(problem, datafit=moderate.datafit, beta=problem.beta / unit))[1]]
    except (cp.SolverError, ValueError):
        return []


def _issued(
    rng: Generator,
    made: Architectures,
    name: str,
    fit: Fit,
    gauge: str,
    beta: float,
    known: list[ndarray],
    powers: tuple[int, int],
) -> Issued:
    power, up = powers
    lifted, degree = getattr(made, name)(2.0**power), DEGREE.get(name, 1)
    there = fit.scaled(up)
    unit = 2.0 ** (up - degree * power)  # of Z
    in_range = abs(power) + abs(up) < 20 and not made.double
    dtype = torch.float32 if rng.random() < 0.4 and in_range else torch.float64
    datafit = there.datafit_in(dtype)
    scaled = beta * fit.value_scale(up) / unit
    problem = Problem(lifted.operator.to(dtype), datafit, GAUGES[gauge](), scaled)
    exact, judged = datafit.to(torch.float64), problem.operator.to(torch.float64)

    def objective(Z: ndarray) -> np.longdouble:
        seen = judged.forward(torch.from_numpy(Z))
        return there.value(exact, lifted.predictions(Z), seen) + PRICES[gauge](wide(Z)) * np.longdouble(scaled)

    solver = str(rng.choice([*_takers(problem), "auto"]))
    told = labels(
        architecture=name, loss=fit.loss, gauge=gauge, solver=solver, dtype=dtype, scope="BLOCKS", data=made.kind
    )
    issued = Issued(told, attained=[objective(Z * unit) for Z in known] + [objective(0 * Z) for Z in known[:1]])
    tol = float(rng.choice([1e-2, 1e-6, 1e-12]))
    try:
        certificates = [_solved(problem, solver, tol, int(rng.choice([1, 20, 300])))]
    except BREAKDOWNS as error:
        certificates, issued.refused = [], type(error).__name__
    certificates += _anywhere(rng, problem.to(torch.float64), [c.point for c in certificates])
    issued.certificates = [(made, objective(made.point.numpy())) for made in certificates]
    return issued


def _takers(problem: Problem) -> list[str]:
    return [name for name, make in SOLVERS.items() if make().refusal(problem) is None]


def _solved(problem: Problem, solver: str, tol: float, steps: int) -> Certificate:
    if solver == "auto":
        return solve_auto(problem, Limits(tol, steps, max_time=_SECONDS)).certificate
    return solve(problem, SOLVERS[solver](), Limits(tol, steps, max_time=_SECONDS)).certificate


def _anywhere(rng: Generator, problem: Problem, points: list[torch.Tensor]) -> list[Certificate]:
    """Certificates at points and dual candidates that no solver would offer."""
    shape, (n, c) = problem.operator.block_shape, problem.operator.output_shape
    V = problem.residual(problem.operator.zeros())
    size = float(V.abs().max()) or 1.0
    wild = size * torch.from_numpy(rng.standard_normal((n, c)) * 10.0 ** rng.choice([-9, 0, 9]))
    near = [p * (1 + 1e-9 * torch.from_numpy(rng.standard_normal(shape))) for p in points[:1]]
    Z = torch.from_numpy(rng.standard_normal(shape) * 10.0 ** rng.uniform(-12, 12))
    return [certify(problem, Z, [float(rng.choice([-1, 1])) * V]), *(certify(problem, p, [wild]) for p in near)]
