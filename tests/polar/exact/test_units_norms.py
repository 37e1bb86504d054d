"""The parts of NormFaces: values, ranks, questions, corners, and allowances for rounding."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from bidual.gauges import Bracket
from bidual.numerics.norms import L1, L2, LINF, NORMS, Norm
from bidual.polar import Faces, NormFaces, SteepestNeurons
from bidual.polar.exact.norms import _queries, ranked, steepness_in
from helpers.draws import normal

UNIT = 2.0**-53
ORDERS = {"l1": 1, "l2": 2, "linf": np.inf}
DUALS = {"l1": np.inf, "l2": 2, "linf": 1}
EVERY_PAIR = pytest.mark.parametrize(
    ("hidden", "output"), list(product(NORMS.values(), NORMS.values())), ids=lambda norm: norm.name
)


def values(X: Tensor, V: Tensor, U: Tensor, hidden: Norm, output: Norm) -> np.ndarray:
    """|V^T (X u)_+|_R* / |u|_C by numpy."""
    steep = np.maximum(X.numpy() @ U.numpy().T, 0).T @ V.numpy()
    return np.linalg.norm(steep, DUALS[output.name], axis=1) / np.linalg.norm(U.numpy(), ORDERS[hidden.name], axis=1)


class Told(Faces):
    """Answers what it was told to, one answer a question."""

    def __init__(self, answers: list[SteepestNeurons]) -> None:
        self.answers, self.asked = answers, list[tuple[Tensor, float]]()

    def steepest(self, V: Tensor, above: float = 0.0, seeds: Tensor | None = None) -> SteepestNeurons:
        self.asked.append((V, above))
        return self.answers[len(self.asked) - 1]


@EVERY_PAIR
def test_steepness_is_that_of_numpy_in_every_pair_of_norms(hidden: Norm, output: Norm) -> None:
    oracle, V, U = NormFaces(normal(6, 2), hidden, output), normal(6, 3, seed=1), normal(20, 2, seed=2)
    found = steepness_in(oracle, V, torch.cat([U, 0 * U[:1]]))
    np.testing.assert_allclose(found[:-1].numpy(), values(oracle.X, V, U, hidden, output), rtol=1e-13)
    assert float(found[-1]) == 0.0


@EVERY_PAIR
def test_ranks_are_from_the_steepest_down_with_units(hidden: Norm, output: Norm) -> None:
    oracle, V, U = NormFaces(normal(6, 2), hidden, output), normal(6, 3, seed=1), normal(50, 2, seed=2)
    expected = np.sort(values(oracle.X, V, U, hidden, output))[::-1]
    found = ranked(oracle, V, U, 0.5 * float(expected[19] + expected[20]))
    np.testing.assert_allclose(found.values.numpy(), expected[:20], rtol=1e-12)
    np.testing.assert_allclose(hidden.value(found.neurons).numpy(), 1.0, rtol=1e-14)
    np.testing.assert_allclose(values(oracle.X, V, found.neurons, hidden, output), expected[:20], rtol=1e-12)
    assert found.bracket == Bracket(float(found.values[0]), math.inf)


def test_the_steepest_is_listed_even_below_the_threshold() -> None:
    oracle, V = NormFaces(normal(6, 2), L1, L2), normal(6, 3, seed=1)
    found = ranked(oracle, V, normal(50, 2, seed=2), 1e9)
    assert len(found.neurons) == len(found.values) == 1
    assert float(found.values[0]) == found.bracket.lower


def test_all_near_the_top_are_listed_but_none_a_billionth_below() -> None:
    oracle = NormFaces(torch.eye(2, dtype=torch.float64), L2, L2)
    near = torch.tensor([[1.0, 1e-5], [1.0, 1e-8], [1.0, 0.0]], dtype=torch.float64)
    found = ranked(oracle, torch.tensor([[1.0], [0.0]]).double(), near, 5.0)
    assert len(found.values) == 2


def test_what_is_exactly_at_the_threshold_is_not_listed() -> None:
    oracle = NormFaces(torch.eye(2, dtype=torch.float64), L2, L2)
    U, V = torch.eye(2, dtype=torch.float64), torch.tensor([[2.0], [1.0]]).double()
    assert ranked(oracle, V, U, 1.0).values.tolist() == [2.0]
    assert ranked(oracle, V, U, 0.5).values.tolist() == [2.0, 1.0]


def test_no_neurons_have_no_rank_and_prove_nothing() -> None:
    found = ranked(NormFaces(normal(6, 2), L1, L2), normal(6, 3), normal(0, 2), 0.0)
    assert found.bracket == Bracket(0.0, math.inf)
    assert (found.neurons.shape, found.values.shape) == ((0, 2), (0,))


def test_at_most_two_thousand_are_listed() -> None:
    oracle = NormFaces(normal(6, 2), L2, L2)
    found = ranked(oracle, normal(6, 1, seed=1).abs(), oracle.X[:1] + 0.1 * normal(2100, 2), 0.0)
    assert len(found.values) == len(found.neurons) == 2000


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_questions_keep_the_precision(dtype: torch.dtype) -> None:
    assert {question.dtype for norm in NORMS.values() for question in _queries(normal(4, 2).to(dtype), norm)} == {dtype}


def test_twelve_outputs_have_all_their_signs_tried_and_thirteen_do_not() -> None:
    assert len(_queries(normal(2, 12), LINF)) == 2048
    text = (
        r"^the linf norm on 13 outputs calls the exact oracle 4,096 times; at most 12 outputs are possible\. "
        r"Use NormSearch, or the norm l1 or l2 on the outputs\.$"
    )
    with pytest.raises(ValueError, match=text):
        _queries(normal(2, 13), LINF)


def test_euclidean_questions_are_asked_with_the_threshold_and_their_answers_joined() -> None:
    oracle, V = NormFaces(normal(6, 2), L2, L1), normal(6, 3, seed=1)
    answers = [
        SteepestNeurons(Bracket(0.0, upper), normal(k, 2, seed=k), torch.ones(k))
        for k, upper in ((1, 2.0), (2, 3.0), (0, 1.0))
    ]
    faces = Told(answers)
    neurons, upper = oracle._by_faces(faces, V, 0.25)
    assert torch.equal(neurons, torch.cat([normal(1, 2, seed=1), normal(2, 2, seed=2)]))
    assert [above for _, above in faces.asked] == [0.25] * 3
    assert torch.equal(torch.cat([question for question, _ in faces.asked], 1), V)
    size = float(V.abs().amax(1).sum())
    assert (upper - 3.0) / UNIT == pytest.approx((3 + 16) * size + 16 * 3, abs=8)


@pytest.mark.parametrize("output", NORMS.values(), ids=lambda norm: norm.name)
@pytest.mark.parametrize("hidden", NORMS.values(), ids=lambda norm: norm.name)
def test_the_size_is_what_a_neuron_of_norm_one_can_reach(hidden: Norm, output: Norm) -> None:
    """Attained where all rows of X agree with the longest neuron of norm one, and V's rows with each other."""
    longest = torch.ones(1, 4).double() if hidden is LINF else torch.eye(1, 4).double()
    oracle, V = (
        NormFaces(longest.repeat(3, 1), hidden, output),
        normal(1, 2, seed=3) * torch.tensor([[1.0], [2.0], [0.5]]),
    )
    assert oracle._size(V) == pytest.approx(float(values(oracle.X, V, longest, hidden, output)[0]), rel=1e-14)


@pytest.mark.parametrize("hidden", [L1, LINF], ids=lambda norm: norm.name)
@pytest.mark.parametrize("numbers", [1, 7, 30, 10**6])
def test_corners_give_one_answer_however_they_are_split(hidden: Norm, numbers: int) -> None:
    oracle, V = NormFaces(normal(6, 3), hidden, L2), normal(6, 2, seed=1)
    whole, parts = oracle._at_corners(V, 0.5), oracle._at_corners(V, 0.5, numbers)
    assert torch.equal(whole[0], parts[0])
    assert whole[1] == pytest.approx(parts[1], rel=1e-14)


@pytest.mark.parametrize("hidden", [L1, LINF], ids=lambda norm: norm.name)
def test_corners_above_the_threshold_are_listed_highest_first_and_their_best_is_the_bound(hidden: Norm) -> None:
    oracle, V = NormFaces(normal(6, 3), hidden, L2), normal(6, 2, seed=1)
    both = torch.cat([oracle._corners, -oracle._corners])
    expected = np.sort(values(oracle.X, V, both, hidden, L2))[::-1]
    listed, upper = oracle._at_corners(V, 0.5 * (expected[5] + expected[6]))
    np.testing.assert_allclose(values(oracle.X, V, listed, hidden, L2), expected[:6], rtol=1e-12)
    allowed = (6 + 9 + 2 + 16) * UNIT * oracle._size(V) + 16 * UNIT * expected[0]
    assert upper - expected[0] == pytest.approx(allowed, abs=4 * UNIT * expected[0])
    assert len(oracle._at_corners(V, 1e9)[0]) == 1


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
def test_the_bracket_holds_the_best_of_a_circle_and_seeds_join_the_list(hidden: Norm, output: Norm) -> None:
    X, V = normal(5, 2, seed=3), normal(5, 2, seed=4)
    angles = torch.linspace(0, 2 * math.pi, 20_001, dtype=torch.float64)
    best = values(X, V, torch.stack([angles.cos(), angles.sin()], 1), hidden, output).max()
    oracle, seed = NormFaces(X, hidden, output), torch.tensor([[0.3, 0.4]])
    found = oracle.steepest(V, 0.0, seed)
    assert best * (1 - 1e-12) <= found.bracket.upper <= best * (1 + 1e-5)
    assert found.bracket.lower == pytest.approx(float(found.values[0]), rel=1e-15)
    own = hidden.unit(seed.double())
    assert any(torch.allclose(neuron, own[0], atol=1e-7) for neuron in found.neurons)
    assert found.neurons.dtype == torch.float64


def test_only_euclidean_neurons_are_found_on_faces() -> None:
    X = normal(5, 2)
    oracle = NormFaces(X, L2, L1)
    assert isinstance(oracle._faces, Faces)
    torch.testing.assert_close(oracle._faces.X, oracle.X, rtol=1e-14, atol=1e-15)
    assert NormFaces(X, L1, L2)._faces is None
    assert (oracle.hidden_norm, oracle.output_norm) == (L2, L1)


def test_the_upper_end_is_never_below_the_lower() -> None:
    oracle = NormFaces(normal(6, 2), L2, L2)
    oracle._faces = Told([SteepestNeurons(Bracket(0.0, 0.0), normal(0, 2), torch.zeros(0).double())])
    found = oracle._steepest(normal(6, 1, seed=1), 0.0, normal(5, 2, seed=2))
    assert found.bracket.upper >= found.bracket.lower > 0.01
