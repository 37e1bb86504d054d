"""What all oracles share: scaling of samples and duals, thresholds in the caller's units, and answers at the limits."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

from bidual.gauges import Bracket
from bidual.numerics.norms import LINF
from bidual.polar import Faces, NeuronOracle, SteepestNeurons, steepness
from bidual.polar.base import _normalised, bound_near
from helpers.draws import normal


class Told(NeuronOracle):
    """Answers [1, 2] with one neuron, and keeps what it was asked."""

    def __init__(self, X: Tensor) -> None:
        self._take(X)
        self.asked = list[tuple[Tensor, float, Tensor | None]]()

    def _steepest(self, V: Tensor, above: float, seeds: Tensor | None) -> SteepestNeurons:
        self.asked.append((V, above, seeds))
        return SteepestNeurons(Bracket(1.0, 2.0), self.X[:1], self.lengths.new_ones(1))


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1.0, 1e160, 1e300])
def test_rows_have_length_one_and_their_lengths_are_kept_at_any_scale(scale: float) -> None:
    X = torch.tensor([[3.0, 4.0], [0.0, 0.0], [-5.0, 12.0]]).double()
    rows, lengths = _normalised(scale * X)
    np.testing.assert_allclose(rows.numpy(), [[0.6, 0.8], [0.0, 0.0], [-5 / 13, 12 / 13]], rtol=1e-15)
    np.testing.assert_allclose(lengths.numpy(), [5 * scale, 0.0, 13 * scale], rtol=1e-14)


def test_samples_are_taken_in_double_and_without_their_gradient() -> None:
    oracle = Told(torch.ones(2, 2, requires_grad=True))
    assert oracle.X.dtype == oracle.lengths.dtype == torch.float64
    assert not oracle.X.requires_grad


@pytest.mark.parametrize("zero", ["V", "X", "either"])
def test_where_every_product_is_zero_the_answer_is_zero(zero: str) -> None:
    X, V = normal(2, 3), normal(2, 2)
    X[0], V[1] = (X[0] if zero == "V" else 0.0), (V[1] if zero == "X" else 0.0)
    X[1], V[0] = (0.0 if zero == "X" else X[1]), (0.0 if zero == "V" else V[0])
    oracle = Told(X)
    found = oracle.steepest(V)
    assert oracle.asked == []
    assert found.bracket == Bracket(0.0, 0.0)
    assert (tuple(found.neurons.shape), tuple(found.values.shape)) == ((0, 3), (0,))


@pytest.mark.parametrize(("x", "v"), [(1e200, 1e200), (1.0, math.inf), (1.0, math.nan)])
def test_out_of_the_range_of_numbers_nothing_is_known(x: float, v: float) -> None:
    oracle = Told(torch.full((2, 2), x, dtype=torch.float64))
    found = oracle.steepest(torch.full((2, 1), v, dtype=torch.float64))
    assert oracle.asked == []
    assert found.bracket == Bracket(0.0, math.inf)
    assert len(found.neurons) == 0


def test_products_far_below_the_largest_factors_are_not_asked_about() -> None:
    """The largest sample has no dual and the largest dual hardly a sample: digits of the product may be lost."""
    for small, expected in ((1e-150, Bracket(1e-150, 2e-150)), (1e-295, Bracket(0.0, math.inf))):
        X, V = torch.eye(2, dtype=torch.float64), torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        X[1, 1] = small
        found = Told(X).steepest(V).bracket
        assert (found.lower, found.upper) == (pytest.approx(expected.lower), pytest.approx(expected.upper))


def test_a_size_that_underflows_asks_for_nothing_above_and_keeps_its_bound() -> None:
    tiny = torch.full((1, 1), 1e-200, dtype=torch.float64)
    oracle = Told(tiny)
    found = oracle.steepest(tiny, 1.0)
    assert oracle.asked[0][1] == math.inf
    assert found.bracket.lower == 0.0
    assert found.bracket.upper == pytest.approx(2e-290)


def test_scaled_peaks_scale_values_and_bracket_but_not_neurons() -> None:
    peaks = SteepestNeurons(Bracket(1.0, 3.0), normal(2, 2), torch.tensor([1.0, 0.5]))
    found = peaks.scaled(4.0)
    assert found.bracket.lower == 4.0
    assert 12.0 < found.bracket.upper <= 12.0 * (1 + 1e-14)
    assert found.neurons is peaks.neurons
    assert found.values.tolist() == [4.0, 2.0]
    assert peaks.scaled(1e-280).bracket.upper == pytest.approx(3e-280, rel=1e-12)
    assert peaks.scaled(1e-300).bracket.upper == pytest.approx(3e-290, rel=1e-12)


def test_another_upper_end_or_more_of_it_changes_nothing_else() -> None:
    peaks = SteepestNeurons(Bracket(1.0, 3.0), normal(2, 2), torch.tensor([1.0, 0.5]))
    for found, upper in ((peaks.with_upper(7.0), 7.0), (peaks.raised(0.5), 3.5)):
        assert found.bracket.lower == 1.0
        assert upper <= found.bracket.upper <= upper * (1 + 1e-14)
        assert found.neurons is peaks.neurons
        assert found.values is peaks.values


def test_steepness_is_the_value_over_the_length() -> None:
    X, V, U = normal(6, 3), normal(6, 2, seed=1), normal(7, 3, seed=2)
    hidden = np.maximum(X.numpy() @ U.numpy().T, 0)
    expected = np.linalg.norm(hidden.T @ V.numpy(), axis=1) / np.linalg.norm(U.numpy(), axis=1)
    np.testing.assert_allclose(steepness(X, V, U).numpy(), expected, rtol=1e-13)
    np.testing.assert_allclose(steepness(X, V, 1e-3 * U).numpy(), expected, rtol=1e-13)
    assert steepness(X, V, 0 * U).tolist() == [0.0] * 7
    assert steepness(X.float(), V.float(), U.float()).dtype == torch.float32


def test_a_neuron_whose_square_underflows_is_not_called_steep() -> None:
    X, V = torch.ones(2000, 2, dtype=torch.float64), torch.ones(2000, 2, dtype=torch.float64)
    tiny = torch.full((1, 2), 1e-170, dtype=torch.float64)
    assert float(steepness(X, V, tiny)) <= float(steepness(X, V, torch.ones(1, 2, dtype=torch.float64))) * (1 + 1e-12)


def test_a_bound_grows_by_the_size_of_the_samples_times_the_distance() -> None:
    X = torch.tensor([[3.0, 0.0], [0.0, 4.0]]).double()
    V = normal(2, 2)
    bound = bound_near(X, V.float(), 7.0)
    assert bound(V.float().double()) == 7.0
    W = V.float().double()
    W[0, 0] += 2.0
    assert bound(W) == pytest.approx(7.0 + 5.0 * 2.0, rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_a_bound_near_holds_for_every_direction(seed: int) -> None:
    X, V, W = normal(5, 2, seed=seed), normal(5, 2, seed=seed + 10), normal(5, 2, seed=seed + 20)
    angles = torch.linspace(0, 2 * math.pi, 2000, dtype=torch.float64)
    U = torch.stack([angles.cos(), angles.sin()], 1)
    polar = float(steepness(X, V, U).max()) * (1 + 1e-5)
    assert float(steepness(X, W, U).max()) <= bound_near(X, V, polar)(W)


class Signs(NeuronOracle):
    """One feature: u is 1 or -1, and the maximum of what it is asked about is exact, rounded up to the next number."""

    def __init__(self, X: Tensor) -> None:
        self._take(X)

    def _steepest(self, V: Tensor, above: float, seeds: Tensor | None) -> SteepestNeurons:
        upper = math.nextafter(float(exact_polar(self.X, V)), math.inf)
        return SteepestNeurons(Bracket(0.0, upper), self.X[:0], self.lengths[:0])


def exact_polar(X: Tensor, V: Tensor) -> Fraction:
    """max over u = 1, -1 of |V^T (X u)_+| for one feature and one output."""
    terms = [(Fraction(x), Fraction(v)) for x, v in zip(X[:, 0].tolist(), V[:, 0].tolist(), strict=True)]
    return max(abs(sum((max(sign * x, Fraction(0)) * v for x, v in terms), Fraction(0))) for sign in (1, -1))


@pytest.mark.parametrize("scale", [1.0, 1e-150, 1e150])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_the_rounding_of_the_scaling_is_paid_for(scale: float, n: int) -> None:
    """Without an allowance one in ten of these bounds is too small, by a rounding, for seven rows."""
    for seed in range(100):
        X, V = (
            scale * normal(n, 1, seed=seed),
            normal(n, 1, seed=seed + 1000) * 10 ** (3 * normal(n, 1, seed=seed + 2000)),
        )
        exact, upper = exact_polar(X, V), Signs(X).steepest(V).bracket.upper
        total = sum(abs(Fraction(x) * Fraction(v)) for x, v in zip(X[:, 0].tolist(), V[:, 0].tolist(), strict=True))
        assert exact <= Fraction(upper) <= exact + total * Fraction(1, 10**14)


@pytest.mark.parametrize("exponent", [-1074, -1060, -1023, -1022, -1000])
def test_rows_of_denormal_numbers_have_their_length(exponent: int) -> None:
    X = torch.tensor([[2.0**exponent], [1.0]], dtype=torch.float64)
    rows, lengths = _normalised(X)
    assert lengths.tolist() == [2.0**exponent, 1.0]
    assert rows.tolist() == [[1.0], [1.0]]


def test_the_scaling_of_outputs_of_other_norms_is_paid_for_in_them() -> None:
    oracle, W = Told(normal(3, 4)), normal(3, 2)
    plain = oracle._rounding(W)
    oracle.hidden_norm = LINF
    assert oracle._rounding(W) == pytest.approx(2 * plain)
    oracle.output_norm = LINF
    share = float(W.abs().sum() / W.norm(dim=1).sum())
    assert oracle._rounding(W) == pytest.approx(2 * share * plain)


@pytest.mark.parametrize("scale", [1e-170, 1.0, 1e170])
@pytest.mark.parametrize("n", [1, 3])
def test_a_bound_near_holds_in_real_arithmetic(scale: float, n: int) -> None:
    for seed in range(40):
        X, V = normal(n, 1, seed=seed).abs() * scale, normal(n, 1, seed=seed + 50).abs()
        W = V * (1 + normal(n, 1, seed=seed + 100).abs())
        polar = math.nextafter(float(exact_polar(X, V)), math.inf)
        found = bound_near(X, V, polar)(W)
        assert exact_polar(X, W) <= Fraction(found)
        assert n > 1 or found <= float(exact_polar(X, W)) * (1 + 1e-14)


def test_a_bound_near_counts_samples_and_points_of_single_precision_in_double() -> None:
    X, V, W = normal(40, 30).float(), normal(40, 2, seed=1).float(), normal(40, 2, seed=2)
    assert bound_near(X, V, 1.0)(W) == bound_near(X.double(), V.double(), 1.0)(W)
    assert bound_near(X, V, 1.0)(W) >= 1 + float(X.double().norm() * (W - V.double()).norm())


def test_rows_whose_lengths_lost_digits_are_not_judged() -> None:
    """The length of (5e-324, 5e-324) has no digits: 7e-324 is not a number."""
    X, V = torch.full((1, 2), 5e-324, dtype=torch.float64), torch.tensor([[1e300]], dtype=torch.float64)
    assert Faces(X).steepest(V).bracket.upper == math.inf
    mixed = torch.cat([X, torch.full((1, 2), 2.0**-900, dtype=torch.float64)])
    assert Faces(mixed).steepest(torch.tensor([[1e300], [1e-300]], dtype=torch.float64)).bracket.upper == math.inf


def test_underflows_before_a_division_grow_by_it() -> None:
    oracle, nothing = Told(normal(3, 4)), torch.zeros(3, 2, dtype=torch.float64)
    plain, small = oracle._rounding(nothing), oracle._rounding(nothing, 2.0**-10)
    assert 0 < plain < 1e-300
    assert small == pytest.approx(2**10 * plain, rel=1e-9)
    assert plain >= nothing.numel() * 2.0**-1022
    assert oracle._rounding(torch.ones_like(nothing)) > 9 * 2.0**-53 * 3 * 2**0.5
