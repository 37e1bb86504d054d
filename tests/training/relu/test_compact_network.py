"""Networks that are returned: copies merged and light neurons dropped, never for a higher objective."""

from collections.abc import Callable

import pytest
import torch

from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.polar import RidgeSearch
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits
from bidual.solvers.driver import solve
from bidual.training.relu.column_generation import ColumnGeneration, solve_master
from bidual.training.relu.compact_network import compacted, heavy
from bidual.training.relu.network_descent import Network
from helpers.draws import normal


def planted(n: int = 200) -> ReluProblem:
    """Targets of two neurons and nothing else."""
    X, U = normal(n, 4), normal(2, 4, seed=1)
    y = (X @ U.T).clamp(min=0) @ torch.tensor([[1.0], [-2.0]]).double()
    return ReluProblem(X, Datafit(Squared(), y), 0.5)


def weigher(problem: ReluProblem) -> Callable[[Network], tuple[Network, float]]:
    def weigh(network: Network) -> tuple[Network, float]:
        done = solve_master(problem.restricted_to(network.neurons), Limits(1e-10), network.Z)
        return Network(network.neurons, done.Z), done.certificate.primal

    return weigh


def copies(problem: ReluProblem, spread: float) -> tuple[Network, float]:
    """Three neurons, each of them twice, a little apart, with their best weights."""
    U = torch.nn.functional.normalize(normal(3, 4, seed=2).repeat(2, 1) + spread * normal(6, 4, seed=3))
    return weigher(problem)(Network(U, torch.zeros(6, 1, 1).double()))


def test_copies_become_one_neuron() -> None:
    problem = planted()
    U = torch.nn.functional.normalize(normal(3, 4, seed=2))
    once, primal = weigher(problem)(Network(U, torch.ones(3, 1, 1).double()))
    few = compacted(Network(U.repeat(2, 1), 0.5 * once.Z.repeat(2, 1, 1)), primal * (1 + 1e-8), weigher(problem))
    assert few is not None
    assert len(few.neurons) == int((once.Z.abs().amax((1, 2)) > 0).sum())


def test_a_network_is_kept_where_fewer_neurons_would_cost_something() -> None:
    """Directions that differ by a tenth are no copies, and merging them at 8 degrees would raise the objective."""
    problem = planted()
    network, primal = copies(problem, 0.05)
    few = compacted(network, primal, weigher(problem))
    assert few is None or problem.restricted_to(few.neurons).primal(few.Z) <= primal * (1 + 2e-9)
    assert compacted(network, primal * (1 - 1e-3), weigher(problem)) is None


def test_light_neurons_are_those_below_a_share_of_the_heaviest() -> None:
    network = Network(torch.eye(3).double(), torch.tensor([2.0, 0.01, 0.0]).double()[:, None, None])
    assert torch.equal(heavy(network, 0.1).neurons, network.neurons[:1])
    assert torch.equal(heavy(network, 0.0).neurons, network.neurons[:2])
    nothing = Network(network.neurons[:0], network.Z[:0])
    assert len(heavy(nothing, 0.1).Z) == 0
    assert compacted(nothing, 1.0, weigher(planted())) is None


@pytest.mark.parametrize("c", [1, 2])
def test_a_trained_network_has_no_copies_and_no_dust(c: int) -> None:
    problem = planted()
    if c == 2:
        y = problem.datafit.targets
        problem = ReluProblem(problem.X, Datafit(Squared(), torch.cat([y, y.flip(0)], 1)), 2.0)
    found = solve(problem, ColumnGeneration(RidgeSearch(problem.X, starts=24), moving=0), Limits(1e-3))
    U, outputs = found.neurons, torch.nn.functional.normalize(found.Z.flatten(1))
    alike = (U @ U.T > 1 - 1e-4) & (outputs @ outputs.T > 0.99)
    assert int(alike.sum()) == len(U)
    sizes = found.Z.flatten(1).norm(dim=1)
    assert float(sizes.min()) > 1e-4 * float(sizes.max())
    assert found.search_gap <= 1e-3


def test_a_planted_network_is_found_with_its_own_neurons() -> None:
    problem, U = planted(), torch.nn.functional.normalize(normal(2, 4, seed=1))
    found = solve(problem, ColumnGeneration(RidgeSearch(problem.X, starts=24), moving=0), Limits(1e-4))
    assert float((U @ found.neurons.T).amax(1).min()) > 0.999
    assert len(found.neurons) <= 12
