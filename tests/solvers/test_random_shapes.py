"""A property over random shapes: whatever fits together is certified, at the optimum that cvxpy finds."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bidual.gauges import GAUGES
from bidual.losses import LOSSES
from bidual.problems.solution import Limits
from bidual.solvers.plan import solve_auto
from bidual.testing import own_checks_only
from oracles.cvxpy_oracle import cvxpy_optimum
from oracles.problems import gated_problem


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    n=st.integers(1, 14),
    d=st.integers(1, 6),
    c=st.integers(1, 3),
    loss=st.sampled_from(sorted(LOSSES)),
    gauge=st.sampled_from(sorted(GAUGES)),
    repeats=st.integers(1, 2),
    zero_column=st.booleans(),
    intercept=st.booleans(),
    weighted=st.booleans(),
    fraction=st.sampled_from([0.5, 0.1, 0.02]),
    seed=st.integers(0, 10_000),
)
def test_auto_finds_the_certified_optimum(
    n, d, c, loss, gauge, repeats, zero_column, intercept, weighted, fraction, seed
):
    c = max(c, 2) if loss == "softmax" else c
    X = torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).repeat(repeats, 1)
    X[:, 0] *= not zero_column
    problem = gated_problem(X, LOSSES[loss](), c, gauge, intercept=intercept, weighted=weighted)
    problem = problem.with_beta(fraction * problem.beta_max or 0.1)
    with own_checks_only():
        certificate = solve_auto(problem, Limits(1e-6)).certificate
    assert certificate.relative_gap <= 1e-6 or certificate.gap <= 1e-8
    assert certificate.primal == pytest.approx(cvxpy_optimum(problem), rel=3e-6, abs=1e-6)
