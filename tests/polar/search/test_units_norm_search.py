"""NormSearch part by part: starts, corners to climb to, steps that only go up, and the bound from l2."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from bidual.gauges import Bracket
from bidual.numerics.norms import L1, L2, LINF, NORMS, Norm
from bidual.polar import Faces, NeuronOracle, NormFaces, NormSearch, SteepestNeurons
from bidual.polar.exact.norms import steepness_in
from helpers.draws import normal

EVERY_PAIR = pytest.mark.parametrize(
    ("hidden", "output"), list(product(NORMS.values(), NORMS.values())), ids=lambda norm: norm.name
)


class Told(NeuronOracle):
    """Answers [0, 3], and keeps what it was asked."""

    def __init__(self, X: Tensor, **norms: Norm) -> None:
        self._take(X)
        vars(self).update(norms)
        self.asked = list[tuple[Tensor, float]]()

    def steepest(self, V: Tensor, above: float = 0.0, seeds: Tensor | None = None) -> SteepestNeurons:
        self.asked.append((V, above))
        return SteepestNeurons(Bracket(0.0, 3.0), self.X[:0], self.lengths[:0])

    def _steepest(self, V: Tensor, above: float, seeds: Tensor | None) -> SteepestNeurons:
        raise NotImplementedError


@EVERY_PAIR
def test_the_bound_is_the_euclidean_one_times_what_the_norms_differ_by(hidden: Norm, output: Norm) -> None:
    """|u|_2 <= 2 |u|_inf in R^4, and |z|_1 <= sqrt(3) |z|_2 in R^3, where the dual of linf is l1."""
    X, V = normal(6, 4) * torch.tensor([1.0, 10.0, 0.1, 1.0, 0.0, 3.0]).double()[:, None], normal(6, 3, seed=1)
    oracle = Told(X)
    factor = (2.0 if hidden is LINF else 1.0) * (math.sqrt(3) if output is LINF else 1.0)
    search = NormSearch(X, hidden, output, oracle)
    assert search._upper(search.lengths[:, None] * V, 6.0) == pytest.approx(3.0 * factor, rel=2e-12)
    terms = float(output.dual.value(V).sum()) * hidden.times_l2(4)  # each has two roundings more
    assert 2**-52 * terms <= search._upper(V, 6.0) - 3.0 * factor <= 2**-46 * (terms + factor)
    plain, above = oracle.asked[0]
    expected = torch.where(search.lengths[:, None] > 0, V, 0.0)
    torch.testing.assert_close(plain, expected, rtol=1e-13, atol=0)
    assert above == pytest.approx(6.0 / factor, rel=1e-13)


def test_without_a_euclidean_oracle_nothing_is_proved() -> None:
    search = NormSearch(normal(6, 3), L1, LINF)
    assert search._upper(normal(6, 2), 0.0) == math.inf
    assert search.euclidean is None
    assert NormSearch.proves is False
    assert (search.starts, search.rounds, search.seed) == (256, 40, 0)


@pytest.mark.parametrize("norms", [{"hidden_norm": L1}, {"output_norm": L1}, {"hidden_norm": L1, "output_norm": L1}])
def test_the_bounding_oracle_must_have_both_norms_euclidean(norms: dict[str, Norm]) -> None:
    X = normal(5, 2)
    text = r"^euclidean must be an oracle for l2 norms, such as Faces\(X\) or DiagonalBound\(X\)\.$"
    with pytest.raises(ValueError, match=text):
        NormSearch(X, L1, L2, Told(X, **norms))


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


def test_starts_are_steep_neurons_their_corners_and_seeds_all_of_norm_one() -> None:
    search, V, seeds = (
        NormSearch(normal(20, 3), LINF, L2, starts=20, seed=4),
        normal(20, 2, seed=1),
        normal(2, 3, seed=2),
    )
    without, U = search._starts(V, None), search._starts(V, seeds.float())
    assert U.dtype == torch.float64
    assert len(without) % 2 == 0
    assert len(U) == len(without) + 2
    assert torch.equal(U[:-2], without)
    torch.testing.assert_close(U[-2:], LINF.unit(seeds), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(LINF.value(U).numpy(), 1.0, rtol=1e-14)
    half = len(without) // 2
    assert torch.equal(without[half:], without[:half].sign())
    assert 4 <= half <= 20


def test_starts_depend_on_their_seed_and_number() -> None:
    X, V = normal(20, 3), normal(20, 2, seed=1)
    first, again, other, more = (
        NormSearch(X, L1, L2, starts=starts, seed=seed)._starts(V, None)
        for starts, seed in ((30, 0), (30, 0), (30, 1), (60, 0))
    )
    assert torch.equal(first, again)
    assert first.shape != other.shape or not torch.equal(first, other)
    assert len(more) > len(first)


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_rounds_are_obeyed(rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    search, made = NormSearch(normal(30, 6), LINF, L1, rounds=rounds), []
    own = search._climbed

    def climbed(U: Tensor, top: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
        made.append(1)
        return own(U, top, V)[0], top + 1.0

    monkeypatch.setattr(search, "_climbed", climbed)
    search.steepest(normal(30, 2, seed=1))
    assert len(made) == rounds


@pytest.mark.parametrize(("rise", "rounds"), [(1.0, 1), (1 + 1e-10, 1), (1 + 1e-8, 6)])
def test_climbing_stops_where_nothing_rises_by_a_billionth(
    rise: float, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    search, made = NormSearch(normal(9, 3), LINF, L1, rounds=6), []
    monkeypatch.setattr(search, "_climbed", lambda U, top, V: made.append(1) or (U, top * rise))
    search.steepest(normal(9, 2, seed=1))
    assert len(made) == rounds


@EVERY_PAIR
def test_the_bracket_holds_the_exact_value_and_the_list_attains_its_lower_end(hidden: Norm, output: Norm) -> None:
    X, V = normal(8, 2), normal(8, 2, seed=1)
    exact, search = NormFaces(X, hidden, output).steepest(V).bracket, NormSearch(X, hidden, output, Faces(X), starts=32)
    found = search.steepest(V)
    assert 0.95 * exact.lower <= found.bracket.lower <= exact.upper <= found.bracket.upper * (1 + 1e-9)
    assert float(found.values[0]) == pytest.approx(found.bracket.lower, rel=1e-14)
    np.testing.assert_allclose(hidden.value(found.neurons).numpy(), 1.0, rtol=1e-13)


def test_the_threshold_decides_what_is_listed_and_is_handed_on() -> None:
    X, V = normal(30, 4), normal(30, 2, seed=1)
    oracle = Told(X)
    search = NormSearch(X, L1, L1, oracle)
    top = search.steepest(V).bracket.lower
    found = search.steepest(V, 0.7 * top)
    assert oracle.asked[-1][1] > 0
    assert len(found.values) > 1
    assert bool((found.values > 0.7 * top).all())
    assert len(search.steepest(V, 10 * top).values) < len(found.values)


def test_the_upper_end_is_never_below_what_was_found() -> None:
    X, V = torch.eye(3).double().repeat(4, 1), torch.ones(12, 1).double()
    found = NormSearch(X, L1, L2, Told(X)).steepest(V)
    assert found.bracket.upper >= found.bracket.lower == pytest.approx(4.0)
