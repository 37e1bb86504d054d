"""The semidefinite bound: what it starts from, when it stops, what it looks at and what it passes on."""

from fractions import Fraction

import numpy as np
import pytest
from numpy import ndarray

from bidual.papers.methods.semidefinite import RegionRelaxation, elementary
from bidual.polar.relaxations.sign_regions import SignRegion
from helpers.draws import normal


def data(n: int = 4, r: int = 2, c: int = 2, seed: int = 0) -> tuple[ndarray, ndarray]:
    x = normal(n, r, seed=seed).numpy()
    return x / np.linalg.norm(x, 2), normal(n, c, seed=seed + 1).numpy()


def test_the_elementary_bound_leaves_out_negative_rows_and_is_rounded_up() -> None:
    x, V = np.array([[3.0, 4.0], [1.0, 1.0], [0.0, 12.0]]), np.array([[1.0], [7.0], [1.0]])
    region = SignRegion(x, np.array([0, -1, 1]))
    square = Fraction(elementary(region, V)) ** 2
    assert 338 <= square <= 338 * (1 + Fraction(1, 10**13))
    assert elementary(SignRegion(x, np.array([-1, -1, -1])), V) == 0


@pytest.mark.parametrize("scale", [1e-200, 0.1, 1e200])
def test_the_elementary_bound_of_many_rows_holds_in_real_arithmetic(scale: float) -> None:
    rng = np.random.default_rng(0)
    x, V = scale * rng.standard_normal((3000, 4)), rng.standard_normal((3000, 1))
    square = sum(Fraction(a) ** 2 for a in x.ravel()) * sum(Fraction(a) ** 2 for a in V.ravel())
    found = Fraction(elementary(SignRegion.whole(x), V)) ** 2
    assert square <= found <= square * (1 + Fraction(1, 10**11))


@pytest.mark.parametrize(
    ("enough", "max_steps", "looks"), [(np.inf, 500, 0), (0.0, 100, 2), (0.0, 101, 3), (0.0, 0, 0), (0.0, 50, 1)]
)
def test_a_run_stops_when_it_is_good_enough_or_out_of_steps(enough: float, max_steps: int, looks: int) -> None:
    found = RegionRelaxation(SignRegion.whole(data()[0]), data()[1])
    assert found.run(enough, -1.0, max_steps) == found.bound
    assert found.splitting.steps == 50 * looks


def test_a_run_improves_the_bound_which_holds() -> None:
    x, V = data(6, 2, 1, 3)
    found = RegionRelaxation(SignRegion.whole(x), V)
    first = found.bound
    last = found.run(0.0, 1e-5, 600)
    t = np.linspace(0, 2 * np.pi, 5000)
    f = np.linalg.norm(np.maximum(np.stack([np.cos(t), np.sin(t)], 1) @ x.T, 0) @ V, axis=1).max()
    assert f <= last < 0.9 * first
    assert last <= 1.5 * f
    assert found.region.bound(V, found.N) == last
