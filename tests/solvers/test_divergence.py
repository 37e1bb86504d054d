"""Single precision can be too little for a kernel, and exponentials overflow; solvers must end or begin elsewhere."""

import math

import numpy as np
import pytest
import torch

from bidual import ConvexAttentionRegressor, regularization_path
from bidual.gauges import Group, Nuclear
from bidual.losses import Poisson, Squared
from bidual.losses.datafit import Datafit
from bidual.operators import GatedOperator, LinearOperator
from bidual.problems.problem import Problem
from bidual.problems.solution import Limits, Status
from bidual.solvers import SOLVERS, KernelADMM
from bidual.solvers.driver import solve
from bidual.solvers.plan import solve_auto
from helpers.draws import normal


def turning_gates() -> np.ndarray:
    gates = []
    for threshold in (0, 0.4, 0.8):
        for t in 2 * np.pi * np.arange(6) / 6:
            turn = [[np.cos(t), -np.sin(t), 0], [np.sin(t), np.cos(t), 0], [0, 0, -threshold]]
            gates.append(np.array(turn).ravel(order="F"))
    return np.array(gates).T


def test_a_path_to_small_betas_on_an_ill_conditioned_kernel() -> None:
    """Its last beta once made float32 ADMM grow to 1e20, where an eigenvalue routine gave up."""
    rng = np.random.default_rng(0)
    kind = rng.permuted(np.tile(np.arange(12) % 3, (60, 1)), axis=1)
    angle = rng.uniform(0, 2 * np.pi, (60, 1)) + 2 * np.pi * kind / 3
    Y = np.stack([np.cos(angle), np.sin(angle)], 2)
    X = np.concatenate([Y + 0.3 * rng.standard_normal(Y.shape), np.ones((60, 12, 1))], 2)
    estimator = ConvexAttentionRegressor(gates=turning_gates(), tol=1e-3)
    path = regularization_path(estimator, X, Y, n_betas=5, ratio=1e-4)
    assert all(solution.certificate.relative_gap <= 1e-3 for solution in path.solutions)


def test_steps_that_grow_end_the_run_with_the_best_point() -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(20, 3, generator=generator, dtype=torch.float64)
    patterns = torch.rand(6, 20, generator=generator) > 0.5
    problem = Problem(GatedOperator(X, patterns, 2), Datafit(Squared(), X[:, :2]), Nuclear(), 0.1)
    solver = KernelADMM("float64")

    class Growing(KernelADMM):
        def step(self, problem, state):
            if state.steps == 5:
                state.x = state.x * 1e12
            return super().step(problem, state)

    grown = solve(problem, Growing("float64"), Limits(1e-12, 500))
    assert grown.status is Status.STALLED
    assert grown.n_steps < 20
    assert grown.certificate.primal <= 10 * solve(problem, solver, Limits(1e-6)).certificate.primal


def test_rounding_is_not_counted_as_neurons() -> None:
    """Float32 leaves every block with tiny singular values; the solution is returned without them."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(80, 8, generator=generator, dtype=torch.float64)
    patterns = (X @ torch.randn(8, 40, generator=generator, dtype=torch.float64) >= 0).T
    Y = torch.relu(X[:, :3]) @ torch.randn(3, 6, generator=generator, dtype=torch.float64)
    problem = Problem(GatedOperator(X, patterns, 6), Datafit(Squared(), Y), Nuclear(), 1.0)
    problem = problem.with_beta(0.1 * problem.beta_max)
    solution = solve_auto(problem, Limits(1e-5), solver=KernelADMM("float32"))
    size = torch.linalg.svdvals(solution.Z)
    exact = torch.linalg.svdvals(solve_auto(problem, Limits(1e-9)).Z)
    assert int((size > 1e-13 * size.max()).sum()) <= int((exact > 1e-7 * exact.max()).sum()) + 2
    assert solution.certificate.recheck(problem)


@pytest.mark.parametrize("name", ["fista", "smoothed_newton", "kernel_admm", "primal_dual", "active_neurons"])
def test_a_start_where_the_loss_overflows_is_not_used(name: str) -> None:
    """Every step from there was NaN."""
    X, Y = 100 * normal(20, 3), (2 * normal(20, 1, seed=1)).exp().floor()
    problem = Problem(LinearOperator(X, 1), Datafit(Poisson(), Y), Group(), 100.0)
    start = torch.full(problem.operator.block_shape, 50.0, dtype=torch.float64)
    assert problem.primal(start) == math.inf
    found = solve(problem, SOLVERS[name](), Limits(1e-4, 3000), start=start)
    assert found.certificate.relative_gap <= 1e-4
