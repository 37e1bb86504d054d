"""The questions of branches majorise what they stand for, and their slopes are those of finite differences."""

import numpy as np
import pytest

from bidual.polar.subnetworks.branches import Branch

ROWS, STATES = (1, 4), (1, -1)


def drawn(seed: int, side: int = 1) -> tuple[Branch, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0, 1, 6)
    weights[list(ROWS)] *= 3
    return Branch(side, ROWS, STATES), rng.standard_normal(6), weights


@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize("seed", range(20))
def test_questions_majorise_and_are_convex(side: int, seed: int) -> None:
    branch, v, weights = drawn(seed, side)
    e, c = branch.questions(v, weights)
    assert (e + c >= 0).all()
    h = 10 * np.random.default_rng(seed + 100).standard_normal((500, 6))
    h[:, 1], h[:, 4] = np.abs(h[:, 1]), -np.abs(h[:, 4])
    above = e * np.maximum(h, 0) + c * np.maximum(-h, 0)
    assert (above >= side * v * np.maximum(h, 0)).all()


@pytest.mark.parametrize("seed", range(5))
def test_open_rows_have_the_questions_of_the_page(seed: int) -> None:
    """v_+ - theta v_- and theta v_-."""
    _, v, _ = drawn(seed)
    theta = np.random.default_rng(seed).uniform(0, 1, 6)
    e, c = Branch(-1).questions(v, theta)
    up, down = np.maximum(-v, 0), np.maximum(v, 0)
    assert np.allclose(e, up - theta * down, rtol=1e-15, atol=0)
    assert np.allclose(c, theta * down, rtol=1e-15, atol=0)


@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize("seed", range(5))
def test_slopes_are_those_of_differences(side: int, seed: int) -> None:
    branch, v, weights = drawn(seed, side)
    rng = np.random.default_rng(seed + 1)
    of_e, of_c, move_v, move_w = rng.standard_normal((4, 6))

    def value(step: float) -> float:
        e, c = branch.questions(v + step * move_v, weights + step * move_w)
        return float(of_e @ e + of_c @ c)

    on_v, on_weights = branch.pull(v, weights, of_e, of_c)
    assert (value(1e-6) - value(-1e-6)) / 2e-6 == pytest.approx(on_v @ move_v + on_weights @ move_w, rel=1e-6)


@pytest.mark.parametrize("row", [0, 2, 3, 5])
def test_halves_ask_for_no_more(row: int) -> None:
    branch, v, weights = drawn(3)
    before = branch.questions(v, weights)
    for half in branch.halved(row):
        new = weights.copy()
        new[row] = branch.inherited(v, weights, row, half.states[-1])
        after = half.questions(v, new)
        assert all((a <= b + 1e-15).all() for a, b in zip(after, before, strict=True))
        assert half.fixed == (*branch.fixed, (row, half.states[-1]))


def test_weights_that_make_no_questions() -> None:
    branch, _, weights = drawn(0)
    assert branch.allows(weights)
    for row, value in ((0, 1.1), (0, -0.1), (1, -0.1), (2, np.nan), (4, np.inf)):
        wrong = weights.copy()
        wrong[row] = value
        assert not branch.allows(wrong)
