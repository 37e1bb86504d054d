"""Whitened samples with labels of a random ReLU network (CP A.1.2), and the optima of networks trained on them."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.gauges import Nuclear
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.operators import LinearOperator
from bidual.papers.experiments.whitened_images import Whitened
from bidual.polar.exact.orthogonal_rows import polar_bound_orthogonal_rows
from bidual.problems.certificate import Certificate, Scope, certify, judge
from bidual.problems.problem import Problem, ReluProblem


@dataclass(frozen=True)
class Fit:
    """A network: its objective, its data loss 1/2 |f(X) - Y|^2 on the training and on the test samples."""

    objective: float
    loss: float
    test: float


@dataclass(frozen=True, eq=False)
class Task:
    """Samples with labels of the random network."""

    data: Whitened
    Y: Float[Tensor, "n c"]
    Y_test: Float[Tensor, "N c"]

    def test_loss(self, predictions: Float[Tensor, "N c"]) -> float:
        return 0.5 * float((predictions - self.Y_test).square().sum())

    def relu(self, beta: float) -> ReluProblem:
        return ReluProblem(self.data.X, Datafit(Squared(), self.Y), beta)


def labelled(data: Whitened, hidden: int = 4000, outputs: int = 10, seed: int = 0) -> Task:
    """Labels of a two-layer ReLU network without biases, its weights uniform in +- 1 / sqrt(inputs)."""
    generator, d = torch.Generator().manual_seed(seed), data.X.shape[1]
    U, W = (
        (2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1) / math.sqrt(shape[0])
        for shape in ((d, hidden), (hidden, outputs))
    )
    return Task(data, *((X @ U).clamp(min=0) @ W for X in (data.X, data.X_test)))


def linear_optimum(task: Task, beta: float) -> tuple[Fit, Certificate]:
    r"""V = sum_i (sigma_i - beta)_+ a_i b_i^T from the SVD of X^T Y, certified as a point of the linear program.

    Where X X^T is a projection K, V = X^T T is no restriction, |X V| = |V|, and
    1/2 |X V - Y|^2 = 1/2 |V - X^T Y|^2 + 1/2 |Y|^2 - 1/2 |K Y|^2: a proximal step of the nuclear norm at X^T Y.
    """
    X, Y = task.data.X, task.Y
    left, sigma, right = torch.linalg.svd(X.T @ Y, full_matrices=False)
    V = (left * (sigma - beta).clamp(min=0)) @ right
    certificate = certify(Problem(LinearOperator(X, Y.shape[1]), Datafit(Squared(), Y), Nuclear(), beta), V[None])
    loss = 0.5 * float((X @ V - Y).square().sum())
    return Fit(certificate.primal, loss, task.test_loss(task.data.X_test @ V)), certificate


def relu_certificate(
    task: Task, beta: float, neurons: Float[Tensor, "m d"], weights: Float[Tensor, "m c"]
) -> Certificate:
    r"""A ReLU network before the one judge, with the dual point of the linear program on X X^T = I.

    Where |X|_op <= 1, |(X u)_+| <= |u|, so a network of predictions P costs at least |P|_*, and
    min_P 1/2 |P - Y|^2 + beta |P|_* is a lower bound of its objective. It is the optimum of the linear network where
    X X^T = I: (X u)_+ = X u' with u' = X^T (X u)_+, which is no longer than u, so that every ReLU network has a linear
    twin. (De-meaned data have none: the range of X is orthogonal to 1.) The dual point is V = P - Y at the soft
    threshold P, with |V|_op <= beta; :func:`polar_bound_orthogonal_rows` proves what it is worth.
    """
    left, sigma, right = torch.linalg.svd(task.Y, full_matrices=False)
    V, problem = -(left * sigma.clamp(max=beta)) @ right, task.relu(beta)
    Z = (torch.linalg.vector_norm(neurons, dim=1, keepdim=True) * weights)[:, None]
    polar = lambda W: polar_bound_orthogonal_rows(problem.X, W)  # noqa: E731
    return judge(problem.restricted_to(neurons), Z, V, polar, Scope.ALL_PATTERNS)


def judged(task: Task, certificate: Certificate, neurons: Tensor, weights: Tensor) -> tuple[Fit, float]:
    """What a network came to, and the certified lower bound."""
    on_train, on_test = ((X @ neurons.T).clamp(min=0) @ weights for X in (task.data.X, task.data.X_test))
    loss = 0.5 * float((on_train - task.Y).square().sum())
    return Fit(certificate.primal, loss, task.test_loss(on_test)), certificate.dual
