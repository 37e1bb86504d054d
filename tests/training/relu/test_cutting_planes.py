"""Cutting planes on the dual against column generation and independent optima, with certificates that hold."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from bidual.io.datasets import make_spiral
from bidual.losses import LOSSES, Squared
from bidual.losses.datafit import Datafit
from bidual.numerics.norms import L1
from bidual.polar import Faces, LocalSearch, Sphere
from bidual.problems.certificate import Scope
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits, Record, Solution, Status
from bidual.solvers.driver import solve
from bidual.training.relu.column_generation import ColumnGeneration
from bidual.training.relu.cutting_planes import Centre, Cuts, CuttingPlanes
from oracles.relu_problems import beta_max, circle, dictionary_optimum, relu_problem

PLAIN: dict[str, bool] = {}
RICH = {"intercept": True, "weighted": True}


def train(problem: ReluProblem, tol: float = 1e-6) -> Solution:
    """Trained, certified, rechecked with a new oracle, with bounds that only improve."""
    done = solve(problem, CuttingPlanes(Faces(problem.X)), Limits(tol))
    certificate, history = done.certificate, done.history
    assert done.status is Status.CERTIFIED
    assert certificate.scope is Scope.ALL_PATTERNS
    assert certificate.relative_gap == done.search_gap <= tol
    assert certificate.recheck(done.problem, Faces(problem.X))
    assert done.Z.shape == (len(done.neurons), 1, problem.datafit.targets.shape[1])
    assert all(before.primal >= after.primal and before.dual <= after.dual for before, after in pairwise(history))
    assert all(record.dual <= record.primal for record in history)
    return done


def agree(problem: ReluProblem) -> None:
    exact = solve(problem, ColumnGeneration(Faces(problem.X)), Limits(1e-6)).certificate
    found = train(problem).certificate
    assert found.primal == pytest.approx(exact.primal, rel=1e-5, abs=1e-12 * exact.scale)
    assert found.dual <= exact.primal
    assert exact.dual <= found.primal


@pytest.mark.parametrize("share", [1e-3, 0.1, 0.9, 2.0])
@pytest.mark.parametrize(("n", "r", "c"), [(100, 1, 2), (60, 2, 5), (30, 2, 1), (20, 3, 3)])
@pytest.mark.parametrize("extras", [PLAIN, RICH], ids=["plain", "intercept-weights"])
def test_agrees_with_column_generation(n: int, r: int, c: int, share: float, extras: dict[str, bool]) -> None:
    agree(relu_problem("squared", n, r, c, seed=n + c, share=share, **extras))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_agrees_with_column_generation_on_many_problems(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *options: options[int(torch.randint(len(options), (1,), generator=generator))]  # noqa: E731
    r, share = draw(1, 2, 3), draw(1e-3, 1e-2, 0.1, 0.5, 0.99)
    n, c = draw(2, 12, 40) if r == 3 else draw(2, 30, 100), draw(1, 2, 5)
    like = relu_problem("squared", n, r, c, seed, intercept=draw(True, False))
    weight = torch.exp(3 * torch.randn(n, generator=generator, dtype=torch.float64))
    size, datafit = 10.0 ** draw(-4, 0, 4), like.datafit
    problem = ReluProblem(size * like.X, Datafit(datafit.loss, datafit.targets, weight, datafit.intercept), 1.0)
    agree(problem.with_beta(share * beta_max(problem)))


@pytest.mark.parametrize(("c", "extras"), [(2, RICH), (3, PLAIN)], ids=["2-intercept-weights", "3-plain"])
def test_a_fine_grid_in_the_plane_has_the_same_optimum(c: int, extras: dict[str, bool]) -> None:
    problem = relu_problem("squared", 12, 2, c, seed=c, **extras)
    grid = dictionary_optimum(problem, circle(problem.X, 500))
    certificate = train(problem).certificate
    assert certificate.dual <= grid * (1 + 1e-8)
    assert certificate.primal == pytest.approx(grid, rel=1e-5)


@pytest.mark.parametrize("beta", [1e-3, 1e-2, 0.1, 1.0])
def test_the_spiral(beta: float) -> None:
    samples, labels = make_spiral(60)
    Y = torch.eye(3, dtype=torch.float64)[torch.from_numpy(labels)]
    agree(ReluProblem(torch.from_numpy(samples), Datafit(Squared(), Y), beta))


def test_a_tight_tolerance_is_reached() -> None:
    train(relu_problem("squared", 30, 2, 3, seed=1), tol=1e-9)


def test_other_exact_oracles_will_do() -> None:
    problem = relu_problem("squared", 12, 3, 2, seed=2)
    done = solve(problem, CuttingPlanes(Sphere(problem.X, tol=1e-7)), Limits(1e-5))
    assert done.status is Status.CERTIFIED
    assert done.certificate.recheck(done.problem, Faces(problem.X))


SAMPLES: dict[str, Tensor] = {
    "repeated": torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).repeat(3, 1),
    "zero": torch.zeros(12, 2, dtype=torch.float64),
    "some zero": torch.tensor([[i % 3, i % 3 * (i - 6)] for i in range(12)], dtype=torch.float64),
    "no features": torch.zeros(12, 0, dtype=torch.float64),
    "identity": torch.eye(4, dtype=torch.float64).repeat(3, 1),
    "integers": torch.tensor([[i % 3 - 1.0, i % 4 - 1.0, 1.0] for i in range(12)], dtype=torch.float64),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_degenerate_samples(name: str) -> None:
    like = relu_problem("squared", 12, 2, 2, seed=4, intercept=True)
    agree(ReluProblem(SAMPLES[name], like.datafit, 0.3))


@pytest.mark.parametrize("share", [1e-4, 1e-5, 1e-6])
@pytest.mark.parametrize("seed", range(3))
def test_a_tiny_beta_is_no_reason_to_stop(share: float, seed: int) -> None:
    """The relative gap may stay near one while the primal value falls a hundredfold."""
    agree(relu_problem("squared", 14, 2, 1 + seed % 2, seed=seed, share=share))


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("share", [1e-3, 0.5])
def test_one_sample(share: float, intercept: bool) -> None:
    agree(relu_problem("squared", 1, 2, 3, seed=0, share=share, intercept=intercept))


def test_targets_of_zero() -> None:
    X = relu_problem("squared", 12, 2, 1, seed=0).X
    for intercept in (False, True):
        done = train(ReluProblem(X, Datafit(Squared(), torch.zeros_like(X), None, intercept), 0.1))
        assert len(done.neurons) == 0


def test_from_beta_max_on_the_zero_network_is_certified_at_once() -> None:
    problem = relu_problem("squared", 12, 2, 2, seed=3)
    done = train(problem.with_beta(1.0001 * beta_max(problem)))
    assert (len(done.neurons), done.n_steps) == (0, 1)
    assert len(train(problem.with_beta(0.98 * beta_max(problem))).neurons) > 0


@pytest.mark.parametrize(
    ("limit", "status"),
    [
        (Limits(1e-6, 1), Status.MAX_STEPS),
        (Limits(1e-6, 3), Status.MAX_STEPS),
        (Limits(1e-6, max_time=1e-9), Status.MAX_TIME),
    ],
)
def test_limits_stop_with_a_sound_certificate(limit: Limits, status: Status) -> None:
    problem = relu_problem("squared", 30, 3, 2, seed=5)
    best = solve(problem, ColumnGeneration(Faces(problem.X)), Limits(1e-6)).certificate
    done = solve(problem, CuttingPlanes(Faces(problem.X)), limit)
    assert done.status is status
    assert done.certificate.dual <= best.primal
    assert done.certificate.primal >= best.dual
    assert done.certificate.recheck(done.problem, Faces(problem.X))


def test_it_stalls_where_rounding_ends_all_progress() -> None:
    problem = relu_problem("squared", 12, 2, 2, seed=6)
    done = solve(problem, CuttingPlanes(Faces(problem.X)), Limits(0.0))
    assert done.status is Status.STALLED or done.certificate.exhausted
    assert done.certificate.relative_gap <= 1e-10


def test_the_callback_sees_the_history_and_inputs_stay_as_they_are() -> None:
    problem = relu_problem("squared", 12, 2, 2, seed=7, **RICH)
    copies, seen = [T.clone() for T in (problem.X, problem.datafit.targets, problem.datafit.weights)], list[Record]()
    done = solve(problem, CuttingPlanes(Faces(problem.X)), Limits(1e-6), callback=seen.append)
    assert tuple(seen) == done.history
    assert {record.solver for record in seen} == {done.solver} == {"cutting_planes"}
    now = (problem.X, problem.datafit.targets, problem.datafit.weights)
    assert all(torch.equal(before, after) for before, after in zip(copies, now, strict=True))


def test_single_precision_is_trained_in_double() -> None:
    problem = relu_problem("squared", 12, 2, 2, seed=8)
    single = ReluProblem(problem.X.float(), problem.datafit.to(torch.float32), problem.beta)
    done = train(single)
    assert done.Z.dtype == torch.float64


@pytest.mark.parametrize("loss", [name for name in LOSSES if name != "squared"])
def test_other_losses_are_refused(loss: str) -> None:
    problem = relu_problem(loss, 6, 2, 2, seed=0)
    words = f"CP eq. \\(73\\); got {loss}, so set loss='squared'. Use solver='column_generation' or 'auto'"
    with pytest.raises(ValueError, match=words):
        solve(problem, CuttingPlanes(Faces(problem.X)), Limits(1e-6))


def test_what_it_is_not_for_is_refused_before_any_work() -> None:
    problem = relu_problem("squared", 6, 2, 2, seed=0)
    with pytest.raises(ValueError, match=r"needs exact separation; LocalSearch only searches. Use the oracle Faces or"):
        solve(problem, CuttingPlanes(LocalSearch(problem.X)), Limits(1e-6))
    with pytest.raises(ValueError, match="the cutting-plane method is for weight decay"):
        solve(replace(problem, hidden_norm=L1), CuttingPlanes(Faces(problem.X)), Limits(1e-6))
    with pytest.raises(ValueError, match="other samples"):
        solve(problem, CuttingPlanes(Faces(2 * problem.X)), Limits(1e-6))
    with pytest.raises(ValueError, match=r"at most 10; got 6 samples x 2 outputs = 12. Use solver='column_generation'"):
        solve(problem, CuttingPlanes(Faces(problem.X), most=10), Limits(1e-6))


@pytest.mark.parametrize(("n", "cuts"), [(6, 20), (20, 6)])
def test_a_centre_solves_its_equations_and_its_network_is_as_near_as_promised(n: int, cuts: int) -> None:
    generator = torch.Generator().manual_seed(n)
    Y = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    A, mu = torch.randn(n, cuts, generator=generator, dtype=torch.float64), 1e-4
    inside = Cuts(Y, A)
    R, y = 1e-3 * Y, Y.new_full((cuts,), float(Y.square().mean()))
    found = inside.centre(Centre(R, y), mu, lambda: False)
    R, y, T = found.point, found.multipliers, A.T @ found.point
    W = 2 * y[:, None] * T
    primal = 0.5 * (Y - A @ W).square().sum() + torch.linalg.vector_norm(W, dim=1).sum()
    dual = (R * Y).sum() - 0.5 * R.square().sum()
    assert float(inside.slack(R).min()) > 0
    torch.testing.assert_close(y * inside.slack(R), torch.full_like(y, mu), rtol=0.3, atol=0)
    torch.testing.assert_close(A @ W, Y - R, rtol=0, atol=0.2 * mu * cuts)
    assert 0 <= float(primal - dual) <= 1.5 * mu * cuts
