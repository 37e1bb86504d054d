"""Descent on networks: slopes against differences, values that fall, copies that merge; moving neurons at optima."""

import numpy as np
import pytest
import torch

from bidual.losses import LOSSES, Squared
from bidual.losses.datafit import Datafit
from bidual.operators.patches import ImagePatches, TokenPairs
from bidual.operators.patches.convolution import Convolution
from bidual.patterns import enumerate as enumerate_patterns
from bidual.polar import LocalSearch, RidgeSearch
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits
from bidual.solvers.driver import solve
from bidual.training.relu.column_generation import ColumnGeneration
from bidual.training.relu.network_descent import Network, _Objective, _packed, descended, merged, value, wide_network
from oracles.cone_oracle import cone_optimum
from oracles.relu_problems import circle, dictionary_optimum, relu_problem

SMOOTH = [name for name in LOSSES if LOSSES[name]().smooth]


def on_images() -> ReluProblem:
    X = torch.randn(6, 1, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    patches = ImagePatches(X, Convolution.of(2, 2, pooling=3))
    return ReluProblem.on(
        patches, Datafit(Squared(), torch.ones(6, 2, dtype=torch.float64).triu(), intercept=True), 0.3
    )


def on_tokens() -> ReluProblem:
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(5, 3, 2, generator=generator, dtype=torch.float64)
    targets = torch.randn(15, 2, generator=generator, dtype=torch.float64)
    return ReluProblem.on(TokenPairs(X, average=False), Datafit(Squared(), targets), 0.3)


def check_slope(problem: ReluProblem) -> None:
    network = wide_network(problem, 4, seed=3)
    x, objective = _packed(problem, network), _Objective(problem, network.Z.shape)
    x = x + 0.1 * torch.randn(len(x), generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    slope = objective(x)[1]
    for k in range(len(x)):
        e = torch.zeros_like(x)
        e[k] = 1e-6
        assert float(slope[k]) == pytest.approx((objective(x + e)[0] - objective(x - e)[0]) / 2e-6, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("loss", SMOOTH)
def test_slopes_are_those_of_differences(loss: str) -> None:
    check_slope(relu_problem(loss, 12, 3, 3 if loss == "softmax" else 2, seed=1, intercept=True, weighted=True))


@pytest.mark.parametrize("make", [on_images, on_tokens])
def test_slopes_of_readouts_are_those_of_differences(make) -> None:
    check_slope(make())


@pytest.mark.parametrize("loss", SMOOTH)
def test_a_descent_falls_to_what_the_balanced_objective_says(loss: str) -> None:
    problem = relu_problem(loss, 30, 4, 3 if loss == "softmax" else 1, seed=2, intercept=True)
    wide = wide_network(problem, 50, seed=0)
    found = descended(problem, wide, 100)
    assert value(problem, found) < value(problem, wide)
    balanced = _Objective(problem, found.Z.shape)(_packed(problem, found))[0]
    assert balanced == pytest.approx(value(problem, found), rel=1e-9)  # |u| |w| where both are equally long


def test_a_wide_network_is_drawn_anew_from_its_seed_alone() -> None:
    problem = relu_problem("squared", 20, 3, 1, seed=0)
    before = torch.random.get_rng_state()
    one, again, other = (wide_network(problem, 10, seed) for seed in (0, 0, 1))
    assert torch.equal(one.neurons, again.neurons)
    assert torch.equal(one.Z, again.Z)
    assert not torch.equal(one.neurons, other.neurons)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.linalg.vector_norm(one.neurons, dim=1).numpy() == pytest.approx(np.ones(10))


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_a_wide_network_fits_samples_of_any_unit(scale: float) -> None:
    problem = relu_problem("squared", 20, 3, 1, seed=0)
    scaled = ReluProblem(scale * problem.X, problem.datafit, scale * problem.beta)
    predictions = [
        p.restricted_to(n.neurons).operator.forward(n.Z)
        for p, n in ((p, wide_network(p, 10, seed=0)) for p in (problem, scaled))
    ]
    torch.testing.assert_close(*predictions, rtol=1e-9, atol=0)


def test_copies_become_one_neuron_and_others_stay() -> None:
    generator = torch.Generator().manual_seed(0)
    U = torch.nn.functional.normalize(torch.randn(4, 6, generator=generator, dtype=torch.float64), dim=1)
    Z = torch.randn(4, 1, 2, generator=generator, dtype=torch.float64)
    doubled = Network(torch.cat([U, U, U[:1]]), torch.cat([Z, 3 * Z, -Z[:1]]))
    found = merged(doubled)
    assert len(found.neurons) == 5  # the last one pulls the other way
    X = torch.randn(20, 6, generator=generator, dtype=torch.float64)

    def predictions(network: Network) -> torch.Tensor:
        return (X @ network.neurons.T).clamp(min=0) @ network.Z[:, 0]

    torch.testing.assert_close(predictions(found), predictions(doubled))


def test_no_neurons_are_no_trouble() -> None:
    nothing = Network(torch.zeros(0, 3, dtype=torch.float64), torch.zeros(0, 1, 2, dtype=torch.float64))
    assert len(merged(nothing).neurons) == 0


@pytest.mark.parametrize("loss", SMOOTH)
def test_moving_neurons_end_at_the_exact_optimum(loss: str) -> None:
    """Against cvxpy over all patterns for one output, and over a fine grid of neurons in the plane for several."""
    if loss == "softmax":
        problem = relu_problem(loss, 12, 2, 3, seed=5, intercept=True, weighted=True)
        exact = dictionary_optimum(problem, circle(problem.X, 500))
    else:
        problem = relu_problem(loss, 14, 2, 1, seed=5, intercept=True, weighted=True)
        exact = cone_optimum(problem, enumerate_patterns(problem.X).active)
    search = ColumnGeneration(RidgeSearch(problem.X, starts=48), moving=0)
    found = solve(problem, search, Limits(1e-4))
    assert found.search_gap <= 1e-4
    assert found.certificate.primal == pytest.approx(exact, rel=3e-4)  # what a search ends at is no proof
    assert found.certificate.primal >= exact * (1 - 1e-5)


def test_moving_neurons_are_few() -> None:
    problem = relu_problem("squared", 30, 4, 1, seed=6)
    found = solve(problem, ColumnGeneration(RidgeSearch(problem.X, starts=48), moving=0), Limits(1e-3))
    still = solve(problem, ColumnGeneration(LocalSearch(problem.X)), Limits(1e-3))
    assert found.certificate.primal <= still.certificate.primal * (1 + 1e-3)
    assert len(found.neurons) <= 30  # as many as there are samples are always enough
