"""The splitting of moment matrices: faces, signs, multipliers, balance, splits and what the moments point at."""

import numpy as np
import pytest
from numpy import ndarray

from bidual.polar.relaxations.moments import MomentSplitting, _Face, row_to_cut
from bidual.polar.relaxations.sign_regions import SignRegion

N, R, C = 3, 2, 2
M = 2 * N
Y = np.random.default_rng(7).standard_normal((N, C))


def rows(seed: int = 0) -> ndarray:
    return np.random.default_rng(seed).standard_normal((N, R))


def squared(P: ndarray, step: float) -> ndarray:
    """The proximal map of |P - Y|^2 / 2, whose gradient is P - Y."""
    return (P + step * Y) / (1 + step)


def splitting(count: int = 2, beta: float = 0.5, penalty: float = 2.0) -> MomentSplitting:
    whole = SignRegion.whole(rows())
    regions = [whole] if count == 1 else [*whole.split(0)] if count == 2 else [*whole.split(0), whole]
    return MomentSplitting(regions, C, beta, squared, penalty)


def symmetric(count: int, seed: int = 0) -> ndarray:
    A = np.random.default_rng(seed).standard_normal((count, M + C, M + C))
    return A + A.swapaxes(1, 2)


@pytest.mark.parametrize("signs", [[0, 0, 0], [1, -1, 0], [1, 1, -1]])
def test_a_face_prices_rank_one_moments_by_half_the_squares(signs: list[int]) -> None:
    x, rng = rows(), np.random.default_rng(1)
    region = SignRegion(x, np.array(signs))
    face = _Face.of(region, 0.6, C)
    assert face.region is region
    assert np.allclose(face.frame.T @ face.frame, np.eye(face.frame.shape[1]), atol=1e-14)
    z, w = rng.standard_normal(region.H.shape[1]), rng.standard_normal(C)
    lifted = np.concatenate([region.H @ z, w])
    y = face.frame.T @ lifted
    assert np.allclose(face.frame @ y, lifted, atol=1e-13)
    assert y @ face.cost @ y == pytest.approx(0.3 * (z[:R] @ z[:R] + w @ w), rel=1e-11)
    assert np.allclose(face.cost, face.cost.T, atol=1e-14)


@pytest.mark.parametrize("penalty", [0.5, 3.0])
def test_the_nearest_point_of_a_face_satisfies_the_conditions_of_optimality(penalty: float) -> None:
    face, target = _Face.of(SignRegion.whole(rows()), 0.4, C), symmetric(1)[0]
    found, price = face.nearest(target, penalty)
    G = face.frame.T @ found @ face.frame
    assert np.allclose(face.frame @ G @ face.frame.T, found, atol=1e-12)
    assert np.linalg.eigvalsh(G)[0] > -1e-12
    left = face.cost + penalty * (G - face.frame.T @ target @ face.frame)
    assert np.linalg.eigvalsh(left)[0] > -1e-11
    assert np.sum(left * G) == pytest.approx(0, abs=1e-10)
    assert price == pytest.approx(np.sum(face.cost * G), rel=1e-11)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_state_is_split_into_signs_and_predictions(count: int) -> None:
    found, state = splitting(count), symmetric(count)
    kept = state.copy()
    found._enter(state)
    assert np.array_equal(state, kept)
    assert found.state is state
    for k in range(count):
        for i in range(M):
            for j in range(M):
                assert found.moments[k, i, j] == (0 if abs(i - j) == N else max(state[k, i, j], 0))
    assert np.array_equal(found.moments[:, N:M, M:], state[:, N:M, M:])
    assert np.array_equal(found.moments[:, M:, M:], state[:, M:, M:])
    assert np.allclose(found.moments, found.moments.swapaxes(1, 2), atol=1e-14)
    assert np.allclose(found.moments[:, :N, M:].sum(0), found.P, atol=1e-13)
    moved = found.moments[:, :N, M:] - state[:, :N, M:]
    assert np.allclose(moved, moved[:1], atol=1e-13)


@pytest.mark.parametrize("count", [1, 3])
def test_v_is_the_gradient_at_the_predictions(count: int) -> None:
    found = splitting(count, penalty=1.7)
    found._enter(symmetric(count))
    assert np.allclose(found.V, found.P - Y, atol=1e-12)


def test_multipliers_have_the_right_signs_and_scale() -> None:
    found, state = splitting(2, beta=0.5, penalty=3.0), symmetric(2)
    found._enter(state)
    multipliers = found.multipliers()
    assert len(multipliers) == 2
    for k in range(2):
        assert multipliers[k].shape == (M, M)
        for i in range(M):
            for j in range(M):
                want = -state[k, i, j] if abs(i - j) == N else max(-state[k, i, j], 0)
                assert multipliers[k][i, j] == pytest.approx(2 * 0.5 * 3.0 * want, abs=1e-13)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize(("excess", "change"), [(1e-3, -1), (4.0, 0), (1e3, 1)])
def test_the_penalty_follows_the_larger_residual_and_nothing_else_moves(
    scale: float, excess: float, change: int
) -> None:
    """The residual of the moments over their size is ``excess`` times that of the multipliers over theirs."""
    found = splitting(2)
    found._enter(scale * symmetric(2))
    before = (found.moments.copy(), found.P.copy(), found.V.copy(), np.stack(found.multipliers()))
    size, force = np.linalg.norm(found.moments), np.linalg.norm(found.state - found.moments)
    found._balance(excess * 0.01 * size, 0.01 * force)
    assert np.sign(found.penalty - 2.0) == change
    found._balance(0.01 * size / excess, 0.01 * np.linalg.norm(found.state - found.moments) / 16)
    assert change == 0 or found.penalty == pytest.approx(2.0, rel=1e-14)
    after = (found.moments, found.P, found.V, np.stack(found.multipliers()))
    for old, new in zip(before, after, strict=True):
        assert np.allclose(old, new, rtol=1e-9, atol=1e-12 * scale)


def test_a_split_keeps_predictions_and_multipliers() -> None:
    whole = splitting(2)
    whole._enter(symmetric(2))
    finer = whole.split([1, None])
    assert [region.signs.tolist() for region in finer.regions] == [[1, 1, 0], [1, -1, 0], [-1, 0, 0]]
    assert (finer.beta, finer.outputs, finer.penalty, finer.prox) == (0.5, C, 2.0, squared)
    gap = whole.state - whole.moments
    assert np.allclose(finer.state[0], whole.moments[0] / 2 + gap[0], atol=1e-14)
    assert np.allclose(finer.state[1], whole.moments[0] / 2 + gap[0], atol=1e-14)
    assert np.allclose(finer.state[2], whole.moments[1] + gap[1], atol=1e-14)
    assert np.allclose(finer.P, whole.P, atol=1e-12)
    assert np.allclose(finer.V, whole.V, atol=1e-12)


@pytest.mark.parametrize("cuts", [[0], [0, 1, 2]])
def test_a_split_needs_a_row_for_every_cell(cuts: list[int]) -> None:
    with pytest.raises(ValueError, match="zip"):
        splitting(2).split(cuts)


def known(u: list[ndarray], prices: list[float]) -> MomentSplitting:
    """Moments of one direction in every region, and their prices."""
    found = splitting(len(u))
    h = [np.concatenate([np.maximum(rows() @ v, 0), np.maximum(-rows() @ v, 0), np.ones(C)]) for v in u]
    found.moments, found.prices = np.stack([np.outer(a, a) for a in h]), np.array(prices)
    return found


def test_factors_are_the_axes_of_the_moments_of_u() -> None:
    u = [np.array([0.6, -0.8]), np.array([1.0, 2.0])]
    for axes, v in zip(known(u, [1.0, 1.0]).factors(), u, strict=True):
        assert axes.shape == (R, R)
        assert np.allclose(axes.T @ axes, np.outer(v, v), atol=1e-12)
        assert np.allclose(axes[0], 0, atol=1e-6)
        assert np.isfinite(axes).all()


def test_directions_are_what_the_moments_point_at_with_both_signs() -> None:
    u = [np.array([0.6, -0.8]), np.array([1.0, 2.0])]
    found = known(u, [1.0, 1.0]).directions()
    assert found.shape == (12, R)
    assert np.array_equal(found[:6], -found[6:])
    for k, v in enumerate(u):  # the tops first, then the axes of each region
        assert abs(found[k] @ v) == pytest.approx(np.linalg.norm(found[k]) * np.linalg.norm(v), rel=1e-12)
        assert np.linalg.norm(found[k]) > 0.1
        assert np.allclose(np.abs(found[3 + 2 * k]), np.abs(v), atol=1e-6)


@pytest.mark.parametrize(
    ("prices", "heavy"), [([1.0, 1e-4], 1), ([0.0, 0.0], 2), ([999.0, 1.0], 2), ([1.0, 1.5e-3], 2)]
)
def test_cells_that_carry_no_weight_are_left_out(prices: list[float], heavy: int) -> None:
    found = known([np.array([0.6, -0.8]), np.array([1.0, 2.0])], prices)
    assert len(found.factors()) == heavy
    cuts = found.rows_to_cut()
    assert len(cuts) == 2
    assert [cut is None for cut in cuts] == [False, heavy == 1]


def spread(a: list[float], b: list[float]) -> ndarray:
    return np.diag([*a, *b, 1.0])


@pytest.mark.parametrize(
    ("signs", "a", "b", "weight", "row"),
    [
        ([0, 0, 0], [4.0, 1.0, 9.0], [1.2, 1.5, 0.5], [1.0, 1.0, 1.0], 0),
        ([0, 0, 0], [4.0, 1.0, 9.0], [1.0, 1.5, 4.0], [1.0, 1.0, 1.0], 2),
        ([0, 0, 0], [4.0, 1.0, 9.0], [1.0, 1.5, 0.5], [1.0, 1.1, 1.0], 1),
        ([0, 0, 0], [4.0, 1.0, 9.0], [4.0, 1.5, 9.0], [1.0, 1.0, 0.7], 2),
        ([1, 0, -1], [4.0, 1.0, 9.0], [4.0, 1.5, 9.0], [1.0, 1.0, 1.0], 1),
        ([0, -1, 1], [0.0, 1.0, 9.0], [0.0, 1.5, 9.0], [0.0, 1.0, 1.0], 0),
        ([0, 0, 0], [-1.0, -1.0, -1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0], 1),
        ([0, 0, 0], [1e-24, 0.0, 0.0], [1e-24, 0.0, 0.0], [1.0, 1.0, 1.0], 1),
    ],
)
def test_the_row_to_cut_is_seen_farthest_on_both_sides(
    signs: list[int], a: list[float], b: list[float], weight: list[float], row: int
) -> None:
    x = np.array([[1.0, 0.0], [0.0, 3.0], [1.0, 1.0]])  # where nothing is seen, the longest row counts
    assert row_to_cut(SignRegion(x, np.array(signs)), spread(a, b), np.array(weight)) == row


def test_no_row_is_cut_where_all_are_known() -> None:
    assert row_to_cut(SignRegion(rows(), np.array([1, -1, 1])), spread([1.0] * 3, [1.0] * 3), np.ones(3)) is None
