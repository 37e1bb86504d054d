"""Proofs can be checked by anybody: honest ones hold, and forged ones are refused or still say nothing false."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from bidual.problems.problem import ReluProblem
from bidual.training.copositive import Relaxed, relax
from bidual.training.copositive.cones import PatternCones
from bidual.training.copositive.pattern_program import ConeProofs, pattern_bound
from bidual.training.copositive.splitting import (
    RegionProof,
    RegionProofs,
    SpikeFreeProof,
    joint_bound,
    spike_free_bound,
)
from helpers.copositive_cases import squared, steepest, white
from helpers.draws import normal

PLAIN = squared(normal(6, 3), normal(6, 2, seed=1), 0.2)
WHITE = squared(white(4, 4), normal(4, 2, seed=1), 0.2)


Make = Callable[[], tuple[ReluProblem, Relaxed]]
Change = Callable[[np.ndarray], np.ndarray]


def by_cones() -> tuple[ReluProblem, Relaxed]:
    return PLAIN, relax(PLAIN, "patterns")


def by_cells() -> tuple[ReluProblem, Relaxed]:
    return PLAIN, joint_bound(PLAIN, 2, max_steps=100)


def by_one_cone() -> tuple[ReluProblem, Relaxed]:
    return WHITE, spike_free_bound(WHITE, max_steps=300)


ALL = pytest.mark.parametrize("make", [by_cones, by_cells, by_one_cone])


@ALL
def test_honest_proofs_hold_and_too_good_ones_do_not(make: Make) -> None:
    problem, found = make()
    assert found.recheck(problem)
    assert found.proof.polar(problem.X, found.V) == pytest.approx(found.polar, rel=1e-12)
    assert not replace(found, polar=0.99 * found.polar).recheck(problem)
    assert not replace(found, V=1.01 * found.V).recheck(problem)
    assert not replace(found, V=found.V * math.nan).recheck(problem)
    assert not replace(found, dual=1.01 * found.dual).recheck(problem)
    assert not found.recheck(replace(problem, X=1.01 * problem.X))
    assert found.recheck(replace(problem, X=-problem.X))  # -X at u is X at -u


@ALL
def test_a_proof_for_other_data_or_points_says_nothing_false(make: Make) -> None:
    problem, found = make()
    n, d = problem.X.shape
    for seed in range(5):
        X = white(n, d, seed) if isinstance(found.proof, SpikeFreeProof) else normal(n, d, seed=seed)
        V = normal(n, 2, seed=seed + 50)
        assert found.proof.polar(X, V) >= steepest(replace(problem, X=X), V)


def forged(found: Relaxed, change: Change) -> Relaxed:
    """With every multiplier changed."""
    proof = found.proof
    if isinstance(proof, RegionProofs):
        return replace(
            found, proof=RegionProofs(tuple(RegionProof(cell.signs, change(cell.N)) for cell in proof.regions))
        )
    assert isinstance(proof, ConeProofs | SpikeFreeProof)
    return replace(found, proof=replace(proof, N=change(proof.N)))


CHANGES: dict[str, Change] = {
    "zero": lambda N: 0 * N,
    "negative": lambda N: -N,
    "very negative": lambda N: N - 1e6,
    "large": lambda N: 1e3 * N,
    "huge": lambda N: N + 1e15,
    "not symmetric": lambda N: np.tril(np.ones(N.shape[-2:])) * N * 5,
    "noise": lambda N: N * np.random.default_rng(0).uniform(0, 3, N.shape),
    "not a number": lambda N: N * math.nan,
    "infinite": lambda N: N + math.inf,
}


@ALL
@pytest.mark.parametrize("change", CHANGES)
def test_changed_multipliers_prove_less_or_nothing(make: Make, change: str) -> None:
    problem, found = make()
    other = forged(found, CHANGES[change])
    assert other.proof.polar(problem.X, found.V) >= steepest(problem, found.V)


def test_patterns_without_multipliers_count() -> None:
    problem, found = by_cones()
    proof = found.proof
    assert isinstance(proof, ConeProofs)
    for kept in (proof.active[:0], proof.active[:3], ~proof.active):
        short = ConeProofs(kept, proof.N[: len(kept)], proof.beta)
        assert short.polar(problem.X, found.V) >= steepest(problem, found.V)
    for beta in (1e-9, 0.5 * proof.beta, 100 * proof.beta):
        assert replace(proof, beta=beta).polar(problem.X, found.V) >= steepest(problem, found.V)


def test_cells_that_do_not_cover_the_sphere_prove_nothing() -> None:
    problem, found = by_cells()
    assert isinstance(found.proof, RegionProofs)
    assert len(found.proof.regions) > 2
    for drop in range(len(found.proof.regions)):
        cells = tuple(cell for k, cell in enumerate(found.proof.regions) if k != drop)
        assert RegionProofs(cells).polar(problem.X, found.V) == math.inf


def test_one_cone_proves_nothing_for_data_that_are_not_spike_free() -> None:
    _, found = by_one_cone()
    assert found.proof.polar(normal(4, 4), found.V) > 1e3 * found.polar


@pytest.mark.parametrize("size", [0.1, 1.0, 1e3, 1e7, 1e12])
@pytest.mark.parametrize(
    "X",
    [
        normal(6, 2),
        normal(5, 3),
        torch.tensor([[1.0, 0.0], [0.01, 1e-12]]),
        torch.tensor([[1.0, 0.0], [1.0, 1e-9], [-1.0, 1e-10]]),
        normal(3, 2) * torch.tensor([[1.0], [1e-9], [1e9]]),
        normal(4, 2) @ normal(2, 4, seed=3) + 1e-11 * normal(4, 4, seed=4),
    ],
    ids=["plane", "space", "hardly of rank two", "thin", "lengths", "nearly deficient"],
)
def test_any_multipliers_and_any_beta_are_paid_for(X: Tensor, size: float) -> None:
    """The bound must hold for whatever an adversary makes up, not only for what the solver finds."""
    X, rng = X.double(), np.random.default_rng(0)
    cones, V = PatternCones.of(X), normal(len(X), 2, seed=8)
    steep = steepest(squared(X, V, 1.0), V)
    p, f = cones.facets.shape[:2]
    for beta in (1e-4 * steep, 0.5 * steep, steep):
        N = size * (steep / cones.scaled.size) ** 2 * rng.random((p, f, f)) * (rng.random((p, f, f)) < 0.5)
        assert cones.polar(V, N, beta) >= steep * (1 - 1e-14)


def test_rows_that_are_hardly_apart_need_no_compact_problem() -> None:
    """Found by attack: a cone that was left without facets had the bound beta, whatever V."""
    X = torch.tensor([[1.0, 0.0], [0.01, 1e-12]], dtype=torch.float64)
    problem = squared(X, torch.ones(2, 1, dtype=torch.float64), 0.1)
    found = pattern_bound(problem)
    assert found.polar >= steepest(problem, found.V)
    assert found.dual <= 0.58599141


@pytest.mark.parametrize("tiny", [1e-9, 1e-10, 1e-11])
@pytest.mark.parametrize("form", ["patterns", "joint"])
def test_proofs_of_nearly_deficient_data_hold_for_the_data_as_given(form: str, tiny: float) -> None:
    """What the row space leaves out must not make an honest proof fail."""
    X = normal(5, 2) @ normal(2, 3, seed=1) + tiny * normal(5, 3, seed=2)
    problem = squared(X, normal(5, 1, seed=3), 0.3)
    found = relax(problem, form, max_time=1)
    assert found.recheck(problem)


@pytest.mark.parametrize(("c", "m"), [(0.3, 5.6e10), (0.1, 1e11), (0.01, 1e12), (0.001, 1e13)])
def test_a_short_row_that_the_rank_cut_drops_does_not_shrink_the_cone(c: float, m: float) -> None:
    """Found by attack: in reduced coordinates the cone of nearly spike-free data excluded neurons of the true one."""
    length = 0.5e-10
    X = torch.tensor([[1.0, 0.0], [-c * length, math.sqrt(1 - c * c) * length]], dtype=torch.float64)
    N = np.zeros((4, 4))
    N[0, 1] = N[1, 0] = m
    assert SpikeFreeProof(N).polar(X, torch.tensor([[1.0], [0.0]], dtype=torch.float64)) >= 1 - 1e-9


@pytest.mark.parametrize("beta", [1e10, 1e170])
def test_betas_beyond_all_measure_are_no_overflow(beta: float) -> None:
    problem = squared(normal(6, 2), 1e-150 * normal(6, 2, seed=1), beta)
    found = relax(problem, "patterns")
    assert found.dual <= problem.datafit.scale
