"""NormSearch part by part: starts, corners to climb to, steps that only go up, and the bound from l2."""

from itertools import product

import numpy as np
import pytest
import torch

from bidual.numerics.norms import L1, L2, NORMS, Norm
from bidual.polar import Faces, NormFaces, NormSearch
from bidual.polar.exact.norms import steepness_in
from helpers.draws import normal

EVERY_PAIR = pytest.mark.parametrize(
    ("hidden", "output"), list(product(NORMS.values(), NORMS.values())), ids=lambda norm: norm.name
)


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
