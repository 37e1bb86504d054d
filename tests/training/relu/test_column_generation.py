"""Exact training against independent optima, and certificates that must never claim too much."""

import os
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from bidual.losses import LOSSES
from bidual.patterns import enumerate as enumerate_patterns
from bidual.polar import Faces, LocalSearch, RidgeSearch
from bidual.problems.certificate import Certificate, Scope, certify
from bidual.problems.problem import Problem, ReluProblem
from bidual.problems.solution import Limits, Solution, Status
from bidual.solvers.driver import solve
from bidual.training.relu.column_generation import ColumnGeneration
from oracles.cone_oracle import cone_optimum
from oracles.pattern_oracle import steepest
from oracles.relu_problems import beta_max, circle, dictionary_optimum, relu_problem

SHIPPED = list(LOSSES)  # before other tests define more
SCALAR = [name for name in LOSSES if name != "softmax"]
PLAIN: dict[str, bool] = {}
RICH = {"intercept": True, "weighted": True}
OUTPUTS = pytest.mark.parametrize(("c", "extras"), [(2, RICH), (3, PLAIN)], ids=["2-intercept-weights", "3-plain"])


def train(problem: ReluProblem, tol: float = 1e-6) -> Solution:
    """Trained, certified and rechecked with a new oracle; a forged copy of the certificate is refused."""
    done = solve(problem, ColumnGeneration(Faces(problem.X)), Limits(tol))
    certificate = done.certificate
    assert done.status is Status.CERTIFIED
    assert certificate.scope is Scope.ALL_PATTERNS
    assert certificate.relative_gap <= tol
    assert certificate.recheck(done.problem, Faces(problem.X))
    assert not replace(certificate, dual=certificate.dual + 1e-6 * certificate.primal).recheck(
        done.problem, Faces(problem.X)
    )
    return done


@pytest.mark.parametrize(("n", "r", "extras"), [(30, 1, RICH), (14, 2, PLAIN), (7, 3, PLAIN)])
@pytest.mark.parametrize("loss", SCALAR)
def test_one_output_is_the_program_over_all_patterns(loss: str, n: int, r: int, extras: dict[str, bool]) -> None:
    problem = relu_problem(loss, n, r, 1, seed=n, **extras)
    exact = cone_optimum(problem, enumerate_patterns(problem.X).active)
    assert train(problem).certificate.primal == pytest.approx(exact, rel=1e-5)


@OUTPUTS
@pytest.mark.parametrize("loss", LOSSES)
def test_several_outputs_are_a_fine_grid_in_the_plane(loss: str, c: int, extras: dict[str, bool]) -> None:
    problem = relu_problem(loss, 12, 2, c, seed=c, **extras)
    grid = dictionary_optimum(problem, circle(problem.X, 500))
    certificate = train(problem).certificate
    assert certificate.dual <= grid * (1 + 1e-8)
    assert certificate.primal == pytest.approx(grid, rel=1e-5)


@pytest.mark.parametrize(("loss", "c"), [(loss, 2 + i % 2) for i, loss in enumerate(LOSSES)])
def test_several_outputs_in_space_from_above_and_below(loss: str, c: int) -> None:
    problem = relu_problem(loss, 7, 3, c, seed=10 + c, weighted=c == 2)
    done = train(problem)
    certificate = done.certificate
    many = torch.randn(300, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert dictionary_optimum(problem, torch.cat([done.neurons, many])) == pytest.approx(certificate.primal, rel=1e-5)
    assert steepest(problem.X.numpy(), certificate.dual_point.numpy()) <= problem.beta * (1 + 1e-9)
    assert -problem.datafit.conjugate(certificate.dual_point) >= certificate.dual * (1 - 1e-12)


@pytest.mark.parametrize(("n", "r", "c", "share"), [(60, 3, 3, 0.01), (60, 2, 2, 1e-3), (20, 4, 2, 0.1)])
def test_larger_problems_are_certified(n: int, r: int, c: int, share: float) -> None:
    train(relu_problem("squared", n, r, c, seed=1, share=share))


def forgeries(certificate: Certificate) -> dict[str, Certificate]:
    V, Z = certificate.dual_point, certificate.point
    return {
        "dual": replace(certificate, dual=certificate.dual * (1 + 1e-6)),
        "primal": replace(certificate, primal=certificate.primal * (1 - 1e-6)),
        "point": replace(certificate, point=1.001 * Z),
        "dual point": replace(certificate, dual_point=1.01 * V),
        "polar": replace(certificate, polar=0.9 * certificate.polar),
        "scale": replace(certificate, scale=10.0 * certificate.scale),
        "shape": replace(certificate, point=Z[1:]),
        "not a number": replace(certificate, dual=float("nan")),
    }


def test_forged_certificates_are_refused() -> None:
    problem = relu_problem("squared", 12, 2, 2, seed=0)
    done = train(problem)
    oracle = Faces(problem.X)
    refused = {name: not forged.recheck(done.problem, oracle) for name, forged in forgeries(done.certificate).items()}
    assert refused == dict.fromkeys(refused, True)


def test_a_certificate_says_nothing_of_another_problem_or_oracle() -> None:
    problem = relu_problem("squared", 12, 2, 2, seed=0)
    done = train(problem)
    certificate = done.certificate
    assert not certificate.recheck(problem.with_beta(0.9 * problem.beta).restricted_to(done.neurons), Faces(problem.X))
    assert not certificate.recheck(done.problem, Faces(2 * problem.X))
    assert not certificate.recheck(done.problem, LocalSearch(problem.X))
    with pytest.raises(ValueError, match="scope ALL_PATTERNS is rechecked with an oracle"):
        certificate.recheck(done.problem)
    with pytest.raises(ValueError, match="scope BLOCKS is rechecked without an oracle"):
        replace(certificate, scope=Scope.BLOCKS).recheck(done.problem, Faces(problem.X))


def test_an_optimum_over_some_neurons_is_no_optimum_over_all() -> None:
    problem = relu_problem("squared", 12, 2, 2, seed=0)
    few = problem.restricted_to(circle(problem.X, 4)[:4])
    inside = certify(few, few.operator.zeros())
    assert certify(few, inside.point, oracle=Faces(problem.X)).dual < inside.dual


@pytest.mark.parametrize("loss", LOSSES)
def test_from_beta_max_on_the_zero_network_is_certified(loss: str) -> None:
    problem = relu_problem(loss, 12, 2, 2, seed=3)
    done = train(problem.with_beta(1.0001 * beta_max(problem)))
    assert len(done.neurons) == 0
    assert done.n_steps == 1
    if problem.datafit.smoothness is not None:
        assert len(train(problem.with_beta(0.98 * beta_max(problem))).neurons) > 0


DEGENERATE: dict[str, Tensor] = {
    "repeated samples": torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).repeat(3, 1),
    "zero samples": torch.zeros(12, 2, dtype=torch.float64),
    "no features": torch.zeros(12, 0, dtype=torch.float64),
    "identity": torch.eye(4, dtype=torch.float64).repeat(3, 1),
    "all negative": -torch.rand(12, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64),
    "integers": torch.tensor([[i % 3 - 1.0, i % 4 - 1.0, 1.0] for i in range(12)], dtype=torch.float64),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_samples(name: str) -> None:
    like = relu_problem("squared", 12, 2, 2, seed=4, intercept=True)
    problem = ReluProblem(DEGENERATE[name], like.datafit, 0.3)
    done = train(problem)
    rich = [done.neurons, torch.randn(200, problem.X.shape[1], dtype=torch.float64)]
    if problem.X.any():
        assert dictionary_optimum(problem, torch.cat(rich)) == pytest.approx(done.certificate.primal, rel=1e-5)
    else:
        assert len(done.neurons) == 0


def test_limits_stop_with_a_sound_certificate() -> None:
    problem = relu_problem("squared", 30, 3, 2, seed=5)
    best = train(problem).certificate
    for limit, status in [
        (Limits(1e-9, 2), Status.MAX_STEPS),
        (Limits(1e-9, max_time=1e-9), Status.MAX_TIME),
    ]:
        done = solve(problem, ColumnGeneration(Faces(problem.X)), limit)
        assert done.status is status
        assert done.certificate.dual <= best.primal
        assert done.certificate.primal >= best.dual
        assert done.certificate.recheck(done.problem, Faces(problem.X))


def test_the_optimum_does_not_depend_on_where_training_starts() -> None:
    problem = relu_problem("squared", 20, 3, 2, seed=6)
    cold = train(problem)
    useless = -problem.X.mean(0, keepdim=True)
    warm, odd = (
        solve(problem, ColumnGeneration(Faces(problem.X)), Limits(1e-6), start=u) for u in (cold.neurons, useless)
    )
    assert warm.n_steps <= cold.n_steps
    for other in (warm, odd):
        assert other.certificate.primal == pytest.approx(cold.certificate.primal, rel=2e-6)


def random_relu_problem(seed: int) -> ReluProblem:
    """Mixed sizes, losses and betas; some samples repeated, zero, or on a grid."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *options: options[int(torch.randint(len(options), (1,), generator=generator))]  # noqa: E731
    loss = draw(*SHIPPED)
    r, c = draw(1, 2, 3), draw(2, 3) if loss == "softmax" else draw(1, 2, 3)
    n = draw(2, 5, 12, 30) if r < 3 else draw(2, 5, 12, 20)
    problem = relu_problem(loss, n, r, c, seed, intercept=draw(True, False), weighted=draw(True, False))
    X = problem.X
    match draw("plain", "plain", "repeated", "grid", "zero"):
        case "repeated":
            X = X[torch.arange(n) % max(n // 2, 1)]
        case "grid":
            X = X.mul(2).round()
        case "zero":
            X = torch.where(torch.arange(n)[:, None] % 3 == 0, 0.0, X)
    problem = ReluProblem(X, problem.datafit, 1.0)
    return problem.with_beta(draw(1e-3, 1e-2, 0.1, 0.5, 0.95) * (beta_max(problem) or 1.0))


def random_networks(problem: ReluProblem, seed: int) -> list[tuple[Problem, Tensor]]:
    """Networks that were not trained: random neurons with random output weights, from tiny to large, and zero."""
    generator = torch.Generator().manual_seed(seed)
    neurons = torch.randn(5, problem.X.shape[1], generator=generator, dtype=torch.float64)
    master = problem.restricted_to(neurons)
    shape = master.operator.block_shape
    sizes = (0.0, 1e-3, 0.1, 1.0, 30.0)
    return [(master, size * torch.randn(shape, generator=generator, dtype=torch.float64)) for size in sizes]


def excess(problem: ReluProblem, seed: int) -> float:
    """By how much the largest dual that was ever certified exceeds the least primal, relatively; never positive."""
    oracle = Faces(problem.X)
    tol = 1e-9 if problem.datafit.loss.half_square else 1e-7  # where interior points still reach it
    done = solve(problem, ColumnGeneration(oracle), Limits(tol, 60, max_time=20))
    certificates = [
        done.certificate,
        *(certify(m, Z, oracle=oracle) for m, Z in random_networks(problem, seed)),
    ]
    least = min(certificate.primal for certificate in certificates)
    return (max(certificate.dual for certificate in certificates) - least) / max(least, 1e-300)


COUNT = int(os.environ.get("BIDUAL_SOUNDNESS_PROBLEMS", "1000"))


def test_no_dual_exceeds_a_primal_in_a_few_random_problems() -> None:
    assert max(excess(random_relu_problem(seed), seed) for seed in range(4)) <= 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("start", range(4, COUNT, 83))
def test_no_dual_exceeds_a_primal_in_a_thousand_random_problems(start: int) -> None:
    worst = {seed: excess(random_relu_problem(seed), seed) for seed in range(start, min(start + 83, COUNT))}
    assert {seed: value for seed, value in worst.items() if value > 1e-9} == {}


def test_an_oracle_for_other_samples_is_refused() -> None:
    problem = relu_problem("squared", 8, 2, 1, seed=0)
    with pytest.raises(ValueError, match="other samples"):
        solve(problem, ColumnGeneration(Faces(problem.X[:, :1].repeat(1, 2))), Limits(1e-6))
    with pytest.raises(ValueError, match="other samples"):
        solve(problem, ColumnGeneration(Faces(2 * problem.X)), Limits(1e-6))


def searching(problem: ReluProblem, **settings: Any) -> ColumnGeneration:
    return ColumnGeneration(RidgeSearch(problem.X, starts=24), moving=0, **settings)


def test_a_search_that_goes_on_keeps_what_the_last_one_has_reached() -> None:
    """Light neurons are the last digits: a search that began as a first round does would drop them."""
    problem = relu_problem("squared", 60, 5, 1, seed=3, share=0.005)
    done = solve(problem, searching(problem), Limits(1e-4))
    assert done.search_gap is not None
    solver = searching(problem).within(Limits(1e-4))
    state = solver.resume(problem, done)
    assert state.gap == done.search_gap
    again = solver.step(problem, state).verdict
    assert again.certificate.primal <= done.certificate.primal * (1 + 1e-8)


def test_weights_of_a_start_are_where_its_master_problem_begins() -> None:
    problem = relu_problem("squared", 40, 4, 1, seed=3, share=0.02)
    done = solve(problem, searching(problem), Limits(1e-4))
    state = searching(problem, weights=done.Z).init(problem, done.neurons, None)
    assert torch.equal(state.Z, done.Z)
    for other in (None, done.Z[1:], torch.cat([done.Z, done.Z], 2)):
        assert not searching(problem, weights=other).init(problem, done.neurons, None).Z.any()
