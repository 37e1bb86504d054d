"""Special cases that must coincide."""

import pytest
import torch

from bidual.gauges import GAUGES, Gauge
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.operators import GatedOperator, LinearOperator
from bidual.patterns import activations, sample_gates
from bidual.problems.problem import Problem
from bidual.problems.solution import Limits
from bidual.solvers.plan import solve_auto

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(12, 3, generator=GENERATOR, dtype=torch.float64)
Y = torch.randn(12, 2, generator=GENERATOR, dtype=torch.float64)


def optimum(operator, Y, gauge: Gauge) -> float:
    return solve_auto(Problem(operator, Datafit(Squared(), Y), gauge, 0.5), Limits(1e-9)).certificate.primal


@pytest.mark.parametrize("same", [("nuclear", "frobenius", "per_output"), ("per_input", "entries", "largest")])
def test_with_one_output_penalties_are_one_for_each_norm_of_the_inputs(same):
    D = activations(X, sample_gates(X, 6, GENERATOR))
    values = [optimum(GatedOperator(X, D, 1), Y[:, :1], GAUGES[name]()) for name in same]
    assert values == pytest.approx([values[0]] * 3, rel=1e-8)


def test_one_gate_that_is_always_on_is_a_linear_network():
    D = torch.ones(1, 12, dtype=torch.bool)
    gauge = GAUGES["nuclear"]()
    assert optimum(GatedOperator(X, D, 2), Y, gauge) == pytest.approx(optimum(LinearOperator(X, 2), Y, gauge), rel=1e-8)


def test_the_nuclear_price_lies_between_frobenius_and_per_output():
    D = activations(X, sample_gates(X, 6, GENERATOR))
    frobenius, nuclear, per_output = (
        optimum(GatedOperator(X, D, 2), Y, GAUGES[name]()) for name in ("frobenius", "nuclear", "per_output")
    )
    assert frobenius <= nuclear <= per_output
