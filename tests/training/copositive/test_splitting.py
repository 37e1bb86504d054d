"""The joint program bounds the training optimum from below, for every loss, at any point where it stops."""

import cvxpy as cp
import numpy as np
import pytest
import torch
from torch import Tensor

from bidual.losses import LOSSES
from bidual.losses.datafit import Datafit
from bidual.polar import Faces
from bidual.problems.problem import ReluProblem
from bidual.training.copositive.relaxed import Relaxed
from bidual.training.copositive.splitting import RegionProofs, covers, joint_bound
from helpers.draws import normal
from helpers.polar_cases import brute_force
from oracles.problems import CASES as LOSS_CASES
from oracles.problems import random_targets


def relu_problem(X: Tensor, loss: str, c: int, beta: float, *, intercept: bool = False, seed: int = 1) -> ReluProblem:
    targets = random_targets(LOSSES[loss](), len(X), c, torch.Generator().manual_seed(seed))
    return ReluProblem(X, Datafit(LOSSES[loss](), targets, None, intercept), beta)


def a_network(problem: ReluProblem, steps: int = 150) -> float:
    """The objective of a network trained by Adam: an upper bound of the optimum."""
    generator = torch.Generator().manual_seed(0)
    d, c = problem.X.shape[1], problem.datafit.targets.shape[1]
    U = (0.5 * torch.randn(d, 24, generator=generator, dtype=torch.float64)).requires_grad_(True)
    W = (0.5 * torch.randn(24, c, generator=generator, dtype=torch.float64)).requires_grad_(True)
    b = torch.zeros(c, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([U, W, b], lr=0.05)
    for _ in range(steps):
        optimiser.zero_grad()
        P = (problem.X @ U).clamp(min=0) @ W + b * problem.datafit.intercept
        loss = problem.datafit.loss.value(P, problem.datafit.targets).sum()
        (loss + 0.5 * problem.beta * (U.square().sum() + W.square().sum())).backward()
        optimiser.step()
    with torch.no_grad():
        P = (problem.X @ U).clamp(min=0) @ W
        return problem.datafit.value(P) + problem.beta * float((U.norm(dim=0) * W.norm(dim=1)).sum())


def assert_sound(problem: ReluProblem, found: Relaxed, margin: float = 1e-9) -> float:
    assert brute_force(problem.X, found.V) <= found.polar * (1 + margin)
    assert found.recheck(problem)
    primal = a_network(problem)
    assert found.dual <= primal + 1e-9
    return primal


@pytest.mark.parametrize(("loss", "c"), LOSS_CASES)
def test_every_loss_is_bounded_from_below(loss: str, c: int) -> None:
    problem = relu_problem(normal(6, 3), loss, c, 0.5, intercept=c > 1)
    found = joint_bound(problem, max_steps=150)
    assert found.dual >= 0.5 * assert_sound(problem, found)


@pytest.mark.parametrize("beta", [0.1, 1.0])
def test_it_solves_the_relaxation(beta: float) -> None:
    problem = relu_problem(normal(9, 3), "squared", 2, beta)
    found = joint_bound(problem, tol=1e-5)
    assert found.dual == pytest.approx(_cvxpy_value(problem), rel=5e-3)


def test_cutting_the_sphere_tightens_the_bound() -> None:
    problem = relu_problem(normal(9, 3), "squared", 1, 0.3)
    plain, cut = joint_bound(problem, 0, max_steps=250), joint_bound(problem, 2, max_steps=250)
    assert cut.dual > plain.dual
    assert isinstance(cut.proof, RegionProofs)
    assert len(cut.proof.regions) > 1
    assert_sound(problem, cut)


def test_exact_polar_agrees_in_the_plane() -> None:
    problem = relu_problem(normal(8, 2), "squared", 2, 0.5)
    found = joint_bound(problem, 1, max_steps=300)
    exact = Faces(problem.X).steepest(found.V).bracket
    assert exact.lower <= found.polar
    assert found.polar <= exact.upper * 1.1


@pytest.mark.parametrize(
    "X",
    [
        torch.zeros(4, 2, dtype=torch.float64),
        -normal(5, 2).abs(),
        normal(6, 2) @ normal(2, 5, seed=1),
        normal(3, 2).repeat(2, 1),
        torch.cat([normal(4, 2), torch.zeros(2, 2, dtype=torch.float64)]),
        normal(1, 3),
    ],
    ids=["zero", "negative", "deficient", "repeated", "zero rows", "one sample"],
)
def test_degenerate_data(X: Tensor) -> None:
    problem = relu_problem(X, "squared", 2, 0.3)
    assert_sound(problem, joint_bound(problem, 1, max_steps=200))


def test_a_large_beta_proves_the_zero_network() -> None:
    problem = relu_problem(normal(8, 3), "squared", 2, 1e3)
    assert joint_bound(problem).dual == pytest.approx(problem.datafit.scale, rel=1e-6)


def test_no_time_is_still_sound() -> None:
    problem = relu_problem(normal(10, 4), "logistic", 1, 0.2)
    assert_sound(problem, joint_bound(problem, 2, max_time=0.0))


def test_covers() -> None:
    assert covers(np.array([[1, 0], [-1, 1], [-1, -1]]))
    assert covers(np.array([[0, 0]]))
    assert not covers(np.array([[1, 0], [-1, 1]]))
    assert not covers(np.zeros((0, 2), dtype=np.int64))


def _cvxpy_value(problem: ReluProblem) -> float:
    """The joint program of the notes, section 6."""
    X, Y, beta = problem.X.numpy(), problem.datafit.targets.numpy(), problem.beta
    (n, d), c = X.shape, Y.shape[1]
    Z, N2 = cp.Variable((n, c)), cp.Variable((n, n))
    N1, N3 = cp.Variable((n, n), symmetric=True), cp.Variable((n, n), symmetric=True)
    C = 0.5 * N2 @ X + N3 @ X
    rows = [
        [beta * np.eye(d) - X.T @ N3 @ X, C.T, np.zeros((d, c))],
        [C, -N1 - 0.5 * (N2 + N2.T) - N3, Z],
        [np.zeros((c, d)), Z.T, beta * np.eye(c)],
    ]
    signs = [N1 >= 0, N3 >= 0, cp.multiply(N2, 1 - np.eye(n)) >= 0]
    value = cp.Maximize(cp.sum(cp.multiply(Z, Y)) - 0.5 * cp.sum_squares(Z))
    return float(cp.Problem(value, [cp.bmat(rows) >> 0, *signs]).solve(solver=cp.CLARABEL))
