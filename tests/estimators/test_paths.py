"""Regularisation paths."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_regression

from bidual import ConvexMLPClassifier, ConvexMLPRegressor, regularization_path
from bidual.estimators.paths import regularization_paths
from bidual.problems.solution import Solution
from bidual.training.relu.plan import ReluPlan

X, y = make_regression(30, 2, noise=1.0, random_state=0)
FEW = slice(18)  # rows, for paths over all patterns to small gaps
GATED = {"activation": "gated_relu", "n_gates": 15}


@pytest.mark.parametrize("settings", [{}, GATED], ids=["relu", "gated_relu"])
def test_a_path_runs_from_the_zero_network_and_is_certified(settings):
    path = regularization_path(ConvexMLPRegressor(tol=1e-6, **settings), X[FEW], y[FEW], n_betas=6, ratio=1e-2)
    assert path.betas[0] == path.beta_max
    assert path.n_neurons[0] == 0
    assert path.n_neurons[-1] > 0
    assert all(s.certificate.relative_gap <= 1e-6 for s in path.solutions)
    assert path.losses == sorted(path.losses, reverse=True)


@pytest.mark.parametrize("settings", [{}, GATED], ids=["relu", "gated_relu"])
def test_a_path_agrees_with_separate_fits(settings):
    path = regularization_path(ConvexMLPRegressor(tol=1e-8, **settings), X[FEW], y[FEW], betas=[3.0, 30.0])
    for beta, solution, module in zip(path.betas, path.solutions, path.modules, strict=True):
        alone = ConvexMLPRegressor(tol=1e-8, beta=beta, **settings).fit(X[FEW], y[FEW])
        assert solution.certificate.primal == pytest.approx(alone.certificate_.primal, rel=1e-7)
        with torch.no_grad():
            assert np.allclose(module(torch.tensor(X))[:, 0], alone.predict(X), atol=1e-2)


@pytest.mark.parametrize("settings", [{}, {**GATED, "solver": "kernel_admm"}], ids=["relu", "gated_relu"])
def test_warm_starts_save_steps(settings):
    path = regularization_path(ConvexMLPRegressor(**settings), X, y, betas=[100.0, 99.0])
    cold = ConvexMLPRegressor(beta=99.0, **settings).fit(X, y)
    assert path.solutions[1].n_steps < cold.n_iter_


def rounds(solution: Solution) -> int:
    """How often neurons were searched for."""
    return sum(record.solver == "column_generation" for record in solution.history)


@pytest.mark.parametrize("loss", ["squared", "log_loss"])
def test_a_path_by_search_has_the_objectives_of_separate_fits_in_fewer_rounds(loss):
    rng = np.random.default_rng(0)
    samples = rng.standard_normal((80, 6))
    labels = (samples[:, 0] + samples[:, 1] ** 2 + 0.5 * rng.standard_normal(80) > 0.7).astype(int)
    search = ConvexMLPClassifier(loss=loss, oracle="search", tol=1e-3)
    program = search._program(search._validate_fit(samples, labels, None))
    betas = [program.beta_max * fraction for fraction in (0.06, 0.055, 0.05, 0.046)]
    options = search._solver_options() | {"prove": False}
    path = [fit.solution for fit in program.path(betas, **options)]
    alone = [program.train(beta, **options).solution for beta in betas]
    for one, other in zip(path, alone, strict=True):
        assert one.certificate.primal == pytest.approx(other.certificate.primal, rel=1e-3)
        assert one.search_gap <= 1e-3
    assert sum(map(rounds, path[1:])) < sum(map(rounds, alone[1:]))


def test_proofs_along_a_path_begin_where_the_last_one_ended():
    rng = np.random.default_rng(0)
    samples = rng.standard_normal((60, 8))
    targets = np.maximum(samples[:, 0], 0) + 0.3 * rng.standard_normal(60)
    search = ConvexMLPRegressor(oracle="search", max_iter=None)
    program = search._program(search._validate_fit(samples, targets, None))
    betas = [program.beta_max * fraction for fraction in (0.3, 0.25)]
    limits = search._solver_options()
    last = program.path(betas, **limits)[1].solution
    cold = program.train(betas[1], **limits).solution
    assert last.certificate.primal == pytest.approx(cold.certificate.primal, rel=1e-3)
    assert last.certificate.dual <= cold.certificate.primal
    first_proofs = [next(r for r in one.history if r.solver == "product_bound") for one in (last, cold)]
    assert first_proofs[0].relative_gap < 0.5 * first_proofs[1].relative_gap


def test_paths_of_seeds_are_the_same_in_several_processes():
    search = ConvexMLPRegressor(oracle="search", tol=1e-2)
    betas = [30.0, 20.0]
    several = regularization_paths(search, X, y, seeds=[0, 1], betas=betas, n_jobs=2)
    for seed, path in zip([0, 1], several, strict=True):
        own = regularization_path(clone(search).set_params(random_state=seed), X, y, betas=betas)
        assert [one.certificate.primal for one in path.solutions] == [one.certificate.primal for one in own.solutions]


def test_a_warm_started_estimator_begins_with_its_last_network(monkeypatch):
    given, train = [], ReluPlan.train

    def watched(*parts, start=None, **options):
        given.append(start)
        return train(*parts, start=start, **options)

    monkeypatch.setattr(ReluPlan, "train", watched)
    model = ConvexMLPRegressor(oracle="search", tol=1e-2, beta=30.0, warm_start=True).fit(X, y)
    last = model.certificate_
    again = model.set_params(beta=29.0).fit(X, y)
    assert given[0] is None
    assert torch.equal(given[1].Z, last.point)
    assert torch.equal(given[1].dual, last.dual_point)
    assert again.certificate_.within(1e-2)
    assert again.fit(X[:20], y[:20]).certificate_.within(1e-2)  # other samples, and features of another number
    assert again.fit(X[:, :1], y).certificate_.within(1e-2)
