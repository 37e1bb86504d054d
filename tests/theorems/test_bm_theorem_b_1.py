"""BM Theorem B.1 and Lemma 3.1: any vector norms on the two layers, for ReLU networks and for linear and gated ones."""

from itertools import product

import numpy as np
import pytest
import torch

from bidual.gauges import Factors
from bidual.losses import LOSSES, Squared
from bidual.losses.datafit import Datafit
from bidual.numerics.norms import L1, L2, LINF, NORMS, Norm
from bidual.operators import GatedOperator
from bidual.papers.methods.norm_oracles import NormFaces, NormSearch
from bidual.papers.methods.norm_pairs import pair_gauge
from bidual.patterns import activations, enumerate, sample_gates
from bidual.polar import Faces
from bidual.problems.certificate import Scope
from bidual.problems.problem import Problem, ReluProblem
from bidual.problems.solution import Limits, Solution
from bidual.solvers.driver import solve
from bidual.solvers.plan import solve_auto
from bidual.training.relu.column_generation import ColumnGeneration
from helpers.draws import normal
from oracles.norm_oracle import dictionary_optimum, norm_optimum, planar_directions

PAIRS = list(product(NORMS.values(), NORMS.values()))
EVERY_PAIR = pytest.mark.parametrize(("hidden", "output"), PAIRS, ids=lambda norm: norm.name)
CONVEX = [pair for pair in PAIRS if L1 in pair or pair == (L2, L2)]


def relu_problem(hidden: Norm, output: Norm, c: int, loss: str = "squared", share: float = 0.2) -> ReluProblem:
    X, Y = normal(7, 2, seed=3), 2 * normal(7, c, seed=4)
    data = Datafit(LOSSES[loss](), Y.sign() if "hinge" in loss else Y)
    V = data.into_domain(data.grad(torch.zeros_like(Y)))
    return ReluProblem(X, data, share * NormFaces(X, hidden, output).steepest(V).bracket.upper, hidden, output)


def trained(problem: ReluProblem, tol: float = 1e-7) -> Solution:
    return solve(problem, ColumnGeneration(NormFaces(problem.X, problem.hidden_norm, problem.output_norm)), Limits(tol))


def assert_certified(problem: ReluProblem, done: Solution, optimum: float) -> None:
    certificate = done.certificate
    oracle = NormFaces(problem.X, problem.hidden_norm, problem.output_norm)
    assert certificate.relative_gap <= 1e-7
    assert certificate.primal == pytest.approx(optimum, rel=1e-5)
    assert certificate.dual <= optimum * (1 + 1e-7)
    assert certificate.scope is Scope.ALL_PATTERNS
    assert certificate.recheck(done.problem, oracle)


def factored_value(problem: ReluProblem, done: Solution) -> float:
    """F + beta/2 sum_j (|u_j|_C^2 + |w_j|_R^2), with an ordinary forward pass of the balanced network (106)."""
    Z = done.Z[:, 0]
    root = problem.output_norm.value(Z).sqrt()[:, None]
    U, W = root * done.neurons, Z / root
    price = problem.hidden_norm.value(U).square().sum() + problem.output_norm.value(W).square().sum()
    return problem.datafit.value((problem.X @ U.T).relu() @ W) + problem.beta / 2 * float(price)


@EVERY_PAIR
def test_one_output_reaches_the_convex_program(hidden: Norm, output: Norm) -> None:
    problem = relu_problem(hidden, output, 1)
    assert_certified(problem, trained(problem), norm_optimum(problem, enumerate(problem.X).active))


@EVERY_PAIR
def test_two_outputs_reach_the_convex_program(hidden: Norm, output: Norm) -> None:
    """R = l2 has no finite list of corners; there the judge is a dictionary, which is all that l1 and linf need."""
    problem, done = relu_problem(hidden, output, 2), trained(relu_problem(hidden, output, 2))
    if output is L2:
        directions = planar_directions(problem.X.numpy(), 1500 if hidden is L2 else 0)
        assert_certified(problem, done, dictionary_optimum(problem, directions))
    else:
        assert_certified(problem, done, norm_optimum(problem, enumerate(problem.X).active))


@EVERY_PAIR
def test_the_network_costs_what_the_certificate_says(hidden: Norm, output: Norm) -> None:
    problem = relu_problem(hidden, output, 2, share=0.05)
    done = trained(problem)
    assert len(done.neurons) <= 7 * 2  # m* <= n c
    assert factored_value(problem, done) == pytest.approx(done.certificate.primal, rel=1e-12)


@pytest.mark.parametrize("loss", ["absolute", "squared_hinge"])
@pytest.mark.parametrize(("hidden", "output"), [(L1, LINF), (LINF, L1), (LINF, L2)], ids=lambda norm: norm.name)
def test_other_losses(hidden: Norm, output: Norm, loss: str) -> None:
    problem = relu_problem(hidden, output, 1, loss)
    assert_certified(problem, trained(problem), norm_optimum(problem, enumerate(problem.X).active))


@EVERY_PAIR
def test_no_network_from_gradient_descent_is_below_the_dual(hidden: Norm, output: Norm) -> None:
    problem = relu_problem(hidden, output, 2)
    U, W = (normal(9, 2, seed=seed).requires_grad_() for seed in (5, 6))
    engine, best = torch.optim.Adam([U, W], lr=0.03), np.inf
    for _ in range(150):
        engine.zero_grad()
        price = problem.hidden_norm.value(U).square().sum() + problem.output_norm.value(W).square().sum()
        residual = (problem.X @ U.T).relu() @ W - problem.datafit.targets
        value = 0.5 * residual.square().sum() + problem.beta / 2 * price
        best = min(best, float(value.detach()))
        value.backward()
        engine.step()
    certificate = trained(problem).certificate
    assert certificate.dual <= best
    assert best <= 1.5 * certificate.primal  # and it comes near, so the comparison means something


@pytest.mark.parametrize(("hidden", "output"), [(L1, L1), (LINF, L2)], ids=lambda norm: norm.name)
def test_search_trains_too_and_its_certificate_is_sound(hidden: Norm, output: Norm) -> None:
    problem = relu_problem(hidden, output, 2)
    search = NormSearch(problem.X, hidden, output, Faces(problem.X))
    certificate = solve(problem, ColumnGeneration(search), Limits(1e-5)).certificate
    exact = trained(problem).certificate
    assert 0 < certificate.dual <= exact.primal
    assert certificate.primal == pytest.approx(exact.primal, rel=1e-2)
    assert certificate.primal >= exact.dual


def test_an_oracle_for_other_norms_is_refused() -> None:
    problem = relu_problem(L1, L2, 1)
    with pytest.raises(ValueError, match="the problem has the norms l1 and l2, Faces answers for l2 and l2"):
        solve(problem, ColumnGeneration(Faces(problem.X)), Limits(1e-6))
    with pytest.raises(ValueError, match=r"a closed form is for weight decay.* got l1 and l2"):
        problem.check_weight_decay("a closed form")
    relu_problem(L2, L2, 1).check_weight_decay("a closed form")


def gated_problem(hidden: Norm, output: Norm) -> Problem:
    X = normal(12, 3, seed=1)
    operator = GatedOperator(X, activations(X, sample_gates(X, 3, torch.Generator().manual_seed(0))), 2)
    problem = Problem(operator, Datafit(Squared(), normal(12, 2, seed=2)), pair_gauge(hidden, output, 2), 1.0)
    return problem.with_beta(0.2 * problem.beta_max)


@pytest.mark.parametrize(("hidden", "output"), CONVEX, ids=lambda norm: norm.name)
def test_lemma_3_1_the_factored_problem_has_the_same_value(hidden: Norm, output: Norm) -> None:
    """(14) at split(Z*) attains (16); and the penalty of split is that of the pair, column by column."""
    problem = gated_problem(hidden, output)
    solution = solve_auto(problem, Limits(1e-8))
    U, W = problem.gauge.split(solution.Z)
    price = hidden.value(U.mT).square().sum() + output.value(W.mT).square().sum()
    factored = problem.datafit.value(problem.operator.forward(U @ W.mT)) + problem.beta / 2 * float(price)
    assert solution.certificate.relative_gap <= 1e-8
    assert factored == pytest.approx(solution.certificate.primal, rel=1e-9)
    assert problem.gauge.factor_penalty(Factors(U, W)) == pytest.approx(float(price) / 2, rel=1e-12)


@pytest.mark.parametrize(("hidden", "output"), CONVEX, ids=lambda norm: norm.name)
def test_lemma_3_1_the_polar_is_the_bilinear_maximum(hidden: Norm, output: Norm) -> None:
    """(15): Omega°(G) = max u^T G v over both balls; alternating maximisation from many starts comes up to it."""
    G, gauge = normal(1, 3, 4, seed=5), pair_gauge(hidden, output, 4)
    u = hidden.unit(torch.cat([normal(300, 3, seed=6), torch.eye(3, dtype=torch.float64)]))
    for _ in range(100):
        u = hidden.aligned(output.aligned(u @ G[0]) @ G[0].T)
    assert float(output.dual.value(u @ G[0]).max()) == pytest.approx(gauge.polar(G).upper, rel=1e-9)


def test_pairs_without_a_tractable_gauge_are_refused_unless_there_is_one_output() -> None:
    for hidden, output in ((L2, LINF), (LINF, L2), (LINF, LINF)):
        with pytest.raises(ValueError, match="is NP-hard for several outputs"):
            pair_gauge(hidden, output, 2)
        z = normal(1, 5, 1)
        assert pair_gauge(hidden, output, 1).value(z) == pytest.approx(float(hidden.value(z[0, :, 0])))
