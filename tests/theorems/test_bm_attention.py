"""BM (8), (26), (104), (133)-(136) and Corollary 3.10: multi-head self-attention has a convex form.

Three sequences of three tokens of length two, two outputs, for every token or averaged over tokens.
"""

from functools import cache

import pytest
import torch
from torch import Tensor, nn

from bidual.architectures import GatedAttention, LinearAttention, ReluAttention
from bidual.gauges import Group, Nuclear
from bidual.losses import LOSSES
from bidual.operators.patches import TokenPairs
from bidual.papers.methods.cone_factors import ConeProgram
from bidual.patterns import distinct
from bidual.polar import Faces, Pooled
from bidual.problems.certificate import Scope
from bidual.problems.problem import Problem, ReluProblem
from bidual.problems.solution import Limits, Solution
from bidual.solvers import SOLVERS
from bidual.solvers.driver import solve
from bidual.solvers.factored import FactoredProgram, factored_point, train
from bidual.solvers.plan import solve_auto
from bidual.training.relu.plan import ReluPlan
from helpers.draws import normal
from oracles.cvxpy_oracle import cvxpy_optimum
from oracles.explicit_readouts import explicit_tokens
from oracles.many_starts import attention_gates, attentive, identity, lowest_objectives, relu
from oracles.pooled_oracle import dictionary_optimum, gated_optimum
from oracles.pooled_problems import pooled_problem, pooled_relu

every_readout = pytest.mark.parametrize("average", [False, True], ids=["every token", "average"])
every_loss = pytest.mark.parametrize("loss", LOSSES)
linear_or_gated = pytest.mark.parametrize("gated", [False, True], ids=["linear", "gated"])
N, S, D, C, GATES = 3, 3, 2, 2, 3
ENOUGH = min(D * D, D * C)


def sequences() -> Tensor:
    return normal(N, S, D)


def gates_of(gated: bool) -> Tensor | None:
    """Matrices H_k, stacked by columns."""
    return normal(D * D, GATES, seed=2) if gated else None


def masks(gated: bool) -> Tensor:
    """M_ki = 1{X_i H_k X_i^T >= 0} (k, n, s, s); ones for the linear network."""
    if not gated:
        return torch.ones(1, N, S, S, dtype=torch.bool)
    X = sequences()
    return torch.stack([torch.stack([x @ gate.reshape(D, D).T @ x.T >= 0 for x in X]) for gate in gates_of(True).T])


def problem_of(average: bool, gated: bool, loss: str = "squared") -> Problem:
    return pooled_problem(TokenPairs(sequences(), average), loss, gates=gates_of(gated))


def solution_of(average: bool, gated: bool, loss: str = "squared") -> Solution:
    return solve_auto(problem_of(average, gated, loss), Limits(1e-7))


def relu_of(average: bool, loss: str = "squared") -> tuple[ReluProblem, ReluPlan, Solution]:
    return _trained(average, loss)


@cache
def _trained(average: bool, loss: str) -> tuple[ReluProblem, ReluPlan, Solution]:
    patches = TokenPairs(sequences(), average)
    problem = pooled_relu(patches, loss)
    trainer = ReluPlan(problem.X, "auto", readout=patches)
    return problem, trainer, trainer.train(problem, Limits(1e-6))


# ------------------------------------------------------------------------------------------------- the convex programs


@every_readout
@linear_or_gated
@every_loss
def test_certified_optima_are_those_of_cvxpy(average, gated, loss):
    """(104) and (135), by cvxpy on the dense operator and on pairs of tokens made by loops."""
    problem, certificate = problem_of(average, gated, loss), solution_of(average, gated, loss).certificate
    assert certificate.relative_gap <= 1e-7
    assert certificate.recheck(problem)
    explicit = explicit_tokens(sequences(), average)
    formula = gated_optimum(explicit, masks(gated).flatten(1), problem.datafit, problem.beta)
    for optimum in (cvxpy_optimum(problem), formula):
        assert certificate.primal == pytest.approx(optimum, rel=1e-5)
        assert certificate.dual <= optimum * (1 + 1e-7)


@pytest.mark.parametrize("loss", ["squared", "softmax", "hinge"])
@every_readout
def test_intercepts_and_weights(loss, average):
    patches = TokenPairs(sequences(), average)
    problem = pooled_problem(patches, loss, gates=gates_of(True), intercept=True, weighted=True)
    certificate = solve_auto(problem, Limits(1e-7)).certificate
    explicit = explicit_tokens(sequences(), average)
    optimum = gated_optimum(explicit, masks(True).flatten(1), problem.datafit, problem.beta)
    assert certificate.primal == pytest.approx(optimum, rel=1e-5)
    assert certificate.dual <= optimum * (1 + 1e-7)


ROUGH = {"fista": 1e-5, "primal_dual": 1e-3, "burer_monteiro": 1e-4, "active_neurons": 1e-5}


@pytest.mark.parametrize("gauge", [Nuclear(), Group()], ids=lambda gauge: gauge.name)
@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_every_solver_takes_attention(solver, gauge):
    """Each ends at the optimum of cvxpy, or refuses what it refuses for plain networks too."""
    problem = pooled_problem(TokenPairs(sequences(), False), gates=gates_of(True), gauge=gauge)
    engine = SOLVERS[solver](dtype="float64") if solver in ("kernel_admm", "active_neurons") else SOLVERS[solver]()
    group = gauge.name == "frobenius"
    refusing = ("burer_monteiro", "active_neurons") if group else ("eta_newton",)
    if solver in ("eta_interior_point", "q_interior_point", "smoothed_newton", *refusing):
        with pytest.raises(ValueError, match="Use solver="):
            solve(problem, engine)
        return
    tol = ROUGH.get(solver, 1e-7)
    certificate = solve(problem, engine, Limits(tol, 20_000)).certificate
    optimum = cvxpy_optimum(problem)
    assert certificate.relative_gap <= tol
    assert certificate.primal == pytest.approx(optimum, rel=2 * tol + 1e-7)
    assert certificate.dual <= optimum * (1 + 1e-8)


# ---------------------------------------------------------------------------------------------------- orders of columns


def columns_stacked(U: Tensor) -> Tensor:
    """vec_F(U)."""
    return torch.cat([U[:, k] for k in range(U.shape[1])])


def rows_joined(V: Tensor) -> Tensor:
    """vec_C(V)."""
    return torch.cat([V[k] for k in range(V.shape[0])])


def by_loops(U: Tensor, V: Tensor, M: Tensor, average: bool) -> Tensor:
    """sum_kj (M_ki o X_i U_jk X_i^T) X_i V_jk, token by token, for U (P, m, d, d) and V (P, m, d, c)."""
    X, outputs = sequences(), torch.zeros(N, S, C, dtype=torch.float64)
    for i in range(N):
        for k, heads in enumerate(zip(U, V, strict=True)):
            for u, v in zip(*heads, strict=True):
                for p in range(S):
                    for q in range(S):
                        outputs[i, p] += M[k, i, p, q] * (X[i, p] @ u @ X[i, q]) * (X[i, q] @ v)
    return outputs.mean(1) if average else outputs.flatten(0, 1)


def heads_of(gated: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Two heads for every gate, and their Z_k = sum_j vec_F(U_jk) vec_C(V_jk)^T."""
    blocks = GATES if gated else 1
    U, V = normal(blocks, 2, D, D, seed=11), normal(blocks, 2, D, C, seed=12)
    Z = [
        sum(torch.outer(columns_stacked(u), rows_joined(v)) for u, v in zip(*heads, strict=True))
        for heads in zip(U, V, strict=True)
    ]
    return U, V, torch.stack(Z)


@every_readout
@linear_or_gated
def test_vec_orders(average, gated):
    """Z_k = sum_j vec_F(U_jk) vec_C(V_jk)^T predicts what the heads predict; no other pair of orders does."""
    U, V, Z = heads_of(gated)
    operator, expected = problem_of(average, gated).operator, by_loops(U, V, masks(gated), average)
    torch.testing.assert_close(operator.forward(Z), expected, rtol=1e-12, atol=1e-12)
    explicit = explicit_tokens(sequences(), average)
    torch.testing.assert_close(explicit.predictions(Z, masks(gated).flatten(1)), expected, rtol=1e-12, atol=1e-12)
    for left in (U, U.mT):
        for right in (V, V.mT):
            other = torch.einsum("kja,kjb->kab", left.flatten(2), right.flatten(2))
            same = torch.allclose(operator.forward(other), expected, rtol=1e-3)
            assert same is (left is not U and right is V)


def test_blocks_of_the_linear_form():
    """(104): pred_i = sum_kl G_i[k, l] X_i Z^(k, l) with Z^(k, l) = sum_j U_j[:, k] V_j[l, :] and G_i = X_i^T X_i."""
    U, V, Z = heads_of(False)
    blocks = Z[0].reshape(D, D, D, C)  # (k, row, l, column)
    for k in range(D):
        for m in range(D):
            expected = sum(torch.outer(u[:, k], v[m]) for u, v in zip(U[0], V[0], strict=True))
            torch.testing.assert_close(blocks[k, :, m], expected)
    found = [torch.einsum("kl,pr,krlc->pc", x.T @ x, x, blocks) for x in sequences()]
    torch.testing.assert_close(problem_of(False, False).operator.forward(Z), torch.cat(found), rtol=1e-12, atol=1e-12)


@linear_or_gated
def test_gradients(gated):
    """A* R = sum_i sum_q (x_q x_q^T) kron (X_i^T diag(M_ki[:, q]) R_i); linear: sum_i G_i kron (X_i^T R_i)."""
    X, R, M = sequences(), normal(N, S, C, seed=13), masks(gated).double()
    expected = torch.stack(
        [
            sum(
                torch.kron(torch.outer(X[i, q], X[i, q]), X[i].T @ torch.diag(mask[i, :, q]) @ R[i])
                for i in range(N)
                for q in range(S)
            )
            for mask in M
        ]
    )
    found = problem_of(False, gated).operator.adjoint(R.flatten(0, 1))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    if not gated:
        linear = sum(torch.kron(x.T @ x, x.T @ r) for x, r in zip(X, R, strict=True))
        torch.testing.assert_close(found[0], linear, rtol=1e-12, atol=1e-12)


# ------------------------------------------------------------------------------------------------- non-convex training


def objective(module: nn.Module, problem: Problem) -> float:
    """F(module(X)) + beta/2 (|U|^2 + |V|^2)."""
    with torch.no_grad():
        outputs = module(sequences())
    loss = problem.datafit.value(outputs.reshape(-1, C))
    parts = (module.mixing.detach(), module.value.detach())
    return loss + 0.5 * problem.beta * sum(float(part.square().sum()) for part in parts)


@every_readout
@linear_or_gated
def test_decoded_networks_have_the_objective_of_the_convex_program(average, gated):
    problem, solution = problem_of(average, gated), solution_of(average, gated)
    family = (
        GatedAttention(d=D, average=average, gates=gates_of(True)) if gated else LinearAttention(d=D, average=average)
    )
    module = family.decode(solution.Z)
    assert module(sequences()).shape == ((N, C) if average else (N, S, C))
    assert objective(module, problem) == pytest.approx(solution.certificate.primal, rel=1e-9)
    assert family.regulariser(module) == pytest.approx(problem.gauge.value(solution.Z), rel=1e-9)


@every_readout
def test_decoded_relu_networks_have_the_objective_of_the_convex_program(average):
    _, _, training = relu_of(average)
    module = ReluAttention(d=D, average=average, neurons=training.neurons).decode(training.Z)
    assert objective(module, training.problem) == pytest.approx(training.certificate.primal, rel=1e-9)


SMOOTH_CASES = [(False, "squared"), (True, "squared"), (False, "softmax")]
average_and_loss = pytest.mark.parametrize(("average", "loss"), SMOOTH_CASES)


@average_and_loss
@linear_or_gated
def test_training_the_heads_stays_above_the_dual_and_comes_close(average, gated, loss):
    """(26), (133): min(d^2, d c) heads per gate."""
    problem, certificate = problem_of(average, gated, loss), solution_of(average, gated, loss).certificate
    X, heads = sequences(), ENOUGH * (GATES if gated else 1)
    activation = attention_gates(X, gates_of(True), ENOUGH) if gated else identity
    shapes = ((heads, D, D), (heads, D, C))
    reached = lowest_objectives(attentive(X, average, activation), shapes, problem.datafit.targets, problem.beta, loss)
    assert float(reached.min()) >= certificate.dual - 1e-9
    assert float(reached.min()) <= certificate.primal * 1.01


# -------------------------------------------------------------------------------------------------------- ReLU networks


RELU_LOSSES = [
    loss if loss in ("squared", "softmax") else pytest.param(loss, marks=pytest.mark.slow) for loss in LOSSES
]


@every_readout
@pytest.mark.parametrize("loss", RELU_LOSSES)
def test_relu_attention_is_certified_over_all_patterns(average, loss):
    """(136): pairs of tokens of length two have rank four, where every face of the arrangement can be visited.

    At the certificate's V no head violates |V^T L[(X u)_+]|_F <= beta.
    """
    problem, trainer, training = relu_of(average, loss)
    certificate, explicit = training.certificate, explicit_tokens(sequences(), average)
    assert isinstance(trainer.neuron_oracle, Pooled)
    assert isinstance(trainer.neuron_oracle.inner, Faces)
    assert certificate.scope is Scope.ALL_PATTERNS
    assert certificate.relative_gap <= 1e-6
    heads = nn.functional.normalize(normal(20_000, D * D, seed=6))
    steep = explicit.steepness(certificate.dual_point, torch.cat([heads, training.neurons]))
    assert float(steep.max()) <= problem.beta * (1 + 1e-9)
    assert float(steep[20_000:].max()) >= problem.beta * (1 - 1e-4)
    assert certificate.recheck(training.problem, problem.oracle(Faces))


@every_readout
@every_loss
def test_relu_attention_on_tokens_of_length_one(average, loss):
    """d = 1: a head is 1 or -1 up to scale, so the optimum is a group lasso over two of them, by cvxpy."""
    X = normal(5, 3, 1, seed=4)
    patches = TokenPairs(X, average)
    problem = pooled_relu(patches, loss)
    certificate = ReluPlan(problem.X, "auto", readout=patches).train(problem, Limits(1e-7)).certificate
    both = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    optimum = dictionary_optimum(explicit_tokens(X, average), both, problem.datafit, problem.beta)
    assert certificate.primal == pytest.approx(optimum, rel=1e-6)
    assert certificate.dual <= optimum * (1 + 1e-8)


@average_and_loss
def test_training_relu_heads_stays_above_the_dual_and_comes_close(average, loss):
    """(8), with enough heads that some start finds all that are needed."""
    problem, _, training = relu_of(average, loss)
    certificate, X = training.certificate, sequences()
    predict, shapes = attentive(X, average, relu), ((16, D, D), (16, D, C))
    reached = lowest_objectives(predict, shapes, problem.datafit.targets, problem.beta, loss)
    assert float(reached.min()) >= certificate.dual - 1e-9
    assert float(reached.min()) <= certificate.primal * 1.01


# ------------------------------------------------------------------------------------------------------ factored forms


@every_readout
@linear_or_gated
def test_enough_heads_reach_the_convex_optimum(average, gated):
    """BM Corollary 3.10: min(d^2, d c) heads per gate suffice, of d^2 + d c in the paper, from every start."""
    problem, optimum = problem_of(average, gated), solution_of(average, gated).certificate.primal
    for seed in range(3):
        program = FactoredProgram(problem, ENOUGH)
        found = train(program, "lbfgs", seed=seed, escape=False, tol=1e-8, max_steps=5000)
        assert factored_point(found).value == pytest.approx(optimum, rel=1e-5)
        assert found.certificate.dual <= optimum * (1 + 1e-9)


def test_the_papers_number_of_heads_reaches_it_too():
    problem, optimum = problem_of(False, False), solution_of(False, False).certificate.primal
    found = train(FactoredProgram(problem, D * D + D * C), "lbfgs", escape=False, tol=1e-8, max_steps=5000)
    assert factored_point(found).value == pytest.approx(optimum, rel=1e-5)


def test_one_head_does_not_reach_the_optimum():
    """At small beta the optimum needs more than one head: every start ends above it, at a point that can be left."""
    problem = pooled_problem(TokenPairs(sequences(), False), share=0.01)
    optimum = solve_auto(problem, Limits(1e-8)).certificate
    ends = [
        train(FactoredProgram(problem, 1), "lbfgs", seed=seed, escape=False, tol=1e-8, max_steps=5000)
        for seed in range(6)
    ]
    assert min(factored_point(end).value for end in ends) > optimum.primal * 1.01
    assert all(end.certificate.dual <= optimum.primal * (1 + 1e-9) for end in ends)
    left = train(FactoredProgram(problem, 1), "lbfgs", tol=1e-7, max_steps=20_000)
    assert factored_point(left).escapes >= 1
    assert factored_point(left).value == pytest.approx(optimum.primal, rel=1e-6)


def cone_program(problem: ReluProblem, training: Solution) -> ConeProgram:
    """(134) over the patterns of a trained network, and m = 2."""
    patterns = problem.X @ training.neurons.T >= 0
    return ConeProgram.of(problem, patterns.T[distinct(patterns.T)], 2)


@every_readout
def test_cone_programs_bound_the_relu_optimum_from_both_sides(average):
    """(134): feasible points are ReLU networks, certified over all patterns, whatever the point."""
    problem, _, training = relu_of(average)
    best, program = training.certificate, cone_program(problem, training)
    for seed in range(3):
        factors = program.start(torch.Generator().manual_seed(seed))
        certificate = program.certificate(factors)
        assert certificate.scope is Scope.ALL_PATTERNS
        assert certificate.dual <= best.primal
        assert certificate.primal >= best.dual
        assert certificate.primal <= program.value(factors) * (1 + 1e-12)
        U, W = program.network(factors)
        features = explicit_tokens(sequences(), average).features(U[0].T)
        outputs = torch.einsum("ima,mac->ic", features, W[0].T.reshape(-1, D, C))
        torch.testing.assert_close(outputs, program.predictions(factors), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("tol", [3e-2, pytest.param(1e-3, marks=pytest.mark.slow)])
def test_cone_programs_reach_the_relu_optimum(tol):
    """Proximal descent with escapes, from a random start."""
    problem, _, training = relu_of(True)
    best = training.certificate
    found = train(cone_program(problem, training), "proximal", tol=tol, max_steps=5000)
    assert found.certificate.scope is Scope.ALL_PATTERNS
    assert found.certificate.relative_gap <= tol
    assert found.certificate.dual <= best.primal
    assert best.dual <= found.certificate.primal == pytest.approx(best.primal, rel=2 * tol)
