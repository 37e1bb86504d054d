"""Many small problems minimised together, against closed forms, scipy, and each of them alone."""

from collections.abc import Callable

import numpy as np
import pytest
import scipy.optimize
import torch
from torch import Tensor

from bidual.numerics.lbfgs_rows import minimise_rows

Slope = Callable[[Tensor], tuple[Tensor, Tensor]]


def quadratics(matrices: Tensor, targets: Tensor) -> Slope:
    """1/2 x^T M_k x - t_k^T x for every row k."""

    def slope(x: Tensor) -> tuple[Tensor, Tensor]:
        forms = torch.einsum("kij,kj->ki", matrices, x)
        return 0.5 * (forms * x).sum(1) - (targets * x).sum(1), forms - targets

    return slope


def drawn_quadratics(seed: int, k: int, p: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    roots = torch.randn(k, p, p, generator=generator, dtype=torch.float64)
    scales = 10.0 ** torch.arange(k, dtype=torch.float64)[:, None, None]  # rows of very different sizes
    targets = torch.randn(k, p, generator=generator, dtype=torch.float64)
    return scales * (roots @ roots.mT + torch.eye(p, dtype=torch.float64)), targets


def rosenbrock(x: Tensor) -> tuple[Tensor, Tensor]:
    points = x.numpy()
    values = np.array([scipy.optimize.rosen(row) for row in points])
    return torch.from_numpy(values), torch.from_numpy(np.array([scipy.optimize.rosen_der(row) for row in points]))


def test_quadratics_of_all_scales_end_at_their_minima() -> None:
    M, t = drawn_quadratics(0, k=5, p=8)
    found = minimise_rows(quadratics(M, t), torch.zeros_like(t), 300, tol=0.0)
    torch.testing.assert_close(found, torch.linalg.solve(M, t), rtol=1e-5, atol=1e-10)


def test_rosenbrock_ends_where_scipy_does() -> None:
    start = torch.tensor([[-1.2, 1.0, 0.5], [0.0, 0.0, 2.0]], dtype=torch.float64)
    found = minimise_rows(rosenbrock, start, 400, tol=0.0)
    theirs = [scipy.optimize.minimize(scipy.optimize.rosen, x, jac=scipy.optimize.rosen_der).x for x in start.numpy()]
    np.testing.assert_allclose(found.numpy(), theirs, atol=1e-4)


def test_a_row_moves_as_it_would_alone() -> None:
    M, t = drawn_quadratics(1, k=4, p=6)
    together = minimise_rows(quadratics(M, t), torch.ones_like(t), 15)
    for k in range(4):
        alone = minimise_rows(quadratics(M[k : k + 1], t[k : k + 1]), torch.ones_like(t[:1]), 15)
        torch.testing.assert_close(together[k], alone[0], rtol=1e-9, atol=1e-12)


def test_steps_stay_where_the_function_is_finite() -> None:
    def barrier(x: Tensor) -> tuple[Tensor, Tensor]:  # x - log x, infinite for x <= 0
        inside = (x > 0).all(1)
        values = torch.where(inside, (x - x.clamp(min=1e-300).log()).sum(1), torch.inf)
        return values, torch.where(inside[:, None], 1 - 1 / x, 0.0)

    found = minimise_rows(barrier, torch.tensor([[1e-3], [50.0]], dtype=torch.float64), 100, tol=0.0)
    torch.testing.assert_close(found, torch.ones(2, 1, dtype=torch.float64), rtol=1e-5, atol=0.0)


@pytest.mark.parametrize("steps", [1, 3])
def test_no_row_ends_higher_than_it_began(steps: int) -> None:
    M, t = drawn_quadratics(2, k=6, p=5)
    slope, start = quadratics(M, t), torch.full_like(t, 3.0)
    assert bool((slope(minimise_rows(slope, start, steps))[0] < slope(start)[0]).all())


def test_a_row_at_its_minimum_rests_while_others_move() -> None:
    M, t = drawn_quadratics(3, k=2, p=4)
    start = torch.stack([torch.linalg.solve(M[0], t[0]), torch.zeros(4, dtype=torch.float64)])
    found = minimise_rows(quadratics(M, t), start, 100)
    torch.testing.assert_close(found[0], start[0], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found[1], torch.linalg.solve(M[1], t[1]), rtol=1e-2, atol=1e-6)


def test_it_ends_when_told() -> None:
    M, t = drawn_quadratics(4, k=2, p=4)
    calls: list[int] = []

    def counted(x: Tensor) -> tuple[Tensor, Tensor]:
        calls.append(1)
        return quadratics(M, t)(x)

    minimise_rows(counted, torch.ones_like(t), 1000, tol=0.0, go_on=lambda: len(calls) < 5)
    assert len(calls) < 30
