"""No relaxation claims more than the optimum over all patterns, on random and on vicious data."""

import math
import os

import pytest
import torch
from torch import Tensor

from bidual.losses import LOSSES
from bidual.patterns.spike_free import is_spike_free
from bidual.polar import Faces
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits
from bidual.solvers.driver import solve
from bidual.training.copositive import Relaxed, relax
from bidual.training.copositive.splitting import joint_bound, spike_free_bound
from bidual.training.relu.column_generation import ColumnGeneration
from helpers.copositive_cases import exact, excess, inverse_m, random_problem, squared, steepest, white
from helpers.draws import normal
from oracles.relu_problems import relu_problem

COUNT = int(os.environ.get("BIDUAL_SOUNDNESS_PROBLEMS", "1000"))
ROUNDING = 1e-12


def relaxations(problem: ReluProblem) -> dict[str, Relaxed]:
    """Every form that is for this problem; the joint one stopped early, as it may be."""
    found = {"joint": joint_bound(problem, max_steps=100), "cut": joint_bound(problem, 1, max_steps=50)}
    found["patterns"] = relax(problem, "patterns", max_time=10)
    if is_spike_free(problem.X).holds:
        found["spike_free"] = relax(problem, "spike_free", max_time=10)
    return found


def worst(problem: ReluProblem) -> float:
    """The largest excess of any form; every proof is rechecked."""
    found, primal = relaxations(problem), exact(problem).primal
    assert {form for form, bound in found.items() if not bound.recheck(problem)} == set()
    return max(excess(problem, bound, primal) for bound in found.values())


def test_nothing_exceeds_the_optimum_in_a_few_random_problems() -> None:
    assert max(worst(random_problem(seed)) for seed in range(3)) <= ROUNDING


@pytest.mark.slow
@pytest.mark.parametrize("start", range(3, COUNT, 76))
def test_nothing_exceeds_the_optimum_in_a_thousand_random_problems(start: int) -> None:
    found = {seed: worst(random_problem(seed)) for seed in range(start, min(start + 76, COUNT))}
    assert {seed: value for seed, value in found.items() if value > ROUNDING} == {}


def pairs(angle: float, rank: int) -> Tensor:
    """The axes, each beside a row that makes the same small angle with all the others."""
    axes = torch.eye(rank, dtype=torch.float64)
    return torch.cat([axes, axes + angle * (1 - axes) / math.sqrt(rank - 1)])


@pytest.mark.parametrize("angle", [1e-3, 1e-6, 1e-9, 2e-11, 1.3e-11, 1.1e-11, 1e-11, 1e-13])
@pytest.mark.parametrize("rank", [2, 3])
def test_nearly_parallel_rows(angle: float, rank: int) -> None:
    """Between 1 and 2 times 1e-11, lists of patterns and of their facets may take other rows for one hyperplane."""
    X = pairs(angle, rank)
    problem = squared(X, torch.ones(len(X), 1, dtype=torch.float64), 0.5)
    found = relax(problem, "patterns")
    assert excess(problem, found, exact(problem).primal) <= ROUNDING


VICIOUS: dict[str, Tensor] = {
    "one row": normal(1, 3),
    "zero": torch.zeros(3, 2, dtype=torch.float64),
    "no features": torch.zeros(3, 0, dtype=torch.float64),
    "ties": torch.cat([normal(3, 3), normal(3, 3), -normal(3, 3), 0 * normal(1, 3), 1e-3 * normal(2, 3)]),
    "a fan of thin cones": torch.cat([torch.tensor([[1.0, 0.0]]) + 1e-8 * normal(6, 2), normal(1, 2, seed=1)]),
    "a thin cone in space": torch.eye(3)[[0, 0, 0, 0]] * torch.tensor([[1.0], [1], [1], [-1]]) + 1e-7 * normal(4, 3),
    "lengths over 24 orders": normal(6, 2) * 10 ** torch.linspace(-12, 12, 6, dtype=torch.float64)[:, None],
    "tiny": 1e-100 * normal(5, 2),
    "huge": 1e100 * normal(5, 2),
    "deficient": normal(6, 2) @ normal(2, 9, seed=1),
    "nearly deficient": normal(6, 2) @ normal(2, 5, seed=1) + 1e-9 * normal(6, 5, seed=2),
    "white": white(5, 7),
    "diagonal over 8 orders": torch.diag(10 ** torch.linspace(-4, 4, 5, dtype=torch.float64)),
    "inverse M-matrix": inverse_m(5),
    "parallel": normal(5, 1).abs() @ normal(1, 3, seed=1),
}


@pytest.mark.parametrize("extras", ["plain", "weights over 12 orders and an intercept"])
@pytest.mark.parametrize("name", VICIOUS)
def test_vicious_samples(name: str, extras: str) -> None:
    X, rich = VICIOUS[name].double(), extras != "plain"
    weight = 10 ** torch.linspace(-6, 6, len(X), dtype=torch.float64) if rich else None
    Y = normal(len(X), 2, seed=5)
    problem = squared(X, Y, 1.0, weight=weight, intercept=rich)
    beta = steepest(problem, problem.datafit.grad(torch.zeros_like(Y))) or 1.0
    at = problem.with_beta((0.3 if rich else 1e-2) * beta)
    primal = exact(at).primal
    found = {"joint": joint_bound(at, 1, max_steps=20), "auto": relax(at, max_time=1)}
    assert {form: e for form, bound in found.items() if (e := excess(at, bound, primal)) > ROUNDING} == {}


@pytest.mark.parametrize("noise", [1e-15, 1e-12, 1e-9, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3])
def test_nearly_spike_free_data_are_refused_or_paid_for(noise: float) -> None:
    for seed in range(2):
        X = white(3, 4, seed) + noise * normal(3, 4, seed=seed + 10)
        problem = squared(X, normal(3, 2, seed=seed), 0.2)
        if is_spike_free(X).holds:
            found = spike_free_bound(problem, max_steps=200)
            assert excess(problem, found, exact(problem).primal) <= ROUNDING
        else:
            with pytest.raises(ValueError, match="X is not"):
                relax(problem, "spike_free")


@pytest.mark.parametrize("Y", [torch.zeros(5, 2), torch.ones(5, 2), 1e-100 * torch.ones(5, 2)], ids=["0", "1", "tiny"])
@pytest.mark.parametrize("intercept", [True, False])
def test_constant_targets(Y: Tensor, intercept: bool) -> None:
    problem = squared(normal(5, 2), Y.double(), 0.1, intercept=intercept)
    primal = exact(problem).primal
    for found in relaxations(problem).values():
        assert found.dual <= primal
    assert relax(problem, "patterns").dual == pytest.approx(primal, rel=1e-6, abs=1e-190)


@pytest.mark.parametrize("size", [1e-100, 1e-6, 1e6, 1e100])
def test_the_bound_scales_with_the_data(size: float) -> None:
    """X -> s X at s beta is the same problem; Y -> t Y at t beta has t^2 times the optimum."""
    problem = squared(normal(6, 2), normal(6, 2, seed=1), 0.3)
    once = relax(problem, "patterns").dual
    longer = squared(size * problem.X, problem.datafit.targets, size * 0.3)
    louder = squared(problem.X, size * problem.datafit.targets, size * 0.3)
    assert relax(longer, "patterns").dual == pytest.approx(once, rel=1e-6)
    assert relax(louder, "patterns").dual / size / size == pytest.approx(once, rel=1e-6)


def test_stopping_at_once_is_sound() -> None:
    for problem in (squared(normal(6, 3), normal(6, 2, seed=1), 0.1), squared(white(3, 3), normal(3, 2), 0.1)):
        primal = exact(problem).primal
        for form in ("patterns", "joint", "auto"):
            found = relax(problem, form, max_time=1e-9)
            assert excess(problem, found, primal) <= ROUNDING


@pytest.mark.parametrize(("loss", "c"), [(name, 2 if name == "softmax" else 1) for name in LOSSES])
def test_other_losses(loss: str, c: int) -> None:
    """The joint form and (20) take any loss."""
    plain = relu_problem(loss, 4, 2, c, seed=3, intercept=loss in ("softmax", "huber", "logistic"), share=0.2)
    spike_free = ReluProblem(white(4, 4), plain.datafit, plain.beta)
    for problem, found in [
        (plain, joint_bound(plain, max_steps=50)),
        (spike_free, spike_free_bound(spike_free, max_steps=100)),
    ]:
        done = solve(problem, ColumnGeneration(Faces(problem.X)), Limits(1e-5, max_time=5))
        assert excess(problem, found, done.certificate.primal) <= ROUNDING
        assert found.recheck(problem)
