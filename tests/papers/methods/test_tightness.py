"""For which data the relaxation is known to be exact."""

import pytest
import torch

from bidual.papers.methods.tightness import tightness
from helpers.copositive_cases import inverse_m, white
from helpers.draws import normal


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_the_plane_is_exact(rank: int) -> None:
    said = tightness(normal(40, rank) @ normal(rank, 6, seed=1))
    assert said.guaranteed
    assert said.most_facets == rank
    assert f"rank {rank}" in said.reason


@pytest.mark.parametrize(("n", "guaranteed"), [(3, True), (4, True), (5, False), (8, False)])
def test_spike_free_data_have_a_facet_per_direction(n: int, guaranteed: bool) -> None:
    for X in (white(n, n + 2), inverse_m(n), torch.cat([white(n, n), 2 * white(n, n)])):
        said = tightness(X)
        assert said.guaranteed is guaranteed
        assert said.most_facets == n


def test_cones_of_space_may_have_five_facets_or_not() -> None:
    many, few = tightness(normal(9, 3)), tightness(normal(4, 3))
    assert not many.guaranteed
    assert many.most_facets is not None
    assert many.most_facets >= 5
    assert few.guaranteed
    assert few.most_facets in (3, 4)
    assert "4 are exact" in many.reason


def test_too_many_cones_are_not_looked_at() -> None:
    said = tightness(normal(200, 6))
    assert not said.guaranteed
    assert said.most_facets is None
    assert "too many cones" in said.reason


def test_what_is_hardly_distinct_is_not_called_exact_by_mistake() -> None:
    """Nearly parallel rows must not make facets disappear: cones of space have three at least."""
    axes = torch.eye(3, dtype=torch.float64)
    said = tightness(torch.cat([axes, axes + 1.3e-11 * (1 - axes) / 2**0.5]))
    assert said.most_facets is None or said.most_facets >= 3
    assert said.guaranteed is (said.most_facets is not None and said.most_facets <= 4)


@pytest.mark.parametrize("X", [normal(3), normal(0, 2), normal(2, 2) / 0])
def test_bad_input(X: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="finite matrix with at least one row"):
        tightness(X)
