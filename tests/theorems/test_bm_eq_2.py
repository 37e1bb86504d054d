"""BM eq. (2): a linear two-layer network under weight decay is nuclear-norm regularised regression."""

import pytest
import torch

from bidual.architectures import LinearMLP
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.problems.problem import Problem
from bidual.problems.solution import Limits
from bidual.solvers.plan import solve_auto


@pytest.mark.parametrize("seed", range(3))
def test_with_orthogonal_samples_the_optimum_is_a_soft_thresholded_svd(seed):
    generator = torch.Generator().manual_seed(seed)
    X = torch.linalg.qr(torch.randn(8, 8, generator=generator, dtype=torch.float64)).Q
    Y = torch.randn(8, 3, generator=generator, dtype=torch.float64)
    problem = Problem(LinearMLP().lift(X, 3), Datafit(Squared(), Y), LinearMLP().gauge(), 1.0)
    left, sigma, right = torch.linalg.svd(X.T @ Y, full_matrices=False)
    closed_form = left @ torch.diag((sigma - 1.0).clamp(min=0)) @ right
    solution = solve_auto(problem, Limits(1e-10))
    assert torch.allclose(solution.Z[0], closed_form, atol=1e-4)
    assert solution.certificate.primal == pytest.approx(problem.primal(closed_form[None]), rel=1e-9)
    assert problem.beta_max == pytest.approx(float(sigma[0]))
