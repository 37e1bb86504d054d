"""Exact pricing of three-layer sub-networks (PR eq. 6) against random and climbing sub-networks, in any rank."""

import pytest
import torch
from torch import Tensor

from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.operators.parallel import sub_network_features as features
from bidual.polar import Faces
from bidual.polar.subnetworks.base import copies
from bidual.polar.subnetworks.pricing import ExactParallel
from bidual.polar.subnetworks.search import ParallelSearch
from bidual.problems.parallel import ParallelProblem

CASES = [(5, 2, 1), (5, 2, 2), (6, 2, 3), (4, 3, 2), (5, 1, 2), (4, 3, 1)]


def samples(n: int, d: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator).double(), torch.randn(n, 1, generator=generator).double()


@pytest.mark.parametrize(("n", "d", "width"), CASES)
@pytest.mark.parametrize("seed", [0, 1])
def test_no_sub_network_is_above_the_bracket_and_one_attains_it(n: int, d: int, width: int, seed: int) -> None:
    X, v = samples(n, d, seed)
    exact = ExactParallel(X, width).steepest(v)
    found = ParallelSearch(X, width, starts=2000).steepest(v)
    assert found.bracket.upper == float("inf")
    assert found.bracket.lower <= exact.bracket.upper
    assert exact.bracket.lower >= found.bracket.lower * (1 - 1e-9)
    assert exact.bracket.upper <= exact.bracket.lower * (1 + 1e-5)
    best = exact.neurons[0]
    assert float(torch.linalg.vector_norm(best)) == pytest.approx(1.0)
    assert int(best.reshape(2 * width, d).any(1).sum()) <= width
    assert float((features(X, best[None], (width,)).T @ v).abs()) == pytest.approx(float(exact.values[0]))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_one_unit_is_a_two_layer_network(seed: int) -> None:
    """((X w)_+ s)_+ is (X w)_+ or zero."""
    X, v = samples(6, 2, seed)
    two = Faces(X).steepest(v).bracket.lower
    assert ExactParallel(X, 1).steepest(v).bracket.lower == pytest.approx(two, rel=1e-8)


def test_copies_of_a_neuron_are_steeper_by_the_root_of_their_number() -> None:
    X, v = samples(6, 2, 3)
    u = Faces(X).steepest(v).neurons[:1]
    one, three = (float((features(X, copies(u, m), (m,)).T @ v).abs()) for m in (1, 3))
    assert three == pytest.approx(3**0.5 * one)
    assert ExactParallel(X, 3).steepest(v).bracket.lower >= three * (1 - 1e-9)


def test_scales_zero_rows_and_zero_duals() -> None:
    X, v = samples(5, 2, 0)
    base = ExactParallel(X, 2).steepest(v).bracket
    assert ExactParallel(1e6 * X, 2).steepest(1e-3 * v).bracket.upper == pytest.approx(1e3 * base.upper, rel=1e-6)
    padded = torch.cat([X, torch.zeros(1, 2).double()]), torch.cat([v, torch.ones(1, 1).double()])
    assert ExactParallel(padded[0], 2).steepest(padded[1]).bracket.upper == pytest.approx(base.upper, rel=1e-6)
    nothing = ExactParallel(X, 2).steepest(torch.zeros_like(v))
    assert nothing.bracket.upper == 0
    assert nothing.neurons.shape == (0, 8)


def test_what_it_refuses() -> None:
    X, v = samples(20, 2, 0)
    with pytest.raises(ValueError, match=r"enumerates 2\^\d+ second-layer patterns"):
        ExactParallel(X, 2).steepest(v.abs())
    with pytest.raises(ValueError, match="is for one output, got 2"):
        ExactParallel(X[:4], 2).steepest(torch.ones(4, 2).double())
    data = Datafit(Squared(), v[:4])
    problem = ParallelProblem(X[:4], data, 0.1, 2)
    for oracle in (ExactParallel(X[:4], 3), ExactParallel(X[1:5], 2), Faces(X[:4])):
        with pytest.raises(ValueError, match="other samples or widths"):
            problem.check_oracle(oracle)
    for wrong, words in (
        ({"beta": 0.0}, "beta must be positive"),
        ({"widths": 0}, "widths must be a positive whole number"),
    ):
        with pytest.raises(ValueError, match=words):
            ParallelProblem(**({"X": X[:4], "datafit": data, "beta": 0.1, "widths": 2} | wrong))  # type: ignore[arg-type]
