"""The joint product bound of parallel networks against enumeration, gradient descent and rechecks."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import bidual
from bidual import ConvexParallelRegressor
from bidual.architectures.modules import ParallelNetwork
from bidual.losses import Logistic, Squared
from bidual.losses.datafit import Datafit
from bidual.papers.methods.path_norm import path_norm_of
from bidual.patterns import with_constant
from bidual.problems.parallel import ParallelProblem
from bidual.problems.problem import Problem
from bidual.problems.solution import Limits, Solution
from bidual.solvers.driver import solve
from bidual.training.parallel.plan import ParallelPlan
from bidual.training.parallel.product_bound import JointParallelBound
from helpers.draws import normal


def teacher(n: int, d: int, seed: int, noise: float = 0.0) -> tuple[Tensor, Tensor]:
    """Five sub-networks of three layers, and noise in units of their spread."""
    generator = torch.Generator().manual_seed(seed)
    sizes = ((n, d), (5, d, 3), (5, 3, 1), (5, 1, 1))
    X, W, w, z = (torch.randn(*size, generator=generator).double() for size in sizes)
    y = (torch.relu(torch.relu(X @ W) @ w) @ z).sum(0)
    return X, y + noise * y.std() * torch.randn(y.shape, generator=generator).double()


def searched(X: Tensor, datafit: Datafit, share: float, widths: int | tuple[int, ...] = 3) -> Solution:
    plan = ParallelPlan(X, widths, "search")
    problem = ParallelProblem(X, datafit, 1.0, widths)
    return plan.train(problem.with_beta(share * plan.beta_max(problem)), Limits(1e-5), prove=False)


def bounded(found: Solution, X: Tensor, widths: int | tuple[int, ...], steps: int, tol: float = 1e-6) -> Solution:
    problem = ParallelProblem(X, found.problem.datafit, found.problem.beta, widths)
    return solve(problem, JointParallelBound(), Limits(tol, steps), start=found)


@pytest.mark.parametrize(("seed", "share"), [(0, 0.3), (1, 0.1)])
def test_never_above_an_enumerated_optimum(seed: int, share: float) -> None:
    X, y = normal(5, 2, seed=seed), normal(5, 1, seed=seed + 9)
    found = searched(X, Datafit(Squared(), y), share, 2)
    certificate = bounded(found, X, 2, steps=3).certificate
    problem = ParallelProblem(X, found.problem.datafit, found.problem.beta, 2)
    exact = ParallelPlan(X, 2, "exact").train(problem, Limits(1e-6)).certificate
    assert exact.relative_gap <= 1e-6
    assert 0.5 * exact.dual <= certificate.dual <= exact.primal * (1 + 1e-12)


def trained_by_adam(X: Tensor, y: Tensor, beta: float, steps: int = 300) -> float:
    """The least objective on the way of a network of 20 sub-networks."""
    generator = torch.Generator().manual_seed(0)
    module = ParallelNetwork(X.shape[1], [3, 1], 1, 20)
    with torch.no_grad():
        for layer in module.layers:
            layer.copy_(torch.randn(layer.shape, generator=generator) / layer.shape[1] ** 0.5)
    optimiser, best = torch.optim.Adam(module.layers, lr=0.02), float("inf")
    for _ in range(steps):
        optimiser.zero_grad()
        value = 0.5 * (module(X) - y).square().sum() + beta * path_norm_of(module)
        value.backward()
        optimiser.step()
        best = min(best, value.item())
    return best


def test_a_teacher_of_rank_five_is_certified() -> None:
    """At a tenth of beta_max; no descent is below."""
    X, y = teacher(40, 5, 1, 0.1)
    found = searched(X, Datafit(Squared(), y), 0.1)
    done = bounded(found, X, 3, steps=4, tol=0.1)
    assert done.certificate.relative_gap <= 0.1
    assert done.solver.endswith(JointParallelBound.name)
    assert done.certificate.dual <= trained_by_adam(X, y, done.problem.beta) * (1 + 1e-12)
    assert done.certificate.recheck(done.problem)


@pytest.mark.slow
@pytest.mark.parametrize("n", [60, 100, 200])
@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_rank_five_at_a_tenth_of_beta_max(n: int, noise: float) -> None:
    X, y = teacher(n, 5, 0, noise)
    problem, plan = ParallelProblem(X, Datafit(Squared(), y), 1.0, 3), ParallelPlan(X, 3)
    problem = problem.with_beta(0.1 * plan.beta_max(problem))
    certificate = plan.train(problem, Limits(0.05, max_time=60)).certificate
    assert certificate.relative_gap <= 0.1
    assert certificate.dual <= trained_by_adam(X, y, problem.beta, steps=4000) * (1 + 1e-12)


def test_rounds_only_improve() -> None:
    X, y = teacher(15, 4, 2, 0.5)
    found = searched(X, Datafit(Squared(), y), 0.1)
    gaps = [record.relative_gap for record in bounded(found, X, 3, steps=4).history[len(found.history) :]]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 0.8 * gaps[0]


def test_logistic_loss_with_an_intercept() -> None:
    X, y = teacher(15, 4, 0)
    found = searched(X, Datafit(Logistic(), (y - y.median() + 1e-9).sign(), None, True), 0.1)
    done = bounded(found, X, 3, steps=3)
    assert done.certificate.relative_gap <= 0.2
    assert done.certificate.recheck(done.problem)


def test_four_layers() -> None:
    X, y = teacher(12, 3, 3)
    found = searched(X, Datafit(Squared(), y), 0.1, (2, 2))
    done = bounded(found, X, (2, 2), steps=3)
    assert done.certificate.relative_gap <= 0.3
    assert done.certificate.recheck(done.problem)


def test_the_witness_is_saved_and_rechecked(tmp_path: Path) -> None:
    X, y = teacher(40, 5, 1)
    model = ConvexParallelRegressor(max_time=4, tol=0.05).fit(X.numpy(), y[:, 0].numpy())
    assert model.certificate_.witness is not None
    model.save(tmp_path / "model.safetensors")
    again = bidual.load(tmp_path / "model.safetensors")
    certificate, program = again.certificate_, _program(again, X, y)
    assert certificate.recheck(program)
    assert not replace(certificate, dual=certificate.dual * 1.01).recheck(program)
    assert not replace(certificate, polar=certificate.polar / 2, dual_point=2 * certificate.dual_point).recheck(program)
    assert not replace(certificate, witness=certificate.witness[:1]).recheck(program)


def _program(model: ConvexParallelRegressor, X: Tensor, y: Tensor) -> Problem:
    """The program over the network's own neurons."""
    datafit = Datafit(Squared(), y, intercept=True)
    return ParallelProblem(with_constant(X), datafit, model.beta_, 3).restricted_to(model.architecture_.neurons)
