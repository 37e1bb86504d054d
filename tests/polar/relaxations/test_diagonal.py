"""The cheap bound of the steepest neuron: its start and its sums of rows, against closed forms."""

import torch

from bidual.polar.relaxations.aggregates import Aggregated, RowMultipliers
from bidual.polar.relaxations.diagonal import _elementary, _sums, diagonal_bound
from helpers.draws import normal


def test_the_elementary_witness_has_the_elementary_bound() -> None:
    x, V = normal(6, 3), normal(6, 2, seed=1)
    x, V = x / torch.linalg.matrix_norm(x, 2), V / V.norm()
    made = Aggregated(x, V, x.new_zeros(6, 0)).bound(RowMultipliers(_elementary(x, V), x.new_zeros(0, 0)))
    norms = [float(torch.linalg.matrix_norm(part, 2)) for part in (V.T @ x, V, x)]
    elementary = 0.5 * norms[0] + 0.5 * norms[1] * norms[2]
    assert made <= elementary * (1 + 1e-5)
    for sums in (False, True):
        assert diagonal_bound(x, V, sums, 10) <= made


def test_sums_are_the_unit_positive_and_negative_parts() -> None:
    V = torch.tensor([[3.0, 0.0], [4.0, -2.0]], dtype=torch.float64)
    assert _sums(V).tolist() == [[0.6, 0.0], [0.8, 1.0]]
    wide = normal(5, 21)
    parts = torch.stack([wide.clamp(min=0).sum(1), (-wide).clamp(min=0).sum(1)], 1)
    assert torch.allclose(_sums(wide), parts / parts.norm(dim=0))
