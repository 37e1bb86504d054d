"""PR Theorem 1 in the form (21): training by columns, and the network it decodes to, against all cells listed."""

import numpy as np
import pytest
import torch

from bidual.architectures import ParallelMLP
from bidual.certificate import Scope
from bidual.datafit import Datafit
from bidual.losses import Squared
from bidual.parallel.path_norm import path_norm
from bidual.parallel.problem import ParallelProblem
from bidual.parallel.training import ParallelTrainer
from oracles.parallel_oracle import three_layer_optimum

CASES = [
    (3, 2, 0, 0.1, "teacher"),
    (3, 2, 1, 0.02, "random"),
    (4, 1, 2, 0.05, "random"),
    (3, 2, 3, 0.01, "alternating"),
]


def data(n: int, seed: int, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    if kind == "alternating":
        y = (-1.0) ** np.arange(n)
    elif kind == "random":
        y = rng.standard_normal(n)
    else:
        W, w = rng.standard_normal((5, 2, 2)), rng.standard_normal((5, 2, 1))
        y = np.maximum(np.maximum(X @ W, 0) @ w, 0).sum((0, 2))
    return torch.from_numpy(X), torch.from_numpy(y)[:, None]


@pytest.mark.parametrize(("n", "width", "seed", "beta", "kind"), CASES)
def test_columns_reach_the_optimum_over_all_cells(n: int, width: int, seed: int, beta: float, kind: str) -> None:
    X, y = data(n, seed, kind)
    done = ParallelTrainer(X, width).train(ParallelProblem(X, Datafit(Squared(), y), beta, width), tol=1e-6)
    certificate = done.solution.certificate
    optimum = three_layer_optimum(X.numpy(), y[:, 0].numpy(), beta, width)
    assert certificate.scope is Scope.ALL_PATTERNS
    assert certificate.relative_gap <= 1e-6
    assert certificate.primal == pytest.approx(optimum, rel=1e-5)
    assert certificate.dual <= optimum * (1 + 1e-7)


@pytest.mark.parametrize(("n", "width", "seed", "beta", "kind"), CASES)
def test_proposition_1_keeps_predictions_and_objective(n: int, width: int, seed: int, beta: float, kind: str) -> None:
    X, y = data(n, seed, kind)
    done = ParallelTrainer(X, width).train(ParallelProblem(X, Datafit(Squared(), y), beta, width), tol=1e-4)
    module = ParallelMLP(done.neurons, width).decode(done.solution.Z)
    with torch.no_grad():
        loss = 0.5 * float((module(X) - y).square().sum())
        price = float(path_norm([layer.detach() for layer in module.layers]))
    assert loss + beta * price == pytest.approx(done.solution.certificate.primal, rel=1e-9)


def test_more_second_layer_units_only_rescale_beta() -> None:
    """p(m_1, m_2, beta) = p(m_1, 1, beta / sqrt(m_2)): decoded with copies, the real objective is the same."""
    X, y = data(3, 0, "teacher")
    beta, copies = 0.1, 3
    problem = ParallelProblem.with_copies(X, Datafit(Squared(), y), beta, 2, copies)
    done = ParallelTrainer(X, 2).train(problem, tol=1e-6)
    layers = [layer.detach() for layer in ParallelMLP(done.neurons, 2).decode(done.solution.Z).layers]
    layers = [layers[0], layers[1].repeat(1, 1, copies), layers[2].repeat(1, copies, 1) / copies]
    f = (torch.relu(torch.relu(X @ layers[0]) @ layers[1]) @ layers[2]).sum(0)
    objective = 0.5 * float((f - y).square().sum()) + beta * float(path_norm(layers))
    assert objective == pytest.approx(done.solution.certificate.primal, rel=1e-9)


def test_the_width_is_between_two_layers_and_their_copies() -> None:
    """p_m1(beta) <= p_2(beta / sqrt(m_1)), attained on teacher data and not on alternating labels."""
    for kind, equal in (("teacher", True), ("alternating", False)):
        X, y = data(4, 5, kind)
        datafit = Datafit(Squared(), y)
        three = ParallelTrainer(X, 2).train(ParallelProblem(X, datafit, 0.02, 2), tol=1e-6).solution.certificate
        two = ParallelTrainer(X, 1).train(ParallelProblem(X, datafit, 0.02 / 2**0.5, 1), tol=1e-6).solution.certificate
        assert three.dual <= two.primal * (1 + 1e-9)
        if equal:
            assert three.primal == pytest.approx(two.primal, rel=1e-5)
        else:
            assert three.primal < two.dual


def test_the_printed_program_8_is_too_low() -> None:
    """(8) has the signs in the second-layer constraint only; its value is below what any network reaches."""
    X, y = data(3, 1, "random")
    right = three_layer_optimum(X.numpy(), y[:, 0].numpy(), 0.02, 2)
    printed = three_layer_optimum(X.numpy(), y[:, 0].numpy(), 0.02, 2, printed=True)
    assert printed < right * (1 - 1e-4)
