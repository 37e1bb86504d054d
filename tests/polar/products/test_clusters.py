"""Clusters of rows: planted ones are found, signs of one output are kept apart, and lengths do not matter."""

import pytest
import torch

from bidual.polar.products.clusters import labels_of
from helpers.product_cases import draw


def planted(c: int, copies: int = 6) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows along three axes, of different length, with duals along two directions: the cluster of each of six kinds."""
    kinds = torch.arange(6).repeat(copies)
    x = torch.eye(3, dtype=torch.float64)[kinds // 2] + 0.01 * draw(len(kinds), 3)
    V = torch.where((kinds % 2 > 0)[:, None], 1.0, -1.0) * torch.ones(len(kinds), c, dtype=torch.float64)
    lengths = 10 ** draw(2, len(kinds), 1, seed=1)
    return lengths[0] * x, lengths[1] * V, kinds


def same(labels: torch.Tensor, kinds: torch.Tensor) -> bool:
    """Whether two lists of labels make the same clusters."""
    return torch.equal(labels[:, None] == labels, kinds[:, None] == kinds)


@pytest.mark.parametrize("c", [1, 2])
def test_planted_clusters_are_found(c: int) -> None:
    x, V, kinds = planted(c)
    labels = labels_of(x, V, 6)
    assert same(labels, kinds)
    assert sorted(set(labels.tolist())) == list(range(6))
    assert torch.equal(labels, labels_of(x, V, 6))


def test_signs_of_one_output_are_apart_even_in_few_clusters() -> None:
    x, V, kinds = planted(1)
    for count in (1, 2):
        assert same(labels_of(x, V, count), kinds % 2)
    assert len(labels_of(x, 0 * V, 3).unique()) == 3
    assert same(labels_of(x, V.abs(), 3), kinds // 2)


def test_clusters_are_shared_out_by_the_number_of_rows() -> None:
    x, V = draw(40, 3), torch.ones(40, 1, dtype=torch.float64)
    V[:10] = -1
    labels = labels_of(x, V, 8)
    assert (len(labels[:10].unique()), len(labels[10:].unique())) == (2, 6)


@pytest.mark.parametrize("c", [1, 2])
@pytest.mark.parametrize("count", [5, 9])
def test_with_clusters_enough_every_row_has_its_own(c: int, count: int) -> None:
    assert len(labels_of(draw(5, 2), draw(5, c, seed=1).abs(), count).unique()) == 5


def test_heavy_rows_make_the_clusters() -> None:
    """Two axes that weigh much and two directions between that weigh nothing, for two clusters: one for each axis."""
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.9], [1.0, 1.1]]).double().repeat(5, 1)
    for parts in ((x * torch.tensor([1e6, 1e6, 1e-6, 1e-6]).double().repeat(5)[:, None], torch.ones(20, 1).double()),):
        labels = labels_of(*parts, 2)
        assert same(labels, torch.tensor([0, 1, 0, 1]).repeat(5))
    weights = torch.tensor([1e6, 1e6, 1e-6, 1e-6]).double().repeat(5)[:, None]
    assert same(labels_of(x, weights, 2), torch.tensor([0, 1, 0, 1]).repeat(5))
