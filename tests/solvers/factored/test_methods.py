"""Every method ends certified at the optimum that cvxpy finds, and says so when it cannot."""

import pytest
import torch

from bidual.gauges import Factors
from bidual.problems.solution import Limits, Status
from bidual.solvers import BurerMonteiro
from bidual.solvers.driver import solve
from bidual.solvers.factored import (
    METHODS,
    Descent,
    FactoredProgram,
    LevenbergMarquardt,
    Preconditioned,
    VariableProjection,
    factored_point,
    make_method,
    train,
)
from bidual.solvers.factored.arithmetic import norm
from bidual.solvers.factored.gradient_descent import subprogram
from bidual.solvers.factored.levenberg_marquardt import _jacobian
from helpers.factored_cases import gated, judged, linear, random_factors, spiral
from oracles.cvxpy_oracle import cvxpy_optimum

TOLERANCES = {"descent": 1e-3, "preconditioned": 1e-3, "proximal": 1e-4}


def descent(problem):
    """A rate that the sum over samples does not blow up."""
    return Descent(rate=0.3 / problem.operator.norm_squared(torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("name", sorted(METHODS))
@pytest.mark.parametrize("intercept", [False, True])
def test_every_method_ends_certified_at_the_optimum(name, intercept):
    problem, optimum = judged("squared", "nuclear", intercept)
    tol = TOLERANCES.get(name, 1e-6)
    method = descent(problem) if name == "descent" else name
    solution = train(FactoredProgram(problem, 2), method, tol=tol)
    assert solution.status is Status.CERTIFIED
    assert solution.certificate.primal == pytest.approx(optimum, rel=2 * tol)
    assert solution.certificate.dual <= optimum * (1 + 1e-8)
    assert solution.certificate.recheck(problem)
    assert solution.history[-1].relative_gap <= tol
    assert factored_point(solution).value == pytest.approx(optimum, rel=2 * tol)


@pytest.mark.parametrize("loss", ["logistic", "softmax", "huber", "squared_hinge", "poisson"])
@pytest.mark.parametrize("name", ["levenberg_marquardt", "lbfgs"])
@pytest.mark.parametrize("intercept", [False, True])
def test_other_smooth_losses(name, loss, intercept):
    problem, optimum = judged(loss, "nuclear", intercept)
    solution = train(FactoredProgram(problem, 2), name, tol=1e-5)
    assert solution.status is Status.CERTIFIED
    assert solution.certificate.primal == pytest.approx(optimum, rel=2e-5, abs=1e-8)


@pytest.mark.parametrize("gauge", ["per_output", "per_input", "entries", "largest", "largest_per_output", "frobenius"])
def test_other_norms(gauge):
    problem, optimum = judged("squared", gauge)
    program = FactoredProgram(problem, 1)
    solution = train(program.with_m(program.width), "proximal", tol=1e-3)
    assert solution.certificate.primal == pytest.approx(optimum, rel=1e-3)
    assert solution.certificate.relative_gap <= 1e-3


@pytest.mark.parametrize("method", [LevenbergMarquardt(), LevenbergMarquardt(coupling=False), VariableProjection()])
def test_newton_steps_never_raise_the_objective(method):
    program = FactoredProgram(gated(beta=1e-3), 2)
    state = method.init(program, random_factors(program.problem, 2))
    for _ in range(30):
        before, state = state.value, method.step(program, state)
        assert state.value <= before * (1 + 1e-14)
        assert program.value(state.factors) == pytest.approx(state.value, rel=1e-12)


def test_the_jacobian_is_that_of_finite_differences():
    program = FactoredProgram(gated(), 2)
    point, move = random_factors(program.problem, 2), random_factors(program.problem, 2, seed=9)
    ahead, behind = (
        program.predictions(Factors(*(p + h * d for p, d in zip(point, move, strict=True)))) for h in (1e-6, -1e-6)
    )
    x = torch.cat([move.U, move.W], 1).mT.reshape(-1)
    torch.testing.assert_close(_jacobian(program, point) @ x, (ahead - behind) / 2e-6, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("method", [LevenbergMarquardt(), VariableProjection()])
@pytest.mark.parametrize("intercept", [False, True])
def test_the_models_curvature_is_that_of_finite_differences(method, intercept):
    """Second differences of the objective along random directions, at an optimum, where nothing is clipped."""
    problem, _ = judged("squared", "nuclear", intercept)
    program = FactoredProgram(problem, 2)
    found = train(program, "variable_projection", tol=1e-9, escape=False)
    state = method.init(program, factored_point(found).factors)
    model = method._model(program, state)
    for seed in range(5):
        step = torch.randn(len(model.gradient), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        h = 1e-4
        values = [method._moved(program, state, s * h * step).value for s in (1, -1)]
        second = (values[0] + values[1] - 2 * state.value) / h**2
        assert 2 * (model.at(step) - float(model.gradient @ step)) == pytest.approx(second, rel=1e-3)


def test_woodbury_and_normal_equations_agree():
    program = FactoredProgram(gated(n=6, gates=8), 2)
    method = LevenbergMarquardt()
    model = method._model(program, method.init(program, random_factors(program.problem, 2)))
    for damping in (1e-3, 1.0):
        torch.testing.assert_close(model._woodbury(damping), model._normal(damping), rtol=1e-8, atol=1e-10)


def test_too_large_a_rate_keeps_the_best_point_and_warns():
    program = FactoredProgram(gated(), 2)
    with pytest.warns(UserWarning, match="descent diverged: .* lower the learning rate"):
        solution = train(program, Descent(rate=10.0))
    assert solution.status is Status.DIVERGED
    assert solution.certificate.primal <= solution.history[0].primal
    assert solution.certificate.recheck(program.problem)


def test_a_rate_of_one_suits_the_mean_and_not_the_sum():
    """BM section 4.1 on its spiral."""
    problem = spiral(45, 1e-2)
    mean = train(FactoredProgram.scaled(problem, 2, "mean"), Descent(), max_steps=1000, tol=1e-9)
    assert mean.status is Status.MAX_STEPS
    assert mean.certificate.relative_gap < 1e-2
    with pytest.warns(UserWarning, match="diverged"):
        lost = train(FactoredProgram.scaled(problem, 2, "sum"), Descent())
    assert lost.n_steps <= 3


@pytest.mark.parametrize("problem", [gated(n=64, beta=0.5), linear(n=64, beta=0.5)])
def test_mini_batches_come_near_the_optimum(problem):
    optimum = cvxpy_optimum(problem)
    program = FactoredProgram.scaled(problem.with_beta(problem.beta / 64), 2, "mean")
    assert program.problem.beta == pytest.approx(problem.beta)
    solution = train(program, Descent(rate=0.05, batch=16), max_steps=150, tol=1e-3)
    assert optimum <= solution.certificate.primal * (1 + 1e-9)
    assert solution.certificate.primal <= optimum * 1.01


def test_one_batch_of_all_samples_is_plain_descent():
    program = FactoredProgram.scaled(gated(), 2, "mean")
    plain, batched = (train(program, Descent(rate=0.1, batch=batch), max_steps=50) for batch in (None, 12))
    torch.testing.assert_close(factored_point(plain).factors.U, factored_point(batched).factors.U)


def test_batches_of_an_epoch_add_up_to_the_gradient():
    program, point = FactoredProgram(gated(), 2), random_factors(gated(), 2)
    parts = [subprogram(program, index).gradient(point) for index in torch.randperm(12).split(5)]
    torch.testing.assert_close(sum(part.U for part in parts), program.gradient(point).U)
    torch.testing.assert_close(sum(part.W for part in parts), program.gradient(point).W)


def test_preconditioning_shrinks_with_the_gradient():
    program = FactoredProgram(gated(), 2)
    method = Preconditioned()
    state = method.init(program, program.start(torch.Generator().manual_seed(0)))
    for _ in range(500):
        state = method.step(program, state)
    _, eta = state.memory
    assert float(eta.max()) < 1e-2
    assert norm(program.gradient(state.factors)) < 1e-1


@pytest.mark.parametrize("name", ["descent", "preconditioned", "lbfgs", "levenberg_marquardt", "variable_projection"])
def test_smooth_methods_refuse_norms_with_kinks(name):
    problem, _ = judged("squared", "entries")
    with pytest.raises(ValueError, match=r"needs factors without constraints.* Use method="):
        train(FactoredProgram(problem, 2), name)


def test_what_does_not_fit_is_refused_before_any_work():
    program = FactoredProgram(judged("hinge")[0], 2)
    with pytest.raises(ValueError, match="needs a smooth loss; hinge has kinks"):
        train(program, "lbfgs")
    with pytest.raises(ValueError, match="variable_projection needs squared loss, got logistic"):
        train(FactoredProgram(judged("logistic")[0], 2), "variable_projection")
    with pytest.raises(ValueError, match=r"method must be one of .*, got 'adam'"):
        make_method("adam")
    with pytest.raises(ValueError, match="batch must be at least 1"):
        Descent(batch=0)
    with pytest.raises(ValueError, match="no common best intercept"):
        train(FactoredProgram(judged("squared", "nuclear", True)[0], 2), Descent(batch=4))


@pytest.mark.parametrize("method", ["lbfgs", "levenberg_marquardt", "variable_projection", "preconditioned"])
def test_the_solver_runs_every_method(method):
    problem, optimum = judged()
    solution = solve(problem, BurerMonteiro(rank=1, method=method), Limits(1e-2))
    assert solution.certificate.relative_gap <= 1e-2
    assert solution.certificate.primal == pytest.approx(optimum, rel=1e-2)


SMALL = [pytest.param(beta, marks=pytest.mark.slow) for beta in (1e-3, 1e-4)]


@pytest.mark.parametrize("m", [1, 2, 5])
@pytest.mark.parametrize("beta", [1e-2, *SMALL])
def test_variable_projection_certifies_the_spiral_where_other_methods_fail(beta, m):
    """BM section 4.1 with a sum over samples, where L-BFGS ends at certified gaps of 0.9 and more for beta <= 1e-3."""
    solution = train(FactoredProgram(spiral(75, beta), m), "variable_projection", tol=1e-4)
    assert solution.status is Status.CERTIFIED
