"""The steepest direction of a pattern's cone, against dense sampling and closed forms."""

import numpy as np
import pytest

from bidual.papers.methods import cone_pca
from bidual.papers.methods.cone_pca import project, steepest
from bidual.patterns.cones import pattern_cone
from helpers.draws import normal


def cone_and_samples(n: int, d: int):
    X, u = normal(n, d).numpy(), normal(20000, d).numpy()
    pattern = X @ u[0] >= 0
    inside = u[((u @ X.T >= 0) == pattern).all(1)]
    return pattern_cone(X, pattern), inside / np.linalg.norm(inside, axis=1, keepdims=True)


@pytest.mark.parametrize("c", [1, 2, 3])
@pytest.mark.parametrize(("n", "d"), [(4, 2), (5, 3), (3, 4), (2, 5)])
def test_no_sample_is_steeper_and_the_best_is_attained_inside(n: int, d: int, c: int) -> None:
    cone, samples = cone_and_samples(n, d)
    for seed in range(5):
        G = np.random.default_rng(seed).normal(size=(d, c))
        found = steepest(cone, G, samples[:1])
        assert np.linalg.norm(samples @ G, axis=1).max() <= found.upper
        assert found.values[0] == pytest.approx(found.upper, rel=1e-9)
        assert (found.directions @ cone.rows.T).min() >= -1e-12


def test_repeated_eigenvalues() -> None:
    cone, _ = cone_and_samples(6, 3)
    assert steepest(cone, np.eye(3), cone.inner[None]).values[0] == pytest.approx(1.0)


def test_a_search_brackets_the_exact_value(monkeypatch: pytest.MonkeyPatch) -> None:
    cone, _ = cone_and_samples(6, 3)
    G = np.random.default_rng(0).normal(size=(3, 2))
    exact = steepest(cone, G, cone.inner[None])
    monkeypatch.setattr(cone_pca, "_MOST_FACES", 0)
    found = steepest(cone, G, cone.inner[None])
    assert found.values[0] <= exact.upper <= found.upper
    assert (found.directions @ cone.rows.T).min() >= -1e-12


def test_projection_is_the_nearest_point() -> None:
    cone, samples = cone_and_samples(5, 3)
    for a in np.random.default_rng(0).normal(size=(50, 3)):
        nearest = project(cone, a)
        assert (cone.rows @ nearest).min() >= -1e-12
        assert (a - nearest) @ nearest == pytest.approx(0, abs=1e-12)
        assert (samples @ (a - nearest)).max() <= 1e-9


def test_a_pattern_on_a_hyperplane_spans_only_that() -> None:
    cone = pattern_cone(np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0]]), np.ones(3, dtype=bool))
    assert cone.basis.shape == (2, 1)
    assert np.abs(cone.basis[:, 0]) == pytest.approx([0, 1])
