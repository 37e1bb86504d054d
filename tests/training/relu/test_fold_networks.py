"""Networks of all folds at once: their objective, what they may see, and how near they come to the optimum."""

import pytest
import torch
from torch import Tensor

from bidual.losses import LOSSES
from bidual.losses.datafit import Datafit
from bidual.polar import Faces
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits
from bidual.solvers.driver import solve
from bidual.training.relu.column_generation import ColumnGeneration
from bidual.training.relu.fold_networks import FoldNetwork, FoldPaths
from oracles.relu_problems import relu_problem


def shares_of(n: int, k: int) -> Tensor:
    """Fold j holds every k-th sample out."""
    return (torch.arange(n) % k != torch.arange(k)[:, None]).double()


def on(problem: ReluProblem, rows: Tensor) -> ReluProblem:
    fit = problem.datafit
    weight = None if fit.weight is None else fit.weight[rows]
    return ReluProblem(problem.X[rows], Datafit(fit.loss, fit.targets[rows], weight, fit.intercept), problem.beta)


def objective(problem: ReluProblem, beta: float, network: FoldNetwork) -> float:
    return problem.with_beta(beta).restricted_to(network.neurons).primal(network.Z)


@pytest.mark.parametrize("loss", ["squared", "logistic", "softmax", "huber"])
def test_slopes_are_those_of_autograd(loss: str) -> None:
    problem = relu_problem(loss, 14, 3, 2 if loss == "softmax" else 1, seed=0, intercept=True, weighted=True)
    paths = FoldPaths(problem, shares_of(14, 3))
    betas = torch.tensor([0.3, 1.0, 2.0], dtype=torch.float64)
    grown = paths._grown(paths._nothing(), 0.01 * betas, torch.Generator().manual_seed(0))
    x = grown.packed() + 0.1
    values, slopes = paths._slope(grown, betas, x)
    for k in range(3):
        y = x.detach().clone().requires_grad_(True)
        U, Z, b = grown.like(y)
        P = (problem.X @ U[k].T).clamp(min=0) @ Z[k, :, 0] + b[k]
        weight = paths.shares[k] * problem.datafit.weights[:, 0]
        losses = (weight * problem.datafit.loss.value(P, problem.datafit.targets)).sum()
        value = losses + 0.5 * betas[k] * (U[k].square().sum() + Z[k].square().sum())
        (slope,) = torch.autograd.grad(value, y)
        torch.testing.assert_close(values[k], value.detach(), rtol=1e-12, atol=0.0)
        torch.testing.assert_close(slopes[k], slope[k], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("loss", "outputs"), [("squared", 1), ("logistic", 1), ("softmax", 3)])
def test_networks_are_near_the_optimum_of_their_fold(loss: str, outputs: int) -> None:
    problem = relu_problem(loss, 24, 3, outputs, seed=1, intercept=True)
    beta_max, shares = 10 * problem.beta, shares_of(24, 3)
    betas = [share * beta_max for share in (0.5, 0.25, 0.12)]
    for beta, networks in zip(betas, FoldPaths(problem, shares).networks(betas), strict=True):
        for share, network in zip(shares, networks, strict=True):
            own = on(problem, share > 0)
            best = solve(own.with_beta(beta * 2 / 3), ColumnGeneration(Faces(own.X)), Limits(1e-6)).certificate
            assert best.dual * (1 - 1e-9) <= objective(own, beta * 2 / 3, network) <= 1.1 * best.primal


def test_nothing_of_what_is_held_out_is_seen() -> None:
    problem = relu_problem("logistic", 20, 3, 1, seed=2, intercept=True)
    shares, betas = shares_of(20, 2), [3 * problem.beta, problem.beta]
    fit, flipped = problem.datafit, problem.datafit.targets.clone()
    flipped[shares[0] == 0] *= -1
    other = ReluProblem(problem.X, Datafit(fit.loss, flipped, None, True), problem.beta)
    for ours, theirs in zip(
        FoldPaths(problem, shares).networks(betas), FoldPaths(other, shares[:1]).networks(betas), strict=True
    ):
        torch.testing.assert_close(ours[0].neurons.T @ ours[0].Z[:, 0], theirs[0].neurons.T @ theirs[0].Z[:, 0])
        torch.testing.assert_close(ours[0].offset, theirs[0].offset)


def test_a_share_of_two_is_a_repeated_sample() -> None:
    problem = relu_problem("squared", 16, 3, 1, seed=3)
    shares = torch.ones(1, 16, dtype=torch.float64)
    shares[0, :4] = 2.0
    rows = torch.cat([torch.arange(16), torch.arange(4)])
    networks = [list(FoldPaths(problem, shares).networks([problem.beta * 16 / 20]))[-1][0]]
    networks += [list(FoldPaths(on(problem, rows), torch.ones(1, 20)).networks([problem.beta]))[-1][0]]
    values = [objective(on(problem, rows), problem.beta, network) for network in networks]
    assert values[0] == pytest.approx(values[1], rel=2e-2)


def test_beyond_beta_max_networks_are_zero_and_grow_below_it() -> None:
    problem = relu_problem("squared", 18, 3, 1, seed=4, intercept=True)
    none, some = FoldPaths(problem, shares_of(18, 3)).networks([40 * problem.beta, problem.beta])
    assert all(len(network.neurons) == 0 for network in none)
    assert all(len(network.neurons) > 0 for network in some)


def test_a_fold_may_start_later_than_another() -> None:
    """Of two folds with targets of very different size, at a beta between the two beta_max only one has neurons."""
    X = torch.randn(20, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    y = X[:, :1].clamp(min=0) * torch.cat([torch.ones(10, 1), 1e-3 * torch.ones(10, 1)]).double()
    shares = torch.zeros(2, 20)
    shares[0, :10], shares[1, 10:] = 1.0, 1.0
    problem = ReluProblem(X, Datafit(LOSSES["squared"](), y), 1.0)
    large, small = FoldPaths(problem, shares).networks([0.05, 1e-5])
    assert (len(large[0].neurons) > 0, len(large[1].neurons)) == (True, 0)
    assert len(small[1].neurons) > 0


def test_a_time_limit_ends_descents_early() -> None:
    problem = relu_problem("squared", 20, 3, 1, seed=6)
    betas = [problem.beta]
    (short,), (long,) = (
        next(FoldPaths(problem, torch.ones(1, 20), max_time=limit).networks(betas)) for limit in (1e-9, None)
    )
    assert objective(problem, problem.beta, short) > objective(problem, problem.beta, long)
