"""The linear systems of kernel methods, and what a path keeps of them."""

import pickle
from dataclasses import replace

import pytest
import torch

from bidual.numerics.anderson import Anderson
from bidual.operators import GatedOperator
from bidual.problems.solution import Limits
from bidual.solvers import KernelADMM
from bidual.solvers.driver import solve
from bidual.solvers.kernel import ShiftedKernel
from bidual.solvers.plan import solve_auto
from gated_problems import Case, make_problem


def operator(n: int, d: int, patterns: int) -> GatedOperator:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return GatedOperator(X, torch.rand(patterns, n, generator=generator) > 0.5, 2)


@pytest.mark.parametrize(("n", "patterns"), [(40, 30), (400, 5)])
@pytest.mark.parametrize("intercept", [False, True])
def test_solves_agree_with_the_whole_system(n, patterns, intercept):
    A = operator(n, 3, patterns)
    shift, R = torch.linspace(0.5, 2, n, dtype=torch.float64), torch.randn(n, 2, dtype=torch.float64)
    nu, b = ShiftedKernel(A, intercept).factor(shift)(R)
    assert torch.allclose((A.kernel() + torch.diag(shift)) @ nu + b, R, atol=1e-9)
    assert torch.allclose(nu.sum(0), torch.zeros(2, dtype=torch.float64), atol=1e-9) == intercept


def test_narrow_designs_do_not_cancel_in_single_precision():
    """The answer is in the small difference of two large vectors: float32 alone gets no digit of it."""
    A = operator(3000, 3, 5)
    shift, R = torch.full((3000,), 1e-4, dtype=torch.float64), A.design() @ torch.ones(15, 1, dtype=torch.float64)
    exact, _ = ShiftedKernel(A, False).factor(shift)(R)
    single, _ = ShiftedKernel(A.to(torch.float32), False).factor(shift.float())(R.float())
    assert torch.linalg.vector_norm(A.adjoint(torch.cat([exact, exact], 1))) > 0
    fitted = A.kernel() @ single.double()
    assert torch.linalg.vector_norm(fitted - R) <= 1e-3 * torch.linalg.vector_norm(R)


def test_a_path_keeps_its_kernel_and_the_last_factor():
    A = operator(40, 3, 30).to(torch.float32)
    kernel = ShiftedKernel.of(A, False)
    assert ShiftedKernel.of(A, False) is kernel
    assert ShiftedKernel.of(A, True) is not kernel
    shift = torch.ones(40)
    assert kernel.factor(shift) is kernel.factor(shift.clone())
    assert kernel.factor(shift) is not kernel.factor(2 * shift)


def test_tall_problems_are_certified_without_a_matrix_of_all_samples():
    """Float32 steps on a narrow design once stopped at the start: 10,000 samples, 500 columns."""
    solution = solve_auto(make_problem(Case(10_000, 5, 20, 0.1)), Limits(1e-6))
    assert solution.certificate.relative_gap <= 1e-6
    assert solution.solver == "kernel_admm"


def test_anderson_finds_the_fixed_point_of_a_linear_map_in_a_few_steps():
    """For x -> M x + b with k distinct eigenvalues, k + 1 differences span the answer."""
    generator = torch.Generator().manual_seed(0)
    Q = torch.linalg.qr(torch.randn(30, 30, generator=generator, dtype=torch.float64)).Q
    M, b = (Q * torch.tensor([0.9, 0.5, -0.7] * 10, dtype=torch.float64)) @ Q.T, torch.ones(30, dtype=torch.float64)
    answer, x, anderson = torch.linalg.solve(torch.eye(30, dtype=torch.float64) - M, b), torch.zeros_like(b), Anderson()
    for _ in range(10):
        image = M @ x + b
        x = anderson.mix(image - x, image)
    assert torch.linalg.vector_norm(x - answer) <= 1e-5 * torch.linalg.vector_norm(answer)


def test_a_problem_that_was_solved_can_be_pickled():
    problem = make_problem(Case(60, 4, 20, 0.1))
    solve_auto(problem, Limits(1e-6))
    again = pickle.loads(pickle.dumps(problem))
    assert again.primal(again.operator.zeros()) == problem.primal(problem.operator.zeros())


def test_sample_weights_scale_the_penalty_of_the_first_step():
    """A weight for all is a smaller beta: the steps must not depend on it."""
    problem = make_problem(Case(100, 5, 30, 0.1))
    heavy = replace(
        problem,
        datafit=replace(problem.datafit, weight=torch.full((100,), 1e4, dtype=torch.float64)),
        beta=1e4 * problem.beta,
    )
    steps = [solve(part, KernelADMM("float64"), Limits(1e-4, 200)).n_steps for part in (problem, heavy)]
    assert abs(steps[0] - steps[1]) <= 5


def test_features_beyond_single_precision_are_left_to_double():
    problem = make_problem(Case(60, 4, 20, 0.1))
    large = replace(problem, operator=GatedOperator(1e20 * problem.operator.X, problem.operator.patterns, 1))
    large = large.with_beta(0.1 * large.beta_max)
    assert solve_auto(large, Limits(1e-6)).certificate.relative_gap <= 1e-6
