"""CP Remark 5.2: what (16) means for labels, and a condition under which it is exact; without it, it is not."""

import numpy as np
import pytest
import torch
from torch import Tensor

from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.problems.problem import ReluProblem
from bidual.training.copositive import relax
from bidual.training.relu.closed_form import closed_form
from helpers.draws import normal

THRESHOLDS = (1.0, 1.05, 1.5)  # beta over the second singular value


def white(n: int, d: int) -> Tensor:
    return torch.linalg.qr(normal(d, n))[0].T


def squared(X: Tensor, Y: Tensor, beta: float) -> ReluProblem:
    return ReluProblem(X, Datafit(Squared(), Y), beta)


def printed(problem: ReluProblem) -> tuple[float, Tensor]:
    """The value that (16) claims, sum_i min(sigma, beta) (sigma - min(sigma, beta) / 2), and its V*, in numpy."""
    X, Y, beta = problem.X.numpy(), problem.datafit.targets.numpy(), problem.beta
    left, sigma, right = np.linalg.svd(X.T @ Y, full_matrices=False)
    cut = np.minimum(sigma, beta)
    return float(np.sum(cut * (sigma - cut / 2))), torch.from_numpy(left * (sigma - cut) @ right)


def network_objective(problem: ReluProblem) -> float:
    """The training objective of the network that factors V* into a neuron per singular value, with its best signs."""
    X, Y, beta = problem.X.numpy(), problem.datafit.targets.numpy(), problem.beta
    left, sigma, right = np.linalg.svd(X.T @ Y, full_matrices=False)
    sign = np.where((X @ left).sum(0) >= 0, 1.0, -1.0)
    size = np.sqrt(np.maximum(sigma - beta, 0))
    U, W = left * sign * size, (size * sign)[:, None] * right
    P = np.maximum(X @ U, 0) @ W
    return float(0.5 * np.sum((P - Y) ** 2) + 0.5 * beta * (np.sum(U**2) + np.sum(W**2)))


def test_columns_of_x_y_are_class_sums() -> None:
    """CP (53): n_k mu_k, for any X and one-hot Y."""
    X, counts = normal(12, 5), torch.tensor([3, 2, 7])
    Y = torch.eye(3, dtype=torch.float64).repeat_interleave(counts, 0)
    means = torch.stack([X[Y[:, k] == 1].mean(0) for k in range(3)], 1)
    torch.testing.assert_close(X.T @ Y, counts * means)


@pytest.mark.parametrize("times", THRESHOLDS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rotated", [True, False])
def test_it_is_exact_for_acute_rows_above_the_second_singular_value(times: float, seed: int, rotated: bool) -> None:
    """Only Y Y^T >= 0 matters, so Y may be rotated out of the positive orthant."""
    Y = normal(6, 3, seed=seed).abs()
    Y = Y @ torch.linalg.qr(normal(3, 3, seed=seed))[0] if rotated else Y
    problem = squared(white(6, 8), Y, times * float(torch.linalg.svdvals(Y)[1]) * (1 + 1e-9))
    form, (value, V) = closed_form(problem), printed(problem)
    assert bool((Y @ Y.T >= 0).all())
    assert form.applies, form.reason
    assert form.objective == pytest.approx(value, rel=1e-9)
    torch.testing.assert_close(form.neurons.T @ form.weights, V)
    assert network_objective(problem) == pytest.approx(value, rel=1e-9)
    bound = relax(problem, form="spike_free", tol=1e-7)
    assert bound.dual <= value * (1 + 1e-9)
    assert bound.dual == pytest.approx(value, rel=1e-5)


BROKEN = {
    "rows that are not acute": (torch.tensor([[1.0], [-1.0]]), 0.1),
    "not acute, two outputs": (torch.tensor([[1.0, 0.0], [-1.0, 0.2], [0.5, -0.5]]), 0.6),
    "beta below the second singular value": (torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]), 0.2),
}


@pytest.mark.parametrize("name", BROKEN)
def test_without_its_hypothesis_it_claims_too_little(name: str) -> None:
    """(16) is then the value of a linear network, below what is proved for ReLU networks; its V* is no network."""
    Y, beta = BROKEN[name]
    problem = squared(torch.eye(len(Y), dtype=torch.float64), Y.double(), beta)
    sigma = torch.linalg.svdvals(Y.double())
    assert not bool((Y @ Y.T >= 0).all()) or beta < float(sigma[1])
    assert printed(problem)[0] < 0.999 * relax(problem, form="spike_free").dual
    assert network_objective(problem) > 1.01 * printed(problem)[0]
