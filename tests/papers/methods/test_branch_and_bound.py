"""Branch and bound closes its bracket on small data, and the bracket is true whenever it stops."""

import numpy as np
import pytest
import torch

from bidual.papers.methods.branch_and_bound import BranchAndBound
from bidual.polar.relaxations.sign_regions import SignRegion
from helpers.draws import normal
from helpers.polar_cases import CASES, inside, steepest


@pytest.mark.parametrize("case", CASES)
def test_bracket_closes_on_brute_force(case: str) -> None:
    X, V = CASES[case]
    found = BranchAndBound(X, max_nodes=30, tol=2e-3, starts=32).steepest(V)
    best = steepest(case)
    assert best <= found.bracket.upper
    assert found.bracket.lower <= best * (1 + 1e-9)
    assert found.bracket.upper <= best * (1 + 5e-3)


@pytest.mark.parametrize("nodes", [0, 1, 4])
def test_bracket_is_true_whenever_it_stops(nodes: int) -> None:
    X, V = CASES["rank 3"]
    bracket = BranchAndBound(X, max_nodes=nodes, steps=50, starts=8).steepest(V).bracket
    assert bracket.lower <= steepest("rank 3") * (1 + 1e-9)
    assert steepest("rank 3") <= bracket.upper < np.inf


def test_more_nodes_never_loosen() -> None:
    X, V = normal(14, 4, seed=3), normal(14, 1, seed=4)
    uppers = [BranchAndBound(X, max_nodes=k, steps=100).steepest(V).bracket.upper for k in (0, 1, 8)]
    assert uppers == sorted(uppers, reverse=True)


def test_it_stops_once_nothing_can_exceed_the_threshold() -> None:
    X, V = CASES["rank 3"]
    best = steepest("rank 3")
    assert BranchAndBound(X, max_nodes=50).steepest(V, above=1.2 * best).bracket.upper <= 1.2 * best
    assert BranchAndBound(X, max_time=0.0).steepest(V).bracket.upper >= best


def test_found_neurons_attain_the_lower_bound() -> None:
    X, V = CASES["one output"]
    found = BranchAndBound(X, max_nodes=10).steepest(V, seeds=normal(3, 3, seed=9))
    values = torch.linalg.vector_norm((X @ found.neurons.T).clamp(min=0).T @ V, dim=1)
    assert torch.allclose(values, found.values)
    assert found.bracket.lower == pytest.approx(float(found.values[0]))


def test_halves_of_a_cell_cover_it() -> None:
    x, directions = normal(5, 3).numpy(), normal(200, 3, seed=1).numpy()
    region = SignRegion.whole(x).split(2)[0]
    covered = [inside(half, directions) for half in region.split(4)]
    assert (np.logical_or(*covered) == inside(region, directions)).all()


def test_a_cells_h_is_linear_in_its_variable() -> None:
    x, u = normal(6, 3).numpy(), normal(1, 3, seed=1).numpy()[0]
    signs = np.sign(x @ u).astype(np.int64) * (np.arange(6) < 4)
    region, a = SignRegion(x, signs), np.maximum(x @ u, 0)
    h = region.H @ np.concatenate([u, a[region.free]])
    assert np.allclose(h, np.concatenate([a, np.maximum(-x @ u, 0)]))


def test_moments_whose_price_is_negative_by_rounding_leave_a_bracket_too() -> None:
    """Nearly equal rows in two bundles: the only region's moments are next to nothing."""
    near = [
        [0.612163, -0.31308591, -0.54103689, -0.88290337, -1.23484243],
        [-0.81842384, 0.17035522, -0.75318253, -0.43260467, 0.21735728],
        [-0.81842387, 0.17035523, -0.75318255, -0.43260467, 0.21735728],
        [-0.81842386, 0.17035523, -0.75318253, -0.43260467, 0.21735728],
        [0.61216301, -0.31308592, -0.54103689, -0.88290335, -1.23484243],
    ]
    slopes = [
        [-1.29127983, -0.72919517],
        [-0.4205506, -0.07155701],
        [-1.63460714, -0.42793912],
        [-0.14483793, -0.92246442],
        [-0.91108642, -0.64560901],
    ]
    X, V = (torch.tensor(rows, dtype=torch.float64) for rows in (near, slopes))
    bracket = BranchAndBound(X, max_nodes=6, tol=1e-9, steps=100).steepest(V).bracket
    assert 0 < bracket.lower <= bracket.upper <= 2 * bracket.lower
