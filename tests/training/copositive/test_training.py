"""Networks from relaxations: rounding, training, estimators, and what they refuse."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import make_classification

from bidual import ConvexCNNRegressor, ConvexMLPClassifier, ConvexMLPRegressor
from bidual.numerics.norms import L1
from bidual.polar import Faces
from bidual.problems.certificate import Scope
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits, Record, Status
from bidual.solvers.driver import solve
from bidual.training.copositive import Copositive, CopositiveProgram, relax
from bidual.training.copositive.randomised_rounding import rounded_neurons
from helpers.copositive_cases import exact, squared, white
from helpers.draws import normal
from oracles.relu_problems import relu_problem

PLANE = squared(normal(10, 2), normal(10, 2, seed=1), 0.5)


def test_rounding_is_a_network_above_the_bound_and_the_same_for_one_seed() -> None:
    bound = relax(PLANE, "patterns")
    one, same, other = (rounded_neurons(PLANE, bound.factors, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert one.shape != other.shape or not torch.equal(one, other)
    for neurons in (one, other):
        value = CopositiveProgram(PLANE).value(neurons)
        assert bound.dual <= value <= 1.05 * bound.dual


def test_rounding_stops_in_time() -> None:
    problem = squared(normal(60, 5), normal(60, 3, seed=1), 0.1)
    bound = relax(problem, "joint", max_time=0.1)
    neurons = rounded_neurons(problem, bound.factors, steps=10**6, max_time=0.2)  # would take hours without the limit
    assert CopositiveProgram(problem).value(neurons) >= bound.dual


@pytest.mark.parametrize("rich", [True, False], ids=["intercept-weights", "plain"])
def test_training_is_certified_in_the_plane(rich: bool) -> None:
    problem = relu_problem("squared", 12, 2, 2, seed=4, intercept=rich, weighted=rich)
    seen: list[Record] = []
    done = solve(problem, Copositive(), Limits(1e-4), callback=seen.append)
    certificate, best = done.certificate, exact(problem)
    assert done.status is Status.CERTIFIED
    assert certificate.scope is Scope.ALL_PATTERNS
    assert certificate.dual <= best.primal
    assert best.dual <= certificate.primal <= best.primal * (1 + 1e-4)
    assert certificate.recheck(done.problem, Faces(problem.X))
    assert tuple(seen) == done.history
    assert done.Z.shape == (len(done.neurons), 1, 2)


@pytest.mark.parametrize(
    "problem",
    [
        squared(torch.zeros(3, 2, dtype=torch.float64), normal(3, 1), 0.1),
        squared(normal(4, 2), torch.zeros(4, 2, dtype=torch.float64), 0.1),
        squared(normal(4, 2), torch.ones(4, 1, dtype=torch.float64), 0.1, intercept=True),
        squared(normal(1, 3), normal(1, 2), 0.1),
        squared(normal(5, 2), normal(5, 2, seed=1), 1e3),
        squared(white(4, 6), normal(4, 2, seed=1), 0.2),
    ],
    ids=["zero samples", "zero targets", "constant targets", "one sample", "large beta", "white"],
)
def test_degenerate_problems(problem: ReluProblem) -> None:
    certificate = solve(problem, Copositive()).certificate
    best = exact(problem)
    assert certificate.relative_gap <= 1e-4
    assert certificate.dual <= best.primal
    assert best.dual <= certificate.primal


def test_training_stops_in_time_with_a_sound_certificate() -> None:
    problem = squared(normal(40, 4), normal(40, 2, seed=1), 0.05)
    certificate = solve(problem, Copositive(), Limits(1e-8, max_time=0.5)).certificate
    assert 0 <= certificate.dual <= certificate.primal


@pytest.mark.parametrize("solver", ["copositive", "cutting_planes"])
def test_regressors(solver: str) -> None:
    X, y = normal(14, 1).numpy(), normal(14, 2, seed=1).numpy()
    fit = ConvexMLPRegressor(solver=solver, beta=0.5).fit(X, y)
    best = ConvexMLPRegressor(solver="column_generation", beta=0.5).fit(X, y)
    assert fit.certificate_.scope is Scope.ALL_PATTERNS
    assert fit.certificate_.relative_gap <= 1e-4
    assert fit.certificate_.primal == pytest.approx(best.certificate_.primal, rel=2e-4)
    with torch.no_grad():
        np.testing.assert_allclose(fit.predict(X), fit.module_(torch.from_numpy(X)).numpy(), atol=1e-9)


@pytest.mark.parametrize("solver", ["copositive", "cutting_planes"])
def test_classifiers(solver: str) -> None:
    X, y = make_classification(15, 2, n_informative=2, n_redundant=0, n_classes=2, random_state=0)
    fit = ConvexMLPClassifier(loss="squared", solver=solver, hidden_bias=False, beta=0.5).fit(X, y)
    best = ConvexMLPClassifier(loss="squared", solver="column_generation", hidden_bias=False, beta=0.5).fit(X, y)
    assert fit.certificate_.relative_gap <= 1e-4
    assert fit.certificate_.primal == pytest.approx(best.certificate_.primal, rel=2e-4)
    np.testing.assert_array_equal(fit.predict(X), best.predict(X))


@pytest.mark.parametrize("loss", ["logistic", "huber"])
def test_other_losses_are_refused(loss: str) -> None:
    problem = relu_problem(loss, 6, 2, 1, seed=0)
    with pytest.raises(ValueError, match=f"solver='copositive' is for the squared loss, got {loss}"):
        solve(problem, Copositive())
    with pytest.raises(ValueError, match=rf"CP \(19\), is for the squared loss, got {loss}; use the form 'joint'"):
        relax(problem, "patterns")
    for solver, what in [("copositive", "for the squared loss"), ("cutting_planes", "for the squared loss")]:
        with pytest.raises(ValueError, match=what):
            ConvexMLPClassifier(solver=solver, loss="logistic").fit(normal(6, 2).numpy(), [0, 1] * 3)


def test_other_data_norms_and_forms_are_refused() -> None:
    with pytest.raises(ValueError, match=r"CP \(20\) is for spike-free data, and X is not"):
        relax(PLANE, "spike_free")
    with pytest.raises(ValueError, match=r"form must be 'auto' or one of \['joint', 'patterns', 'spike_free'\], got"):
        relax(PLANE, "dense")
    with pytest.raises(ValueError, match="form must be 'auto'"):
        solve(PLANE, Copositive(form="dense"))
    with pytest.raises(ValueError, match="norm l2 on both layers; got l1 and l2"):
        relax(replace(PLANE, hidden_norm=L1))
    with pytest.raises(ValueError, match="weight decay"):
        solve(replace(PLANE, output_norm=L1), Copositive())


def test_networks_on_patches_are_refused() -> None:
    images = normal(6, 1, 4, 4).numpy()
    with pytest.raises(ValueError, match=r"\['column_generation'\] for relu, got 'copositive'"):
        ConvexCNNRegressor(activation="relu", solver="copositive", kernel_size=2).fit(images, np.arange(6.0))


@pytest.mark.parametrize(
    ("form", "n", "d", "message"),
    [
        ("patterns", 60, 8, "cones and"),
        ("patterns", 1600, 2, "dual numbers"),
        ("joint", 1000, 5, "semidefinite program of size 1,006, more than 500"),
        ("auto", 1000, 20, "semidefinite program of size 1,021, more than 500"),
    ],
)
def test_what_is_too_large_is_refused_at_once(form: str, n: int, d: int, message: str) -> None:
    problem = squared(normal(n, d), normal(n, 1, seed=1), 0.1)
    with pytest.raises(ValueError, match=message):
        relax(problem, form)
    with pytest.raises(ValueError, match=message):
        solve(problem, Copositive(form=form))


def test_spike_free_data_that_are_too_many_are_refused_at_once() -> None:
    n = 1_600
    problem = squared(torch.eye(n, dtype=torch.float64), normal(n, 1), 0.1)
    with pytest.raises(ValueError, match="the spike_free relaxation of 1600 samples"):
        relax(problem, "spike_free")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"branch": -1}, "branch must be a whole number"),
        ({"branch": 2.5}, "branch must be a whole number"),
        ({"tol": -1.0}, "tol must be between 0 and 1"),
        ({"tol": float("nan")}, "tol must be between 0 and 1"),
        ({"max_time": -5.0}, "max_time must be None or positive"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        relax(PLANE, "joint", **settings)


def test_the_search_needs_a_start() -> None:
    with pytest.raises(ValueError, match="starts must be at least 1, got 0"):
        Copositive(starts=0)
