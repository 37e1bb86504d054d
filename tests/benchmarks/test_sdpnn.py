"""The relaxations that the product bound is compared with, on a problem whose optimum is known."""

import cvxpy as cp
import pytest
import torch

from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits
from bidual.training.relu.plan import ReluPlan
from relaxation_values import signed
from sdpnn import after, answer, published, reached, scs_answer


def test_relaxations_are_below_the_optimum_and_signs_are_tighter():
    generator = torch.Generator().manual_seed(1)
    X, Y = (torch.randn(6, size, generator=generator, dtype=torch.float64) for size in (3, 1))
    task = ReluProblem(X, Datafit(Squared(), Y, intercept=True), 0.2)
    optimum = ReluPlan(X).train(task, Limits(1e-6)).certificate.primal
    tight, loose = answer(signed(task), cp.CLARABEL, {}), scs_answer(published(task), 60, 1e-5)
    assert loose.value - 1e-3 <= tight.value <= optimum + 1e-5


def test_relaxations_of_one_sample_are_exact():
    """min 1/2 (p - y)^2 + t |p| = t y - t^2 / 2 with t = beta / |x| < y."""
    X, y, beta = torch.tensor([[3.0, 4.0]], dtype=torch.float64), 2.0, 2.5
    task = ReluProblem(X, Datafit(Squared(), torch.tensor([[y]], dtype=torch.float64)), beta)
    t = beta / 5
    for found in (answer(signed(task), cp.CLARABEL, {}), answer(published(task), cp.CLARABEL, {})):
        assert found.value == pytest.approx(t * y - t**2 / 2, rel=1e-3)


@pytest.mark.parametrize(("gap", "said"), [(0.3, "1 s"), (0.2, "2 s"), (0.1, "not reached"), (-0.1, "no bound")])
def test_when_a_proof_is_as_tight(gap, said):
    course = ((1.0, 0.3), (2.0, 0.2))
    assert reached(course, gap) == said
    assert after(course, 1.5) == "30 % @ 1 s"
