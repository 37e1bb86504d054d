"""Regularisation paths."""

import numpy as np
import pytest
import torch
from sklearn.datasets import make_regression

from bidual import ConvexMLPRegressor, regularization_path

X, y = make_regression(30, 2, noise=1.0, random_state=0)
GATED = {"activation": "gated_relu", "n_gates": 15}


@pytest.mark.parametrize("settings", [{}, GATED], ids=["relu", "gated_relu"])
def test_a_path_runs_from_the_zero_network_and_is_certified(settings):
    path = regularization_path(ConvexMLPRegressor(tol=1e-6, **settings), X, y, n_betas=6, ratio=1e-2)
    assert path.betas[0] == path.beta_max
    assert path.n_neurons[0] == 0
    assert path.n_neurons[-1] > 0
    assert all(s.certificate.relative_gap <= 1e-6 for s in path.solutions)
    assert path.losses == sorted(path.losses, reverse=True)


@pytest.mark.parametrize("settings", [{}, GATED], ids=["relu", "gated_relu"])
def test_a_path_agrees_with_separate_fits(settings):
    path = regularization_path(ConvexMLPRegressor(tol=1e-8, **settings), X, y, betas=[3.0, 30.0])
    for beta, solution, module in zip(path.betas, path.solutions, path.modules, strict=True):
        alone = ConvexMLPRegressor(tol=1e-8, beta=beta, **settings).fit(X, y)
        assert solution.certificate.primal == pytest.approx(alone.certificate_.primal, rel=1e-7)
        with torch.no_grad():
            assert np.allclose(module(torch.tensor(X))[:, 0], alone.predict(X), atol=1e-2)


@pytest.mark.parametrize("settings", [{}, {**GATED, "solver": "kernel_admm"}], ids=["relu", "gated_relu"])
def test_warm_starts_save_steps(settings):
    path = regularization_path(ConvexMLPRegressor(**settings), X, y, betas=[100.0, 99.0])
    cold = ConvexMLPRegressor(beta=99.0, **settings).fit(X, y)
    assert path.solutions[1].n_steps < cold.n_iter_
