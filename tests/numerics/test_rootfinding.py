import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bidual.numerics.rootfinding import increasing_root, wright_omega

QUICK = settings(max_examples=40, deadline=None)
NUMBERS = st.floats(-1e6, 1e6, allow_nan=False)


def tensor(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


@QUICK
@given(st.lists(NUMBERS, min_size=1, max_size=5), NUMBERS)
def test_cube_roots_with_slopes(roots: list[float], start: float) -> None:
    target, wide = tensor(*roots), torch.full((len(roots),), 2e6, dtype=torch.float64)
    x = increasing_root(lambda x: (x**3 - target**3, 3 * x**2), -wide, wide, torch.full_like(wide, start))
    torch.testing.assert_close(x, target, rtol=1e-12, atol=1e-4)


@QUICK
@given(NUMBERS)
def test_jumps_without_slopes_are_bisected(root: float) -> None:
    x = increasing_root(lambda x: (torch.sign(x - root), 0 * x), tensor(-2e6), tensor(2e6), tensor(0.0))
    assert float(x) == pytest.approx(root, rel=1e-14, abs=1e-30)


@QUICK
@given(st.floats(-50, 50), st.floats(-100, 100))
def test_misleading_slopes_do_no_harm(root: float, start: float) -> None:
    """arctan overshoots under plain Newton, and here every slope is also ten times too small."""
    x = increasing_root(
        lambda x: (torch.atan(x - root), 0.1 / (1 + (x - root) ** 2)), *map(tensor, (-200.0, 200.0, start))
    )
    assert float(x) == pytest.approx(root, abs=1e-12)


def test_the_answer_stays_in_the_bracket_and_a_flat_stretch_is_a_root() -> None:
    x = increasing_root(
        lambda x: ((x - 3).clamp(min=0) + (x - 1).clamp(max=0), 0 * x), tensor(-9.0), tensor(9.0), tensor(99.0)
    )
    assert 1 <= float(x) <= 3


@QUICK
@given(st.floats(-600, 1e8))
def test_wright_omega_inverts_w_plus_log_w(z: float) -> None:
    w = wright_omega(tensor(z))
    assert float(w) > 0
    assert float(w + w.log()) == pytest.approx(z, rel=1e-14, abs=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_wright_omega_is_finite_and_rising_everywhere(dtype: torch.dtype) -> None:
    z = torch.cat([-torch.logspace(6, -3, 200), torch.logspace(-3, 6, 200)]).to(dtype)
    w = wright_omega(z)
    assert bool(torch.isfinite(w).all())
    assert bool((w.diff() >= 0).all())
    assert float(wright_omega(z.new_tensor([1 + math.e]))) == pytest.approx(math.e, rel=1e-6)
