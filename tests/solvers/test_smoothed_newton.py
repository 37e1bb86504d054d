"""Slope and Hessian of the smoothed problem against differences; a wrong Hessian would only be slow."""

import pytest
import torch

from bidual.losses import LOSSES
from bidual.problems.problem import Problem
from bidual.solvers.smoothed_newton import SmoothedNewton, _evaluated, _hessian, _slope, _State
from oracles.problems import SHAPES, gated_problem

SMOOTH = [name for name in LOSSES if LOSSES[name]().smooth]


def moved(problem: Problem, state: _State, step: torch.Tensor) -> _State:
    """The state with other weights and intercepts."""
    Z = state.Z + step[: state.Z.numel()].reshape(state.Z.shape)
    b = state.b + step[state.Z.numel() :] if len(step) > state.Z.numel() else state.b
    other = _State(state.A, Z, b, state.width, 0.0, state.V)
    other.value, other.V = _evaluated(problem, other, Z, b)
    return other


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", SMOOTH)
def test_derivatives_are_those_of_differences(loss: str, intercept: bool) -> None:
    problem = gated_problem(SHAPES["tall"], LOSSES[loss](), 2, "frobenius", intercept=intercept, weighted=True)
    start = torch.randn(problem.operator.block_shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    state = SmoothedNewton().init(problem, start, None)
    state.width = 0.3
    state = moved(problem, state, torch.zeros(start.numel() + 2 * intercept, dtype=torch.float64))
    slope, H = _slope(problem, state), _hessian(problem, state)
    shift = float(H.diagonal().mean()) if loss == "softmax" and intercept else 0.0
    for k, e in enumerate(1e-6 * torch.eye(len(slope), dtype=torch.float64)):
        up, down = moved(problem, state, e), moved(problem, state, -e)
        assert float(slope[k]) == pytest.approx((up.value - down.value) / 2e-6, rel=1e-5, abs=1e-5)
        bend = (_slope(problem, up) - _slope(problem, down)) / 2e-6
        if not shift or k < start.numel():  # what keeps intercepts of softmax unique is added to theirs
            torch.testing.assert_close(H[:, k], bend, rtol=1e-4, atol=1e-5)
