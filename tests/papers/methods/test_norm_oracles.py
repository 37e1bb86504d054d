"""NormFaces is exact for every pair of norms, and NormSearch brackets it."""

import math
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
import torch
from torch import Tensor

from bidual.gauges import Bracket
from bidual.numerics.norms import L1, L2, LINF, NORMS, Norm
from bidual.papers.methods.norm_oracles import NormFaces, NormSearch, _queries, check_corners, ranked, steepness_in
from bidual.polar import Faces
from bidual.polar.relaxations.diagonal import DiagonalBound
from helpers.draws import normal
from helpers.polar_cases import CASES
from oracles.norm_oracle import planar_directions

PAIRS = list(product(NORMS.values(), NORMS.values()))
EVERY_PAIR = pytest.mark.parametrize(("hidden", "output"), PAIRS, ids=lambda norm: norm.name)
PLANAR = {
    "generic": (normal(7, 2), normal(7, 3, seed=1)),
    "one output": (normal(8, 2, seed=2), normal(8, 1, seed=3)),
    "on the axes": (
        torch.eye(2, dtype=torch.float64).repeat(3, 1) * normal(6, 1, seed=1).round(),
        normal(6, 2, seed=2),
    ),
    "ties": (normal(3, 2, seed=4).repeat(3, 1) * normal(9, 1, seed=5).sign(), normal(9, 2, seed=6)),
    "rank one": (normal(6, 1, seed=7) @ normal(1, 2, seed=8), normal(6, 2, seed=9)),
    "large and small": (1e6 * normal(6, 2) * 10 ** (3 * normal(6, 1, seed=3)), 1e-9 * normal(6, 2, seed=1)),
}


def values(X: Tensor, V: Tensor, U: np.ndarray, hidden: Norm, output: Norm) -> np.ndarray:
    """|V^T (X u)_+|_R* / |u|_C, without the package."""
    orders = {"l1": 1, "l2": 2, "linf": np.inf}
    dual = {"l1": np.inf, "l2": 2, "linf": 1}
    steep = np.maximum(X.numpy() @ U.T, 0).T @ V.numpy()
    return np.linalg.norm(steep, dual[output.name], axis=1) / np.linalg.norm(U, orders[hidden.name], axis=1)


@EVERY_PAIR
@pytest.mark.parametrize("case", PLANAR)
def test_agrees_with_going_all_around_the_plane(hidden: Norm, output: Norm, case: str) -> None:
    X, V = PLANAR[case]
    found = NormFaces(X, hidden, output).steepest(V)
    best = values(X, V, planar_directions(X.numpy(), 60_000), hidden, output).max()
    assert best * (1 - 1e-12) <= found.bracket.upper <= best * (1 + 1e-6)
    assert found.bracket.upper - found.bracket.lower <= 1e-8 * best
    np.testing.assert_allclose(hidden.value(found.neurons).numpy(), 1.0)
    listed = values(X, V, found.neurons.numpy(), hidden, output)
    np.testing.assert_allclose(listed, found.values.numpy(), rtol=1e-9, atol=1e-12 * best)


def spatial_rays(X: np.ndarray, hidden: Norm) -> np.ndarray:
    """Where any two rows of X, or creases of the norm, vanish in R^3."""
    eye = np.eye(3)
    diagonal = np.array([eye[j] + s * eye[k] for j, k in combinations(range(3), 2) for s in (1, -1)])
    rows = np.concatenate([X, eye if hidden is L1 else diagonal])
    rays = np.array([np.cross(a, b) for a, b in combinations(rows, 2)])
    rays = rays[np.linalg.norm(rays, axis=1) > 1e-9 * np.linalg.norm(X, axis=1).max() ** 2]
    return np.concatenate([rays, -rays])


@pytest.mark.parametrize("output", NORMS.values(), ids=lambda norm: norm.name)
@pytest.mark.parametrize("hidden", [L1, LINF], ids=lambda norm: norm.name)
@pytest.mark.parametrize("case", ["rank 3", "one output", "one sample", "all negative features"])
def test_agrees_with_all_rays_in_space(hidden: Norm, output: Norm, case: str) -> None:
    X, V = CASES[case]
    upper = NormFaces(X, hidden, output).steepest(V).bracket.upper
    assert upper == pytest.approx(values(X, V, spatial_rays(X.numpy(), hidden), hidden, output).max(), rel=1e-9)


@EVERY_PAIR
@pytest.mark.parametrize("case", sorted(set(CASES) - {"rank deficient", "wide", "large and small"}))
def test_nothing_drawn_is_steeper(hidden: Norm, output: Norm, case: str) -> None:
    X, V = CASES[case]
    U = np.concatenate([normal(20_000, X.shape[1], seed=11).numpy(), X.numpy()[X.numpy().any(1)]])
    found = NormFaces(X, hidden, output).steepest(V)
    assert values(X, V, U, hidden, output).max() <= found.bracket.upper
    assert found.bracket.upper <= found.bracket.lower * (1 + 1e-8)


@EVERY_PAIR
def test_search_brackets_the_exact_value(hidden: Norm, output: Norm) -> None:
    X, V = normal(12, 3), normal(12, 2, seed=1)
    exact = NormFaces(X, hidden, output).steepest(V).bracket
    for oracle, sure in ((Faces(X), True), (DiagonalBound(X, steps=10), True), (None, False)):
        found = NormSearch(X, hidden, output, oracle).steepest(V)
        assert 0.97 * exact.lower <= found.bracket.lower <= exact.upper
        assert found.bracket.upper >= exact.lower
        assert np.isfinite(found.bracket.upper) == sure


def test_search_climbs_from_seeds() -> None:
    X, V = normal(30, 6), normal(30, 2, seed=1)
    search = NormSearch(X, L1, LINF, starts=16)
    best = search.steepest(V)
    again = search.steepest(V, seeds=best.neurons[:1])
    assert again.bracket.lower >= best.bracket.lower
    assert len(search.steepest(V, above=0.5 * best.bracket.lower).neurons) > 1


@EVERY_PAIR
def test_only_what_exceeds_the_threshold_is_listed(hidden: Norm, output: Norm) -> None:
    X, V = PLANAR["generic"]
    oracle = NormFaces(X, hidden, output)
    top = oracle.steepest(V).bracket.lower
    listed = oracle.steepest(V, above=0.8 * top, seeds=normal(3, 2, seed=5))
    assert len(listed.values) >= 1
    assert bool((listed.values > 0.8 * top).all())
    assert float(listed.values[0]) == pytest.approx(top, rel=1e-12)


def test_euclidean_norms_are_faces() -> None:
    X, V = CASES["rank 3"]
    assert NormFaces(X, L2, L2).steepest(V).bracket.upper == pytest.approx(
        Faces(X).steepest(V).bracket.upper, rel=1e-12
    )


def test_more_signs_than_can_be_tried_are_refused() -> None:
    with pytest.raises(ValueError, match=r"the linf norm on 13 outputs calls the exact oracle 4,096 times"):
        NormFaces(normal(5, 2), L2, LINF).steepest(normal(5, 13))


def test_more_corners_than_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="corners under the linf norm, whose enumeration would need"):
        check_corners(1000, 10, LINF)


def test_a_euclidean_bound_must_be_euclidean() -> None:
    X = normal(5, 2)
    with pytest.raises(ValueError, match="euclidean must be an oracle for l2 norms"):
        NormSearch(X, L1, L2, NormFaces(X, L1, L2))


UNIT = 2.0**-53


@EVERY_PAIR
def test_steepness_is_that_of_numpy_in_every_pair_of_norms(hidden: Norm, output: Norm) -> None:
    oracle, V, U = NormFaces(normal(6, 2), hidden, output), normal(6, 3, seed=1), normal(20, 2, seed=2)
    found = steepness_in(oracle, V, torch.cat([U, 0 * U[:1]]))
    np.testing.assert_allclose(found[:-1].numpy(), values(oracle.X, V, U.numpy(), hidden, output), rtol=1e-13)
    assert float(found[-1]) == 0.0


def test_no_neurons_have_no_rank_and_prove_nothing() -> None:
    found = ranked(NormFaces(normal(6, 2), L1, L2), normal(6, 3), normal(0, 2), 0.0)
    assert found.bracket == Bracket(0.0, math.inf)
    assert (found.neurons.shape, found.values.shape) == ((0, 2), (0,))


def test_questions_are_the_matrix_its_columns_or_its_signed_sums() -> None:
    V = normal(5, 3)
    assert [query is V for query in _queries(V, L2)] == [True]
    columns = _queries(V, L1)
    assert [tuple(column.shape) for column in columns] == [(5, 1)] * 3
    assert torch.equal(torch.cat(columns, 1), V)
    sums = _queries(V, LINF)
    assert [tuple(one.shape) for one in sums] == [(5, 1)] * 4
    np.testing.assert_allclose(torch.cat(sums, 1).abs().amax(1), V.abs().sum(1), rtol=1e-14)
    np.testing.assert_allclose(sum(sums), 4 * V[:, :1], rtol=1e-13)  # the first sign is always plus


@pytest.mark.parametrize("output", NORMS.values(), ids=lambda norm: norm.name)
@pytest.mark.parametrize("hidden", NORMS.values(), ids=lambda norm: norm.name)
def test_the_size_is_what_a_neuron_of_norm_one_can_reach(hidden: Norm, output: Norm) -> None:
    """Attained where all rows of X agree with the longest neuron of norm one, and V's rows with each other."""
    longest = torch.ones(1, 4).double() if hidden is LINF else torch.eye(1, 4).double()
    oracle, V = (
        NormFaces(longest.repeat(3, 1), hidden, output),
        normal(1, 2, seed=3) * torch.tensor([[1.0], [2.0], [0.5]]),
    )
    assert oracle._size(V) == pytest.approx(float(values(oracle.X, V, longest.numpy(), hidden, output)[0]), rel=1e-14)


@pytest.mark.parametrize("hidden", [L1, LINF], ids=lambda norm: norm.name)
@pytest.mark.parametrize("numbers", [1, 7, 30, 10**6])
def test_corners_give_one_answer_however_they_are_split(hidden: Norm, numbers: int) -> None:
    oracle, V = NormFaces(normal(6, 3), hidden, L2), normal(6, 2, seed=1)
    whole, parts = oracle._at_corners(V, 0.5), oracle._at_corners(V, 0.5, numbers)
    assert torch.equal(whole[0], parts[0])
    assert whole[1] == pytest.approx(parts[1], rel=1e-14)


def exact_steepness(X: Tensor, V: Tensor, u: np.ndarray, hidden: Norm, output: Norm) -> Fraction:
    """f(u) of a polyhedral pair of norms in fractions."""
    steep = [Fraction(0)] * V.shape[1]
    for x, v in zip(X.tolist(), V.tolist(), strict=True):
        h = max(sum(Fraction(a) * Fraction(b) for a, b in zip(x, u, strict=True)), Fraction(0))
        steep = [s + h * Fraction(w) for s, w in zip(steep, v, strict=True)]
    size = sum(map(abs, map(Fraction, u))) if hidden is L1 else max(map(abs, map(Fraction, u)))
    return (max if output is L1 else sum)(list(map(abs, steep))) / size


@pytest.mark.parametrize("output", [L1, LINF], ids=lambda norm: norm.name)
@pytest.mark.parametrize("hidden", [L1, LINF], ids=lambda norm: norm.name)
@pytest.mark.parametrize("seed", range(6))
def test_the_bound_holds_in_fractions_and_is_tight(hidden: Norm, output: Norm, seed: int) -> None:
    """Duals that nearly cancel, rows that nearly agree, whole numbers, and rows of very different size."""
    X, V = normal(5, 2, seed=seed).repeat(2, 1), normal(5, 2, seed=seed + 9).repeat(2, 1)
    X[5:] = X[5:] * (1 + 1e-13 * normal(5, 2, seed=seed)) if seed % 2 else X[5:].round()
    V[5:] *= -(1 + 1e-9 * normal(5, 1, seed=seed)) if seed < 3 else 10 ** (6 * normal(5, 1, seed=seed))
    oracle = NormFaces(X, hidden, output)
    _, upper = oracle._at_corners(V, 0.0)
    rows = [*oracle.X.tolist(), *hidden.creases(2).tolist()]
    exact = max(
        exact_steepness(oracle.X, V, np.array([-s * b, s * a]), hidden, output)
        for a, b in rows
        if a or b
        for s in (1, -1)
    )
    assert Fraction(upper) >= exact
    assert upper - float(exact) <= 60 * UNIT * oracle._size(V)


@EVERY_PAIR
def test_corners_are_the_steepest_for_the_linear_function_that_supports_the_value(hidden: Norm, output: Norm) -> None:
    """<g, u> is the value at u itself, and its largest over the unit ball, |g|*, is at the corner."""
    search, V, U = NormSearch(normal(7, 3), hidden, output), normal(7, 2, seed=1), hidden.unit(normal(10, 3, seed=2))
    corners = search._corners(U, V)
    np.testing.assert_allclose(hidden.value(corners).numpy(), 1.0, rtol=1e-13)
    for u, corner in zip(U, corners, strict=True):
        hidden_units = search.X @ u
        steep = hidden_units.clamp(min=0) @ V
        support = output.aligned(steep)
        g = search.X.T @ ((V @ support) * (hidden_units > 0))
        assert float(g @ u) == pytest.approx(float(steepness_in(search, V, u[None])), rel=1e-12)
        assert float(g @ corner) == pytest.approx(float(hidden.dual.value(g)), rel=1e-12)


@EVERY_PAIR
def test_a_round_never_goes_down_and_says_what_was_reached(hidden: Norm, output: Norm) -> None:
    search, V, U = NormSearch(normal(12, 4), hidden, output), normal(12, 2, seed=1), hidden.unit(normal(30, 4, seed=2))
    top = steepness_in(search, V, U)
    moved, reached = search._climbed(U, top, V)
    assert bool((reached >= top).all())
    assert int((reached > top * (1 + 1e-6)).sum()) >= 15
    torch.testing.assert_close(steepness_in(search, V, moved), reached, rtol=1e-13, atol=0)
    np.testing.assert_allclose(hidden.value(moved).numpy(), 1.0, rtol=1e-13)
    stay = reached == top
    assert torch.equal(moved[stay], U[stay])


def test_the_longest_step_goes_to_the_corner_itself() -> None:
    """One sample: the best neuron of l1 norm one is its largest entry's, whatever the start."""
    X = torch.tensor([[1.0, 3.0, -2.0]]).double()
    search, V = NormSearch(X, L1, L2), torch.ones(1, 1).double()
    U = L1.unit(torch.tensor([[1.0, 0.1, 0.0], [0.0, 0.5, -0.5]]).double())
    moved, reached = search._climbed(U, steepness_in(search, V, U), V)
    torch.testing.assert_close(moved, torch.tensor([[0.0, 1.0, 0.0]] * 2).double())
    torch.testing.assert_close(reached, search.X[0, 1].expand(2))


@EVERY_PAIR
def test_the_bracket_holds_the_exact_value_and_the_list_attains_its_lower_end(hidden: Norm, output: Norm) -> None:
    X, V = normal(8, 2), normal(8, 2, seed=1)
    exact, search = NormFaces(X, hidden, output).steepest(V).bracket, NormSearch(X, hidden, output, Faces(X), starts=32)
    found = search.steepest(V)
    assert 0.95 * exact.lower <= found.bracket.lower <= exact.upper <= found.bracket.upper * (1 + 1e-9)
    assert float(found.values[0]) == pytest.approx(found.bracket.lower, rel=1e-14)
    np.testing.assert_allclose(hidden.value(found.neurons).numpy(), 1.0, rtol=1e-13)


class Rising(NormSearch):
    """One neuron rises a little in each of three rounds, and then none does."""

    made = 0

    def _climbed(self, U: Tensor, top: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
        self.made += 1
        return U, top * (1 + 1e-6 * (self.made <= 3) * (torch.arange(len(top)) == 1))


@pytest.mark.parametrize(("rounds", "made"), [(0, 0), (2, 2), (40, 4)])
def test_search_takes_its_rounds_while_something_rises(rounds: int, made: int) -> None:
    search = Rising(normal(6, 3), L1, L2, rounds=rounds, starts=8)
    search.steepest(normal(6, 1, seed=1))
    assert search.made == made
