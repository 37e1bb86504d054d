"""Batches of second-order cones: algebra, borders, and the scaling of Nesterov and Todd."""

import numpy as np
import pytest
from numpy import ndarray

from bidual.numerics.second_order_cones import Scaling, determinant, longest_step, product, quotient


def interior(seed: int, cones: int = 6, size: int = 4) -> ndarray:
    x = np.random.default_rng(seed).standard_normal((cones, size))
    x[:, 0] = np.linalg.norm(x[:, 1:], axis=1) * 1.2 + 0.1
    return x


def inverse_square(scaling: Scaling) -> ndarray:
    """W^-2 as matrices, column by column."""
    (cones, size), basis = scaling.w.shape, np.eye(scaling.w.shape[1])
    columns = [scaling.back(scaling.back(np.tile(e, (cones, 1)))) for e in basis]
    assert len(columns) == size
    return np.stack(columns, axis=2)


def test_quotient_undoes_product() -> None:
    x, y = interior(0), np.random.default_rng(1).standard_normal((6, 4))
    assert quotient(x, product(x, y)) == pytest.approx(y)


def test_longest_step_ends_on_the_border_of_one_cone() -> None:
    x, move = interior(0), np.random.default_rng(1).standard_normal((6, 4))
    step = longest_step(x, move)
    assert determinant(x + step * move).min() == pytest.approx(0, abs=1e-12)
    assert (determinant(x + 0.999 * step * move) > 0).all()


def test_no_border_ahead() -> None:
    assert longest_step(interior(0), interior(1)) == np.inf


def test_scaling_takes_both_points_to_one() -> None:
    x, z = interior(0), interior(1)
    scaling = Scaling.of(x, z)
    assert scaling.forward(z) == pytest.approx(scaling.back(x))
    assert scaling.back(scaling.forward(x)) == pytest.approx(x)


def test_head_is_eliminated() -> None:
    scaling, q = Scaling.of(interior(0), interior(1)), np.random.default_rng(2).standard_normal((6, 4))
    x = np.linalg.solve(inverse_square(scaling), q[:, :, None])[:, :, 0]
    rest = (scaling.curvature @ x[:, 1:, None])[:, :, 0]
    assert rest == pytest.approx(scaling.without_head(q))
    assert scaling.curve(x[:, 1:]) == pytest.approx(rest)
    assert scaling.head(q, x[:, 1:]) == pytest.approx(x[:, 0])
