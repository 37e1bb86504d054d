"""Regularisation paths."""

import numpy as np
import pytest
import torch
from sklearn.datasets import make_regression

from bidual import ConvexMLPRegressor, regularization_path

X, y = make_regression(40, 4, noise=1.0, random_state=0)


def test_a_path_runs_from_the_zero_network_and_is_certified():
    path = regularization_path(ConvexMLPRegressor(patterns=15, tol=1e-6), X, y, n_betas=6, ratio=1e-2)
    assert path.betas[0] == path.beta_max
    assert path.n_neurons[0] == 0
    assert path.n_neurons[-1] > 0
    assert all(s.certificate.relative_gap <= 1e-6 for s in path.solutions)
    assert path.losses == sorted(path.losses, reverse=True)


def test_a_path_agrees_with_separate_fits():
    path = regularization_path(ConvexMLPRegressor(patterns=15, tol=1e-8), X, y, betas=[3.0, 30.0])
    for beta, solution, module in zip(path.betas, path.solutions, path.modules, strict=True):
        alone = ConvexMLPRegressor(patterns=15, tol=1e-8, beta=beta).fit(X, y)
        assert solution.certificate.primal == pytest.approx(alone.certificate_.primal, rel=1e-7)
        with torch.no_grad():
            assert np.allclose(module(torch.tensor(X))[:, 0], alone.predict(X), atol=1e-2)


def test_warm_starts_save_steps():
    path = regularization_path(ConvexMLPRegressor(patterns=15, solver="fista"), X, y, betas=[100.0, 99.0])
    cold = ConvexMLPRegressor(patterns=15, solver="fista", beta=99.0).fit(X, y)
    assert path.solutions[1].n_steps < cold.n_iter_
