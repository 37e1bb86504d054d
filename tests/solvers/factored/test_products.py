import pytest
import torch

from bidual.operators import GatedOperator, LiftedOperator
from bidual.problems.problem import Problem
from bidual.solvers.factored import arithmetic
from bidual.solvers.factored.arithmetic import adjoint, forward, is_cheaper
from helpers.draws import normal
from helpers.factored_cases import gated, linear, random_factors


@pytest.mark.parametrize("make", [gated, linear])
@pytest.mark.parametrize("at_once", [1, 50, 2**20])
def test_products_with_factors_are_those_with_their_product(
    make: object, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arithmetic, "_AT_ONCE", at_once)
    problem: Problem = make(d=5, c=4)  # type: ignore[operator]
    operator, factors, V = problem.operator, random_factors(problem, 2), normal(12, 4, seed=7)
    assert is_cheaper(operator, factors)
    G = operator.adjoint(V)
    torch.testing.assert_close(forward(operator, factors), operator.forward(factors.U @ factors.W.mT))
    torch.testing.assert_close(adjoint(operator, V, factors).U, G @ factors.W)
    torch.testing.assert_close(adjoint(operator, V, factors).W, G.mT @ factors.U)


def test_the_lifted_variable_is_formed_only_where_it_is_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(self: LiftedOperator, Z: torch.Tensor) -> torch.Tensor:
        raise AssertionError("formed Z")

    monkeypatch.setattr(GatedOperator, "forward", forbidden)
    problem = gated(d=5, c=4)
    forward(problem.operator, random_factors(problem, 2))
    with pytest.raises(AssertionError, match="formed Z"):
        forward(problem.operator, random_factors(problem, 3))
