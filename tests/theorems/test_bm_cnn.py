"""BM section 3.2 and (22)-(24), (125)-(127), (130): convolutional networks with pooling have a convex form.

Optima are checked against cvxpy models of the papers' formulas on patches that were cut by loops, against non-convex
training of ordinary convolutional networks, and against the factored forms.
"""

from functools import cache

import pytest
import torch
from torch import Tensor, nn

from bidual.architectures import GatedCNN, LinearCNN, ReluCNN
from bidual.gauges import Group, Nuclear
from bidual.losses import LOSSES
from bidual.operators.patches import Convolution
from bidual.papers.methods.cone_factors import ConeProgram, gated_program
from bidual.patterns import distinct
from bidual.patterns import enumerate as all_patterns
from bidual.polar import Faces
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
from oracles.many_starts import convolution_gates, convolutional, identity, lowest_objectives, relu
from oracles.pooled_oracle import cone_optimum, dictionary_optimum, gated_optimum
from oracles.pooled_problems import (
    POOLINGS,
    convolved,
    explicit_signals,
    pooled_problem,
    pooled_relu,
    pooling_matrix,
    signals,
)
from oracles.relu_problems import circle

every_pooling = pytest.mark.parametrize("pooling", POOLINGS)
every_loss = pytest.mark.parametrize("loss", LOSSES)
linear_or_gated = pytest.mark.parametrize("gated", [False, True], ids=["linear", "gated"])
GATES = 4


def gates_of(gated: bool, h: int = 3) -> Tensor | None:
    return normal(h, GATES, seed=2) if gated else None


def active(gated: bool, pooling: str) -> Tensor:
    """The patterns (P, R) of the gates; one that is on everywhere for the linear network."""
    rows = explicit_signals(signals(), pooling).rows
    return (rows @ gates_of(True) >= 0).T if gated else torch.ones(1, len(rows), dtype=torch.bool)


def problem_of(pooling: str, gated: bool, loss: str = "squared") -> Problem:
    return pooled_problem(convolved(signals(), pooling), loss, gates=gates_of(gated))


def solution_of(pooling: str, gated: bool, loss: str = "squared") -> Solution:
    return solve_auto(problem_of(pooling, gated, loss), Limits(1e-7))


def relu_of(pooling: str, loss: str = "squared", h: int = 2) -> tuple[ReluProblem, Solution]:
    """Filters of length two, where directions are a circle, unless told otherwise."""
    return _trained(pooling, loss, h)


@cache
def _trained(pooling: str, loss: str, h: int) -> tuple[ReluProblem, Solution]:
    patches = convolved(signals(h), pooling)
    problem = pooled_relu(patches, loss)
    return problem, ReluPlan(problem.X, "auto", readout=patches).train(problem, Limits(1e-6))


# ------------------------------------------------------------------------------------------------- the convex programs


@every_pooling
@linear_or_gated
@every_loss
def test_certified_optima_are_those_of_cvxpy(pooling, gated, loss):
    """(127) and (130), by cvxpy on the dense operator and on the papers' own formula."""
    problem, solution = problem_of(pooling, gated, loss), solution_of(pooling, gated, loss)
    certificate = solution.certificate
    assert certificate.relative_gap <= 1e-7
    assert certificate.recheck(problem)
    explicit = explicit_signals(signals(), pooling)
    formula = gated_optimum(explicit, active(gated, pooling), problem.datafit, problem.beta)
    for optimum in (cvxpy_optimum(problem), formula):
        assert certificate.primal == pytest.approx(optimum, rel=1e-5)
        assert certificate.dual <= optimum * (1 + 1e-7)


@pytest.mark.parametrize("loss", ["squared", "softmax", "hinge"])
def test_intercepts_and_weights(loss):
    problem = pooled_problem(convolved(signals(), "grid"), loss, gates=gates_of(True), intercept=True, weighted=True)
    certificate = solve_auto(problem, Limits(1e-7)).certificate
    optimum = gated_optimum(explicit_signals(signals(), "grid"), active(True, "grid"), problem.datafit, problem.beta)
    assert certificate.primal == pytest.approx(optimum, rel=1e-5)
    assert certificate.dual <= optimum * (1 + 1e-7)


ROUGH = {"fista": 1e-5, "primal_dual": 1e-3, "burer_monteiro": 1e-4, "active_neurons": 1e-5}


@pytest.mark.parametrize("gauge", [Nuclear(), Group()], ids=lambda gauge: gauge.name)
@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_every_solver_takes_convolutions(solver, gauge):
    """Each ends at the optimum of cvxpy, or refuses what it refuses for plain networks too."""
    problem = pooled_problem(convolved(signals(), "grid"), gates=gates_of(True), gauge=gauge)
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


@pytest.mark.parametrize("kernel", [3, 2])
def test_two_dimensions_channels_padding_and_a_bias(kernel):
    """The decoded module has the objective of the convex program in every geometry."""
    X = normal(6, 2, 4, 5, seed=7)
    geometry = Convolution.of(2, (2, kernel), stride=(2, 1), padding=(1, 0), dilation=(1, 1), pooling=(3, 1))
    shape, width = tuple(X.shape[1:]), 4 * kernel + 1
    family = GatedCNN(image_shape=shape, convolution=geometry, bias=True, gates=normal(width, 3, seed=8))
    problem = pooled_problem(family.patches(X), gates=family.gates)
    check_decoded(family, problem, X)


# -------------------------------------------------------------------------------------------------------- ReLU networks


@every_pooling
@every_loss
def test_relu_optimum_lies_in_the_bracket_of_a_fine_dictionary(pooling, loss):
    """(23) against 700 directions of the circle and all at which a patch changes sign.

    Between neighbours at an angle t of one cell, L[(X u)_+] is linear in u, and costs at most 1 / cos(t/2) as much.
    """
    problem, training = relu_of(pooling, loss)
    certificate = training.certificate
    assert certificate.scope is Scope.ALL_PATTERNS
    assert certificate.relative_gap <= 1e-6
    explicit, count = explicit_signals(signals(h=2), pooling), 700
    upper = dictionary_optimum(explicit, circle(explicit.rows, count), problem.datafit, problem.beta)
    lower = upper * torch.cos(torch.tensor(torch.pi / count)).item()
    assert certificate.dual <= upper * (1 + 1e-8)
    assert certificate.primal >= lower * (1 - 1e-8)
    assert certificate.primal == pytest.approx(upper, rel=2e-5)
    assert certificate.recheck(training.problem, problem.oracle(Faces))


@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge"])
def test_relu_optimum_is_that_of_the_program_with_cones(loss):
    """(23) as printed, for one output and one readout, h = 3, over all patterns of the patches."""
    X = signals(n=2, seed=1)
    patches = convolved(X, "average")
    problem = pooled_relu(patches, loss, c=1)
    certificate = ReluPlan(problem.X, "auto", readout=patches).train(problem, Limits(1e-6)).certificate
    explicit = explicit_signals(X, "average")
    optimum = cone_optimum(explicit, all_patterns(explicit.rows).active, problem.datafit, problem.beta)
    assert certificate.scope is Scope.ALL_PATTERNS
    assert certificate.primal == pytest.approx(optimum, rel=1e-5)
    assert certificate.dual <= optimum * (1 + 1e-7)


@every_pooling
@pytest.mark.parametrize("h", [2, 3])
def test_no_direction_violates_the_dual(pooling, h):
    """|V^T L[(X u)_+]|_F <= beta at the certificate's V, the constraint of (23) before it is split into patterns.

    It is attained by the filters in use.
    """
    problem, training = relu_of(pooling, "squared", h)
    V, explicit = training.certificate.dual_point, explicit_signals(signals(h), pooling)
    directions = circle(problem.X, 20_000) if h == 2 else nn.functional.normalize(normal(20_000, h, seed=6))
    assert float(explicit.steepness(V, directions).max()) <= problem.beta * (1 + 1e-9)
    used = training.neurons[training.Z.flatten(1).abs().amax(1) > 1e-3]
    assert explicit.steepness(V, used).tolist() == pytest.approx([problem.beta] * len(used), rel=1e-2)


# ------------------------------------------------------------------------------------------------- the papers' layout


def papers_blocks(U: Tensor, V: Tensor) -> Tensor:
    """Z_k = [Z_k^(1) ... Z_k^(c)], Z_k^(c') = sum_j u_jk V_jk[c', :]: columns by output and readout, U (P, m, h)."""
    return torch.stack(
        [sum(torch.outer(u, v.reshape(-1)) for u, v in zip(*one, strict=True)) for one in zip(U, V, strict=True)]
    )


def ours(Z: Tensor, c: int) -> Tensor:
    """The same blocks with columns by readout and output."""
    p, h, width = Z.shape
    return Z.reshape(p, h, c, width // c).mT.reshape(p, h, width)


@every_pooling
@linear_or_gated
def test_the_papers_layout(pooling, gated):
    """pred_i = sum_kj V_jk B_k^i u_jk, pred_i[c'] = sum_k trace(B_k^i Z_k^(c')), up to the order of columns.

    V_jk is (c, a) and enters row by row; B_k^i = P_a D_k^(i) X_i. The nuclear norm does not see the order.
    """
    operator, D = problem_of(pooling, gated).operator, active(gated, pooling)
    explicit, P, c = explicit_signals(signals(), pooling), pooling_matrix(pooling), 2
    U, V = normal(len(D), 3, 3, seed=11), normal(len(D), 3, c, len(P), seed=12)
    Z, X = papers_blocks(U, V), explicit.rows.reshape(6, 6, 3)
    B = [[P @ torch.diag(pattern[6 * i : 6 * i + 6].double()) @ X[i] for i in range(6)] for pattern in D]
    network = [sum(V[k, j] @ B[k][i] @ U[k, j] for k in range(len(D)) for j in range(3)) for i in range(6)]
    traces = [
        [sum(torch.trace(B[k][i] @ Z[k][:, o * len(P) : (o + 1) * len(P)]) for k in range(len(D))) for o in range(c)]
        for i in range(6)
    ]
    found = operator.forward(ours(Z, c))
    torch.testing.assert_close(torch.stack(network), torch.tensor(traces, dtype=torch.float64), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found, torch.stack(network), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found, explicit.predictions(ours(Z, c), D), rtol=1e-12, atol=1e-12)
    assert Nuclear().value(Z) == pytest.approx(Nuclear().value(ours(Z, c)), rel=1e-12)
    R = normal(6, c, seed=13)
    gradient = [sum(torch.cat([r * B[k][i].T for r in R[i]], 1) for i in range(6)) for k in range(len(D))]
    torch.testing.assert_close(operator.adjoint(R), ours(torch.stack(gradient), c), rtol=1e-12, atol=1e-12)


# ------------------------------------------------------------------------------------------------ non-convex training


def objective(module: nn.Module, problem: Problem, X: Tensor) -> float:
    """F(module(X)) + beta/2 times the sum of squares of all weights but the output's bias."""
    with torch.no_grad():
        loss = problem.datafit.value(module(X))
    parts = [*module.hidden.parameters(), module.output.weight]
    return loss + 0.5 * problem.beta * sum(float(part.detach().square().sum()) for part in parts)


def check_decoded(family: LinearCNN, problem: Problem, X: Tensor) -> None:
    solution = solve_auto(problem, Limits(1e-7))
    module = family.decode(solution.Z)
    assert objective(module, problem, X) == pytest.approx(solution.certificate.primal, rel=1e-9)
    assert family.regulariser(module) == pytest.approx(problem.gauge.value(solution.Z), rel=1e-9)


@every_pooling
@linear_or_gated
def test_decoded_networks_have_the_objective_of_the_convex_program(pooling, gated):
    problem, X = problem_of(pooling, gated), signals()
    settings = {"image_shape": tuple(X.shape[1:]), "convolution": problem.operator.patches.convolution}
    family = GatedCNN(**settings, gates=gates_of(True)) if gated else LinearCNN(**settings)
    check_decoded(family, problem, X)


@every_pooling
def test_decoded_relu_networks_have_the_objective_of_the_convex_program(pooling):
    problem, training = relu_of(pooling)
    X, patches = signals(h=2), problem.readout
    family = ReluCNN(image_shape=tuple(X.shape[1:]), convolution=patches.convolution, neurons=training.neurons)
    module = family.decode(training.Z)
    primal = training.certificate.primal
    assert objective(module, training.problem, X) == pytest.approx(primal, rel=1e-9)


@linear_or_gated
@pytest.mark.parametrize(("pooling", "loss"), [*((name, "squared") for name in POOLINGS), ("grid", "softmax")])
def test_training_the_network_stays_above_the_dual_and_comes_close(pooling, gated, loss):
    """(125), (126): conv, gate or nothing, pool, linear; m >= min(h, a c) filters per gate."""
    problem, certificate = problem_of(pooling, gated, loss), solution_of(pooling, gated, loss).certificate
    X, P = signals(), pooling_matrix(pooling)
    m = min(3, 2 * len(P))
    filters = m * GATES if gated else m
    activation = convolution_gates(X, gates_of(True), m) if gated else identity
    shapes = ((filters, 1, 3), (filters, len(P), 2))
    reached = lowest_objectives(convolutional(X, P, activation), shapes, problem.datafit.targets, problem.beta, loss)
    assert float(reached.min()) >= certificate.dual - 1e-9
    assert float(reached.min()) <= certificate.primal * 1.01


RELU_CASES = [*((name, "squared", 2) for name in POOLINGS), ("grid", "softmax", 2), ("grid", "squared", 3)]


@pytest.mark.parametrize(("pooling", "loss", "h"), RELU_CASES)
def test_training_the_relu_network_stays_above_the_dual_and_comes_close(pooling, loss, h):
    """(22), with enough filters that some start finds all that are needed."""
    problem, training = relu_of(pooling, loss, h)
    certificate, P = training.certificate, pooling_matrix(pooling)
    assert certificate.relative_gap <= 1e-6
    predict, shapes = convolutional(signals(h), P, relu), ((16, 1, h), (16, len(P), 2))
    reached = lowest_objectives(predict, shapes, problem.datafit.targets, problem.beta, loss)
    assert float(reached.min()) >= certificate.dual - 1e-9
    assert float(reached.min()) <= certificate.primal * 1.01


# ------------------------------------------------------------------------------------------------------ factored forms


@every_pooling
@linear_or_gated
def test_enough_factors_reach_the_convex_optimum(pooling, gated):
    """BM Theorem 3.3 for (125), (126): m >= min(h, a c) suffices, from every start and without leaving saddles."""
    problem, optimum = problem_of(pooling, gated), solution_of(pooling, gated).certificate.primal
    _, h, width = problem.operator.block_shape
    for seed in range(3):
        program = FactoredProgram(problem, min(h, width))
        found = train(program, "lbfgs", seed=seed, escape=False, tol=1e-8, max_steps=5000)
        assert factored_point(found).value == pytest.approx(optimum, rel=1e-5)
        assert found.certificate.dual <= optimum * (1 + 1e-9)


def cone_program(problem: ReluProblem, training: Solution) -> ConeProgram:
    """(24) over the patterns of a trained network, and m = 2."""
    patterns = problem.X @ training.neurons.T >= 0
    return ConeProgram.of(problem, patterns.T[distinct(patterns.T)], 2)


@every_pooling
def test_cone_programs_bound_the_relu_optimum_from_both_sides(pooling):
    """(24): feasible points are ReLU networks, certified over all patterns, whatever the point."""
    problem, training = relu_of(pooling)
    best, program = training.certificate, cone_program(problem, training)
    for seed in range(3):
        factors = program.start(torch.Generator().manual_seed(seed))
        certificate = program.certificate(factors)
        assert certificate.scope is Scope.ALL_PATTERNS
        assert certificate.dual <= best.primal
        assert certificate.primal >= best.dual
        assert certificate.primal <= program.value(factors) * (1 + 1e-12)
        U, W = program.network(factors)
        outputs = explicit_signals(signals(h=2), pooling).features(U[0].T)
        outputs = torch.einsum("ima,mac->ic", outputs, W[0].T.reshape(len(W[0].T), -1, 2))
        torch.testing.assert_close(outputs, program.predictions(factors), rtol=1e-8, atol=1e-8)


def test_cone_programs_reach_the_relu_optimum():
    """Proximal descent with escapes, from a random start."""
    problem, training = relu_of("grid")
    best = training.certificate
    found = train(cone_program(problem, training), "proximal", tol=1e-4, max_steps=20_000)
    assert found.certificate.scope is Scope.ALL_PATTERNS
    assert found.certificate.dual <= best.primal
    assert best.dual <= found.certificate.primal == pytest.approx(best.primal, rel=2e-4)


def test_a_gate_for_every_pattern_is_no_dearer_than_relu():
    """The gated program over all patterns drops the cones of (23), so its optimum is at most that of ReLU."""
    problem, training = relu_of("average")
    every = gated_program(problem, all_patterns(problem.X).active)
    relaxed = solve_auto(every, Limits(1e-6)).certificate
    assert relaxed.relative_gap <= 1e-6
    assert relaxed.primal <= training.certificate.primal * (1 + 2e-6)
