"""The width m_1 (notes on PR): p_inf(beta / sqrt(m_1)) <= p_m1(beta) <= p_2(beta / sqrt(m_1))."""

import pytest

from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.problems.parallel import ParallelProblem
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits
from bidual.training.parallel.plan import ParallelPlan
from bidual.training.relu.plan import ReluPlan
from oracles.parallel_cases import data
from oracles.parallel_oracle import limit_optimum


@pytest.mark.parametrize(
    ("width", "seed", "kind"), [(2, 0, "random"), (3, 1, "random"), (2, 5, "alternating"), (3, 2, "teacher")]
)
def test_the_optimum_is_between_many_units_and_copies_of_two_layers(width: int, seed: int, kind: str) -> None:
    X, y = data(4, seed, kind)
    beta, datafit = 0.05, Datafit(Squared(), y)
    three = ParallelPlan(X, width).train(ParallelProblem(X, datafit, beta, width), Limits(1e-6)).certificate
    two = ReluPlan(X).train(ReluProblem(X, datafit, beta / width**0.5), Limits(1e-7)).certificate
    limit = limit_optimum(X.numpy(), y[:, 0].numpy(), beta / width**0.5)
    assert limit * (1 - 1e-6) <= three.primal
    assert three.dual <= two.primal * (1 + 1e-9)


def test_the_width_is_between_two_layers_and_their_copies() -> None:
    """p_m1(beta) <= p_2(beta / sqrt(m_1)), attained on teacher data and not on alternating labels."""
    for kind, equal in (("teacher", True), ("alternating", False)):
        X, y = data(4, 5, kind)
        datafit = Datafit(Squared(), y)
        three = ParallelPlan(X, 2).train(ParallelProblem(X, datafit, 0.02, 2), Limits(1e-6)).certificate
        two = ParallelPlan(X, 1).train(ParallelProblem(X, datafit, 0.02 / 2**0.5, 1), Limits(1e-6)).certificate
        assert three.dual <= two.primal * (1 + 1e-9)
        if equal:
            assert three.primal == pytest.approx(two.primal, rel=1e-5)
        else:
            assert three.primal < two.dual
