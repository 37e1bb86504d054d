"""PR (4): m_2 units in the second layer are one unit at beta / sqrt(m_2)."""

import pytest
import torch

from bidual.architectures import ParallelMLP
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.papers.methods.path_norm import path_norm
from bidual.polar.subnetworks.pricing import ExactParallel
from bidual.problems.parallel import ParallelProblem
from bidual.problems.solution import Limits
from bidual.training.parallel.plan import ParallelPlan
from oracles.parallel_cases import data


@pytest.mark.parametrize(("seed", "copies", "kind"), [(0, 3, "teacher"), (1, 2, "random"), (2, 5, "alternating")])
def test_copies_have_the_objective_at_the_full_beta(seed: int, copies: int, kind: str) -> None:
    X, y = data(3, seed, kind)
    beta = 0.1
    problem = ParallelProblem(X, Datafit(Squared(), y), beta / copies**0.5, 2)
    done = ParallelPlan(X, 2).train(problem, Limits(1e-6))
    layers = [layer.detach() for layer in ParallelMLP(done.neurons, 2).decode(done.Z).layers]
    layers = [layers[0], layers[1].repeat(1, 1, copies), layers[2].repeat(1, copies, 1) / copies]
    f = (torch.relu(torch.relu(X @ layers[0]) @ layers[1]) @ layers[2]).sum(0)
    objective = 0.5 * float((f - y).square().sum()) + beta * float(path_norm(layers))
    assert objective == pytest.approx(done.certificate.primal, rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_no_network_with_more_second_layer_units_is_steeper(seed: int) -> None:
    """|v^T ((X W_1)_+ W_2)_+| over m_2 units is at most sqrt(m_2) times the steepest with one (PR eq. 6)."""
    X, v = data(4, seed, "random")
    steepest = ExactParallel(X, 2).steepest(v).bracket.upper
    generator = torch.Generator().manual_seed(seed)
    W1, W2 = (torch.randn(size, generator=generator, dtype=torch.float64) for size in ((4000, 2, 2), (4000, 2, 3)))
    paths = (W1.square().sum(1)[:, :, None] * W2.square()).sum(1)
    hidden = torch.relu(torch.relu(X @ W1) @ (W2 / paths.sqrt()[:, None]))
    assert float(torch.linalg.vector_norm(v.T @ hidden, dim=(1, 2)).max()) <= 3**0.5 * steepest
