"""Neurons that come and go: products along lines, curvature, memory, and what the solver does at its edges."""

import pytest
import torch
from torch import Tensor

from bidual.architectures import GatedCNN
from bidual.gauges import Nuclear
from bidual.losses import LOSSES, Softmax, Squared
from bidual.losses.datafit import Datafit
from bidual.numerics.lbfgs import Memory, step_length
from bidual.operators import GatedOperator, LinearOperator
from bidual.problems.problem import Problem
from bidual.problems.solution import Limits, Status
from bidual.solvers import ActiveNeurons
from bidual.solvers.driver import solve
from bidual.solvers.neuron_products import LiftedProducts, NeuronProducts, ProductsFor, Spectrum, lifted
from bidual.solvers.plan import solve_auto
from helpers.draws import normal
from oracles.problems import gated_problem


def random_rows(count: int, width: int, seed: int = 3) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def operators() -> list[GatedOperator | LinearOperator]:
    X = normal(12, 4)
    return [GatedOperator(X, normal(5, 12) > 0, 3), LinearOperator(X, 3)]


def both(operator: GatedOperator | LinearOperator) -> tuple[NeuronProducts, NeuronProducts]:
    block = torch.tensor([0, 2, 2, 4]) % operator.block_shape[0]
    rows = random_rows(4, 7)
    return ProductsFor(operator)(block, rows), LiftedProducts(operator, block, rows)


@pytest.mark.parametrize("operator", operators(), ids=lambda o: type(o).__name__)
class TestProducts:
    def test_need_no_lifted_variable(self, operator):
        cheap, plain = both(operator)
        V, step = random_rows(12, 3), random_rows(4, 7, 5)
        torch.testing.assert_close(cheap.P, plain.P)
        torch.testing.assert_close(cheap.pull(V), plain.pull(V))
        for one, other in zip(cheap.along(step), plain.along(step), strict=True):
            torch.testing.assert_close(one, other)

    def test_are_quadratic_along_a_line(self, operator):
        for products in both(operator):
            step, t = random_rows(4, 7, 5), 0.7
            first, second = products.along(step)
            products.move(step, t, products.P + t * first + t**2 * second)
            again = type(products)(products.operator, products.block, products.rows, *_rest(products))
            torch.testing.assert_close(products.P, again.P)
            torch.testing.assert_close(products.pull(again.P), again.pull(again.P))

    def test_pull_is_the_gradient(self, operator):
        products, V = both(operator)[1], random_rows(12, 3)
        rows = products.rows.clone().requires_grad_()
        Z = lifted(products.operator, products.block, rows[:, :4], rows[:, 4:])
        (products.operator.forward(Z) * V).sum().backward()
        torch.testing.assert_close(products.pull(V), rows.grad)


def _rest(products: NeuronProducts) -> tuple[Spectrum, ...]:
    return (products.spectrum,) if hasattr(products, "spectrum") else ()


def test_curvature_of_one_linear_neuron_is_its_hessian_block_by_block():
    X, beta = normal(9, 4), 0.3
    problem = Problem(LinearOperator(X, 2), Datafit(Squared(), random_rows(9, 2)), Nuclear(), beta)
    rows = random_rows(1, 6)
    products = ProductsFor(problem.operator)(torch.tensor([0]), rows)
    solved = products.curvature(problem).divide(random_rows(1, 6, 8))
    u, w = rows[0, :4], rows[0, 4:]
    S = torch.eye(2, dtype=torch.float64)
    inner = (w @ S @ w) * X.T @ X + beta * torch.eye(4, dtype=torch.float64)
    outer = (X @ u).square().sum() * S + beta * S
    torch.testing.assert_close(inner @ solved[0, :4], random_rows(1, 6, 8)[0, :4])
    torch.testing.assert_close(outer @ solved[0, 4:], random_rows(1, 6, 8)[0, 4:])


class TestMemory:
    def test_solves_a_quadratic_in_as_many_steps_as_it_has_variables(self):
        M = normal(6, 6)
        M, x, memory = M @ M.T + torch.eye(6, dtype=torch.float64), random_rows(6, 1), Memory(10)
        for _ in range(7):
            gradient = M @ x
            step = -memory.divide(gradient, lambda rows: rows)
            t = -float((gradient * step).sum() / (step * (M @ step)).sum())
            x = x + t * step
            memory.remember(t * step, M @ (t * step))
        assert float(x.abs().max()) < 1e-8

    def test_neurons_that_are_new_are_divided_by_the_first_guess(self):
        memory, gradient = Memory(3), random_rows(3, 2)
        memory.remember(random_rows(2, 2, 1), 2 * random_rows(2, 2, 1))
        memory.grow(1)
        divided = memory.divide(gradient, lambda rows: rows)
        torch.testing.assert_close(divided[2], 0.5 * gradient[2])
        memory.keep(torch.tensor([2]))
        assert not memory.pairs

    def test_pairs_without_curvature_are_not_kept(self):
        memory = Memory(3)
        memory.remember(random_rows(2, 2), -random_rows(2, 2))
        assert not memory.pairs


@pytest.mark.parametrize("root", [1e-9, 0.3, 1.0, 50.0, 1e6])
def test_step_length_flattens_the_slope(root):
    assert abs(step_length(lambda t: (t / root) ** 3 - 1, -1.0) / root - 1) < 0.2


def test_step_length_is_zero_where_nothing_falls():
    assert step_length(lambda t: float("nan"), -1.0) == 0


@pytest.mark.parametrize("loss", ["squared", "softmax", "logistic"])
def test_single_precision_reaches_a_moderate_gap_on_correlated_features(loss):
    """Non-negative features with a large common part, as pixels have."""
    X = normal(300, 12).abs() + 3
    problem = gated_problem(X, LOSSES[loss](), 4)
    solution = solve(problem, ActiveNeurons(), Limits(1e-4, 200))
    assert solution.status is Status.CERTIFIED
    assert solution.certificate.recheck(problem)


def test_warm_starts_are_used():
    problem = gated_problem(normal(60, 5), Softmax(), 3)
    first = solve(problem, ActiveNeurons("float64"), Limits(1e-6))
    again = solve(problem.with_beta(0.99 * problem.beta), ActiveNeurons("float64"), Limits(1e-3), start=first.Z)
    cold = solve(problem.with_beta(0.99 * problem.beta), ActiveNeurons("float64"), Limits(1e-3))
    assert again.status is cold.status is Status.CERTIFIED
    assert again.history[0].relative_gap < 0.1 * cold.history[0].relative_gap


def test_operators_without_activations_are_lifted():
    family, X = GatedCNN.example(torch.Generator().manual_seed(0))
    problem = Problem(family.lift(X, 2), Datafit(Squared(), random_rows(len(X), 2)), family.gauge(), 1.0)
    problem = problem.with_beta(0.1 * problem.beta_max)
    solution = solve(problem, ActiveNeurons("float64"), Limits(1e-5, 500))
    assert solution.status is Status.CERTIFIED
    assert solution.certificate.primal == pytest.approx(solve_auto(problem, Limits(1e-7)).certificate.primal, rel=1e-5)


def test_prices_without_smooth_factors_are_refused():
    problem = gated_problem(normal(12, 3), Squared(), 2, "frobenius")
    with pytest.raises(ValueError, match="smooth price on factors"):
        solve(problem, ActiveNeurons())


def test_ends_when_it_can_do_no_more():
    problem = gated_problem(normal(40, 4), Softmax(), 3)
    solution = solve(problem, ActiveNeurons(patience=5), Limits(1e-15, 500))
    assert solution.status is Status.STALLED
    assert solution.certificate.relative_gap < 1e-4
