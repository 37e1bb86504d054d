"""Pruning keeps the predictions to rounding, never raises the price, and leaves independent neurons alone."""

import pytest
import torch
from torch import Tensor

from bidual.numerics.caratheodory import caratheodory, merge, price, prune
from helpers.draws import normal


def network(m: int, d: int, c: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(m)
    return tuple(torch.randn(m, k, generator=generator, dtype=torch.float64) for k in (d, c))


def outputs(X: Tensor, U: Tensor, W: Tensor) -> Tensor:
    return (X @ U.T).clamp(min=0) @ W


def assert_pruned(X: Tensor, before: tuple[Tensor, Tensor], after: tuple[Tensor, Tensor], intercept: bool) -> None:
    change = outputs(X, *after) - outputs(X, *before)
    change = change - change.mean(0) if intercept else change
    assert float(change.norm()) <= 1e-12 * float(outputs(X, *before).norm())
    assert float(price(*after).sum()) <= float(price(*before).sum()) * (1 + 1e-14)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(("n", "d", "c", "m"), [(1, 1, 1, 5), (6, 2, 1, 50), (5, 3, 4, 300), (30, 4, 3, 400)])
def test_wide_networks_shrink(n: int, d: int, c: int, m: int, intercept: bool) -> None:
    X, before = normal(n, d), network(m, d, c)
    after = prune(X, *before, intercept=intercept)
    assert_pruned(X, before, after, intercept)
    assert len(after[0]) <= (n - intercept) * c


def test_the_rank_of_the_features_bounds_the_width() -> None:
    X, before = normal(3, 2).repeat(7, 1), network(100, 2, 2)
    after = prune(X, *before)
    assert_pruned(X, before, after, intercept=False)
    assert len(after[0]) <= 3 * 2


def test_independent_neurons_are_left_alone() -> None:
    X, (U, W) = normal(40, 3), network(20, 3, 2)
    after = prune(X, U, W)
    assert len(after[0]) == 20
    assert torch.allclose(outputs(X, *after), outputs(X, U, W), atol=1e-12)
    assert float(price(*after).sum()) == pytest.approx(float(price(U, W).sum()), rel=1e-14)


def test_collinear_neurons_are_merged_and_dead_ones_dropped() -> None:
    X = torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, -1.0]]).double()
    U = torch.tensor([[1.0, 0.5], [4.0, 2.0], [-1.0, 0.0], [0.0, 0.0], [1.0, 0.2]]).double()
    W = torch.tensor([[1.0, 0.0], [0.0, 1.0], [5.0, 5.0], [1.0, 1.0], [0.0, 0.0]]).double()
    after = prune(X, U, W)
    assert len(after[0]) == 1
    assert torch.allclose(outputs(X, *after), outputs(X, U, W))
    assert float(price(*after).sum()) == pytest.approx(1.25**0.5 * 17**0.5)


def test_opposite_directions_are_not_merged() -> None:
    U, W = torch.tensor([[1.0, 0.0], [-1.0, 0.0]]).double(), torch.ones(2, 1).double()
    assert len(merge(U, W, 1e-14)[0]) == 2


def test_neurons_that_cancel_vanish() -> None:
    U = normal(1, 3).repeat(2, 1)
    W = torch.tensor([[1.0], [-1.0]]).double()
    assert len(prune(normal(6, 3), U, W)[0]) == 0


def test_nothing_to_prune() -> None:
    U, W = prune(normal(4, 2), torch.zeros(0, 2).double(), torch.zeros(0, 3).double())
    assert U.shape == (0, 2)
    assert W.shape == (0, 3)


def test_precision_and_type_are_the_callers() -> None:
    U, W = (T.float() for T in network(60, 2, 1))
    X = normal(5, 2).float()
    after = prune(X, U, W)
    assert after[0].dtype == after[1].dtype == torch.float32
    assert torch.allclose(outputs(X, *after), outputs(X, U, W), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_units_do_not_matter(scale: float) -> None:
    X, (U, W) = scale * normal(6, 3), network(80, 3, 2)
    after = prune(X, U, W / scale)
    assert_pruned(X, (U, W / scale), after, intercept=False)
    assert len(after[0]) <= 12


def test_nearly_dependent_columns_are_not_confused() -> None:
    columns = torch.eye(3, dtype=torch.float64)[:, [0, 1, 2, 2]]
    columns[0, 3] = 1e-9
    mass = torch.tensor([1.0, 2.0, 3.0, 4.0]).double()
    after = caratheodory(columns, mass)
    assert int((after > 0).sum()) <= 3
    assert torch.allclose(columns @ after, columns @ mass, rtol=0, atol=1e-14)
    assert float(after.sum()) <= 10 * (1 + 1e-15)


@pytest.mark.parametrize(
    ("X", "U", "W", "message"),
    [
        (normal(4, 2), normal(3, 3), normal(3, 1), "one column per feature"),
        (normal(4, 2), normal(3, 2), normal(4, 1), "one row per neuron"),
        (normal(4, 2), normal(3, 2), torch.nan * normal(3, 1), "finite"),
    ],
)
def test_bad_input(X: Tensor, U: Tensor, W: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prune(X, U, W)
