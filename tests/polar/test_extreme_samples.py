"""Brackets hold whatever the lengths of samples are, and however close together they lie."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from bidual.estimators import ConvexMLPRegressor
from bidual.papers.methods.branch_and_bound import BranchAndBound
from bidual.papers.methods.semidefinite import SemidefiniteBound
from bidual.polar import DiagonalBound, Faces, LocalSearch, RidgeSearch, Sphere
from bidual.polar.base import steepness

PROVERS = {
    "faces": Faces,
    "sphere": Sphere,
    "diagonal": lambda X: DiagonalBound(X, steps=5),
    "semidefinite": lambda X: SemidefiniteBound(X, max_steps=50),
    "branch and bound": lambda X: BranchAndBound(X, max_nodes=3),
}
EVERY_PROVER = pytest.mark.parametrize("prover", PROVERS)


def matrix(rows: list[list[float]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


@EVERY_PROVER
@pytest.mark.parametrize("e", [1e-8, 1e-13, 1e-60])
def test_a_short_sample_may_matter_most(prover: str, e: float) -> None:
    X, V = matrix([[1, 0], [0, 1], [0.6 * e, 0.8 * e]]), matrix([[e], [0], [1]])
    steepest = math.hypot(1.6, 0.8) * e  # at u along v_1 x_1 + v_3 x_3, which is positive on both
    bracket = PROVERS[prover](X).steepest(V).bracket
    assert bracket.lower <= steepest * (1 + 1e-12)
    assert steepest * (1 - 1e-15) <= bracket.upper


@pytest.mark.filterwarnings("ignore:certified relative gap")
def test_a_short_sample_counts_in_certificates() -> None:
    e = 1e-12
    X, y = np.array([[1.0, 0], [0, 1], [-0.6 * e, -0.8 * e]]), np.array([0.3 * e, 0.1 * e, 1.0])
    fit = ConvexMLPRegressor(beta=0.1 * e, hidden_bias=False, fit_intercept=False, tol=1e-6, max_time=1).fit(X, y)
    assert fit.certificate_.dual <= 0.0951  # one neuron along the third sample attains 0.095


@EVERY_PROVER
@pytest.mark.parametrize("exponent", [-280, -240, -160, -150, 150, 160, 280])
def test_any_scale_of_the_samples(prover: str, exponent: int) -> None:
    X = matrix([[1, 0.2], [0.1, 1], [-0.5, 0.3], [0.4, -1]])
    V = matrix([[1.0, 0], [0.5, 1], [-2, 0.3], [0.2, 0.4]])
    plain, scaled = PROVERS[prover](X).steepest(V).bracket, PROVERS[prover](10.0**exponent * X).steepest(V).bracket
    assert scaled.lower == pytest.approx(10.0**exponent * plain.lower, rel=1e-9)
    assert 10.0**exponent * plain.lower * (1 - 1e-12) <= scaled.upper
    assert scaled.upper <= 10.0**exponent * plain.upper * 1.01


def test_samples_of_very_different_length_with_ties() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        X = (rng.standard_normal((9, 4)) @ rng.standard_normal((4, 5))).round()
        X[0], X[2] = -X[1], 0
        X *= 10.0 ** rng.uniform(-6, 6, (9, 1))
        V = torch.tensor(rng.standard_normal((9, 2)))
        exact, known = Faces(torch.tensor(X)).steepest(V), RidgeSearch(torch.tensor(X), starts=20).steepest(V)
        assert known.bracket.lower <= exact.bracket.upper
        assert exact.bracket.lower <= exact.bracket.upper <= exact.bracket.lower * (1 + 1e-6)


@pytest.mark.parametrize("spread", [1e-5, 1e-7, 1e-8, 1e-9])
@pytest.mark.parametrize("seed", range(8))
def test_clusters_whose_dual_cancels(spread: float, seed: int) -> None:
    """Forms are large and their values small: bounds that subtract squares lose all digits."""
    rng = np.random.default_rng(seed)
    base, label = rng.standard_normal((3, 2)), rng.integers(0, 3, 30)
    X, V = torch.tensor(base[label] + spread * rng.standard_normal((30, 2))), rng.standard_normal((30, 2))
    for k in range(3):
        V[label == k] -= V[label == k].mean(0) if (label == k).any() else 0
    V = torch.tensor(V)
    best = Faces(X).steepest(V)
    attained = float(steepness(X, V, best.neurons[:1]))
    assert Sphere(X, tol=1e-6, max_simplices=3000).steepest(V).bracket.upper >= attained * (1 - 1e-12)


def test_a_dual_out_of_range_proves_nothing() -> None:
    V = matrix([[1e-250], [0.0]])
    assert LocalSearch(matrix([[1e-250, 0], [0, 1]])).steepest(V).bracket.upper == math.inf
    assert Faces(matrix([[0.0, 0], [0, 1]])).steepest(V).bracket.upper == 0
