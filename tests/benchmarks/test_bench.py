"""Published problems: the spiral of BM section 4.1, and the gated problems other libraries are measured on."""

import pytest
import torch

from bidual.architectures import GatedMLP
from bidual.io.datasets import make_spiral
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.patterns import sample_gates
from bidual.problems.problem import Problem
from bidual.problems.solution import Limits
from bidual.solvers.plan import solve_auto
from gated_problems import KNOWN_OPTIMA, SUITE, run_case
from oracles.cvxpy_oracle import cvxpy_optimum


@pytest.mark.parametrize("beta", [1e-4, 1e-3, 1e-2, 1e-1])
def test_spiral_of_bm_4_1(beta):
    X, y = (torch.as_tensor(array) for array in make_spiral(150))
    family = GatedMLP(sample_gates(X, 100, torch.Generator().manual_seed(0)))
    problem = Problem(family.lift(X, 3), Datafit(Squared(), torch.eye(3, dtype=torch.float64)[y]), family.gauge(), beta)
    certificate = solve_auto(problem, Limits(1e-6)).certificate
    assert certificate.relative_gap <= 1e-6
    assert certificate.primal == pytest.approx(cvxpy_optimum(problem), rel=1e-6)


@pytest.mark.parametrize("case", [pytest.param(c, marks=pytest.mark.slow) if c.n > 500 else c for c in SUITE], ids=str)
def test_gated_problems_of_other_libraries(case):
    outcome = run_case(case, tol=1e-7)
    assert outcome.gap <= 1e-5
    if case in KNOWN_OPTIMA:
        assert outcome.objective == pytest.approx(KNOWN_OPTIMA[case], rel=1e-7)
