"""Upper bounds of the steepest neuron are never too low, whatever multipliers they are built from."""

import math

import numpy as np
import pytest
import torch

from bidual.papers.methods.semidefinite import SemidefiniteBound
from bidual.polar.relaxations.diagonal import Aggregated, DiagonalBound, RowMultipliers
from bidual.polar.relaxations.reduction import Scaled
from bidual.polar.relaxations.sign_regions import SignRegion, clipped
from helpers.draws import normal
from helpers.polar_cases import CASES, brute_force, inside, semidefinite_value, steepest

BOUNDS = {
    "diagonal": lambda X: DiagonalBound(X, sums=False, steps=6),
    "diagonal with sums": lambda X: DiagonalBound(X, steps=6),
    "semidefinite": lambda X: SemidefiniteBound(X, max_steps=200),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("bound", BOUNDS)
def test_bracket_holds_brute_force(bound: str, case: str) -> None:
    X, V = CASES[case]
    found, best = BOUNDS[bound](X).steepest(V), steepest(case)
    assert found.bracket.lower <= best * (1 + 1e-9)
    assert best <= found.bracket.upper < math.inf
    size = torch.linalg.matrix_norm(V, 2) * torch.linalg.matrix_norm(X, 2)
    elementary = 0.5 * torch.linalg.matrix_norm(V.T @ X, 2) + 0.5 * size
    assert found.bracket.upper <= float(elementary) * (1 + 1e-5) or bound == "semidefinite"


@pytest.mark.parametrize("bound", BOUNDS)
def test_nothing_in_nothing_out(bound: str) -> None:
    assert BOUNDS[bound](torch.zeros(4, 3).double()).steepest(normal(4, 2)).bracket.upper == 0
    assert BOUNDS[bound](normal(4, 3)).steepest(torch.zeros(4, 2).double()).bracket.upper == 0


@pytest.mark.parametrize("seed", range(6))
def test_many_small_problems(seed: int) -> None:
    X, V = normal(6, 3, seed=seed), normal(6, 1 + seed % 3, seed=seed + 100)
    best = brute_force(X, V)
    tight, cheap = (BOUNDS[name](X).steepest(V).bracket.upper for name in ("semidefinite", "diagonal with sums"))
    assert best <= tight <= 1.01 * cheap


@pytest.mark.parametrize(("n", "d", "c"), [(8, 3, 2), (12, 4, 1)])
def test_semidefinite_bound_solves_its_relaxation(n: int, d: int, c: int) -> None:
    X, V = normal(n, d), normal(n, c, seed=1)
    upper = SemidefiniteBound(X, tol=1e-5).steepest(V).bracket.upper
    assert upper == pytest.approx(semidefinite_value(X.numpy(), V.numpy()), rel=2e-3)


def test_diagonal_formula_is_the_smallest_feasible_level() -> None:
    X, V = normal(7, 3), normal(7, 2, seed=1)
    t = torch.full((7,), 1.5 * float(torch.linalg.matrix_norm(V, 2)) ** 2, dtype=torch.float64)
    bound = Aggregated(X, V, X.new_zeros(7, 0)).bound(RowMultipliers(t, X.new_zeros(0, 0)))
    K = torch.eye(2) - V.T @ (V / t[:, None])
    closed = 0.25 * (X.T @ (t[:, None] * X) + X.T @ V @ torch.linalg.solve(K, V.T @ X))
    assert bound == pytest.approx(float(torch.linalg.eigvalsh(closed)[-1]) ** 0.5, rel=1e-9)
    for level, feasible in ((bound**2 * (1 + 1e-6), True), (bound**2 * (1 - 1e-6), False)):
        lmi = torch.cat(
            [
                torch.cat([level * torch.eye(3).double(), -0.5 * (t[:, None] * X).T], 1),
                torch.cat([-0.5 * t[:, None] * X, torch.diag(t) - V @ V.T], 1),
            ]
        )
        assert bool(torch.linalg.eigvalsh(lmi)[0] > 0) is feasible


@pytest.mark.parametrize("seed", range(16))
def test_random_multipliers_never_prove_too_much(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, V = normal(6, 2, seed=seed), normal(6, 2, seed=seed + 50)
    scaled, v = Scaled.of(X), V.numpy() / float(V.norm())
    region = SignRegion.whole(scaled.x)
    for row in range(seed % 4):
        region = region.split(row)[int(rng.integers(2))]
    N = 10 ** rng.uniform(-3, 1) * rng.standard_normal((12, 12))
    U = rng.standard_normal((20000, scaled.x.shape[1]))
    within = torch.from_numpy(U[inside(region, U)])
    values = (torch.from_numpy(scaled.x) @ within.T).clamp(min=0).T @ torch.from_numpy(v)
    best = float((values.norm(dim=1) / within.norm(dim=1)).max()) if len(within) else 0.0
    assert region.bound(v, N) >= best
    witness = RowMultipliers(
        torch.from_numpy(10 ** rng.uniform(-1, 2, 6)), torch.from_numpy(rng.standard_normal((4, 4)))
    )
    sums = torch.from_numpy(np.abs(rng.standard_normal((6, 2))))
    if not region.signs.any():
        assert Aggregated(torch.from_numpy(scaled.x), torch.from_numpy(v), sums).bound(witness) >= best


def test_clipping_keeps_only_the_free_entries_negative() -> None:
    N = clipped(-np.ones((6, 6)))
    assert (-np.kron([[0, 1], [1, 0]], np.eye(3)) == N).all()


def test_multipliers_that_are_not_finite_prove_nothing() -> None:
    X, V = normal(3, 2), normal(3, 2, seed=1).numpy()
    assert SignRegion.whole(X.numpy()).bound(V, np.full((6, 6), np.nan)) == math.inf


def test_scaling_follows_the_data() -> None:
    X, V = CASES["rank 3"]
    oracle = BOUNDS["diagonal with sums"]
    plain = oracle(X).steepest(V).bracket.upper
    assert oracle(1e5 * X).steepest(1e-3 * V).bracket.upper == pytest.approx(100 * plain, rel=1e-3)


def test_a_witness_that_overflows_is_no_witness() -> None:
    x, V = torch.eye(3, dtype=torch.float64), torch.ones(3, 1, dtype=torch.float64)
    level = Aggregated(x, V, V[:, :0]).level(
        RowMultipliers(torch.full((3,), torch.inf, dtype=torch.float64), x[:0, :0]), 1.0
    )
    assert level == torch.inf
