"""CP (19) and (20) as they are solved here, against models of them in cvxpy, and against the training optimum."""

import pytest
import torch
from torch import Tensor

from bidual.io.datasets import make_spiral
from bidual.papers.methods.tightness import tightness
from bidual.training.copositive import relax
from bidual.training.copositive.splitting import joint_bound
from helpers.copositive_cases import exact, inverse_m, squared, umbrella, white
from helpers.draws import normal
from oracles.copositive_oracle import pattern_value, spike_free_value
from oracles.relu_problems import relu_problem


@pytest.mark.parametrize(("n", "r", "c"), [(6, 1, 2), (6, 2, 2), (5, 3, 1), (5, 3, 2), (4, 4, 2)])
@pytest.mark.parametrize("rich", [True, False], ids=["intercept-weights", "plain"])
def test_19_is_its_model(n: int, r: int, c: int, rich: bool) -> None:
    problem = relu_problem("squared", n, r, c, seed=n + r, intercept=rich, weighted=rich)
    found, model = relax(problem, "patterns"), pattern_value(problem)
    assert found.form == "patterns"
    assert found.dual <= model * (1 + 1e-6)
    assert found.dual == pytest.approx(model, rel=1e-4)
    assert found.value == pytest.approx(model, rel=1e-4)


SPIKE_FREE = {"white": white(5, 6), "inverse M-matrix": inverse_m(4), "diagonal": torch.diag(torch.arange(1.0, 7.0))}


@pytest.mark.parametrize("beta", [0.05, 0.5])
@pytest.mark.parametrize("name", SPIKE_FREE)
@pytest.mark.parametrize("rich", [True, False], ids=["intercept-weights", "plain"])
def test_20_is_its_model(name: str, beta: float, rich: bool) -> None:
    X = SPIKE_FREE[name].double()
    weight = 0.5 + normal(len(X), seed=3).abs() if rich else None
    problem = squared(X, normal(len(X), 2, seed=4), beta, weight=weight, intercept=rich)
    found, model = relax(problem), spike_free_value(problem)
    assert found.form == "spike_free"
    assert found.dual <= model * (1 + 1e-6)
    assert found.dual == pytest.approx(model, rel=1e-4)


def test_the_umbrella_is_not_tight() -> None:
    """CP says that (19) is exact for d <= 4; here d = 3, and it is 6 % low."""
    problem = umbrella()
    found, optimum = relax(problem, "patterns"), exact(problem)
    assert found.dual == pytest.approx(2.0073, abs=1e-4)
    assert pattern_value(problem) == pytest.approx(2.0073, abs=1e-4)
    assert optimum.dual == pytest.approx(2.1406, abs=1e-4)
    said = tightness(problem.X)
    assert not said.guaranteed
    assert said.most_facets == 5
    assert "5 facets" in said.reason


@pytest.mark.parametrize("seed", range(6))
def test_in_the_plane_the_relaxation_is_the_optimum(seed: int) -> None:
    problem = relu_problem(
        "squared", 5 + 2 * seed, 2, 1 + seed % 3, seed, share=10.0 ** -(seed % 4), intercept=seed > 2, weighted=seed > 3
    )
    optimum, found = exact(problem).primal, relax(problem, "patterns")
    assert found.dual <= optimum
    assert found.dual == pytest.approx(optimum, rel=1e-5)


@pytest.mark.parametrize("beta", [1e-3, 1e-2, 0.1, 1.0])
def test_the_spiral_of_figure_3(beta: float) -> None:
    samples, labels = make_spiral(60)
    problem = squared(torch.from_numpy(samples), torch.eye(3, dtype=torch.float64)[torch.from_numpy(labels)], beta)
    optimum, found = exact(problem, tol=1e-7).primal, relax(problem, "patterns")
    assert found.dual <= optimum
    assert found.dual == pytest.approx(optimum, rel=1e-5)


@pytest.mark.parametrize("X", [white(4, 5), inverse_m(3)], ids=["white", "inverse M-matrix"])
def test_where_it_is_guaranteed_20_is_the_optimum(X: Tensor) -> None:
    problem = squared(X, normal(len(X), 2, seed=6), 0.2)
    assert tightness(X).guaranteed
    assert relax(problem).dual == pytest.approx(exact(problem).primal, rel=1e-4)


def test_forms_are_ordered_by_tightness() -> None:
    problem = squared(normal(5, 3), normal(5, 1, seed=1), 0.2)
    joint, cut = (joint_bound(problem, branch, max_steps=300) for branch in (0, 2))
    cones = relax(problem, "patterns")
    assert joint.dual < cut.dual <= cones.dual * (1 + 1e-6) <= exact(problem).primal * (1 + 2e-6)


@pytest.mark.parametrize("seed", range(3))
def test_repeated_rows_of_spike_free_data_stay_spike_free(seed: int) -> None:
    """The coordinates of the row space must not lose what rows have in common."""
    X = white(3, 5, seed)[[0, 1, 1, 2, 0]] * (10.0 ** torch.arange(-2, 3))[:, None]
    problem = squared(X, normal(5, 2, seed=seed), 0.1)
    assert relax(problem).form == "spike_free"
    assert relax(problem).dual == pytest.approx(exact(problem).primal, rel=1e-4)


def test_inputs_stay_as_they_are_and_single_precision_is_relaxed_in_double() -> None:
    problem = squared(normal(6, 2).float().double(), normal(6, 2, seed=1).float().double(), 0.25)
    X, Y = problem.X.clone(), problem.datafit.targets.clone()
    found = relax(problem, "patterns")
    assert torch.equal(problem.X, X)
    assert torch.equal(problem.datafit.targets, Y)
    single = squared(X.float(), Y.float(), 0.25)
    assert relax(single, "patterns").dual == pytest.approx(found.dual, rel=1e-9)
