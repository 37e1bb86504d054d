"""The majorant is above every neuron of its cell, it is a maximum over h, and halves inherit it."""

import pytest
import torch
from torch import Tensor

from bidual.polar.products.majorant import Majorant
from helpers.product_cases import draw, multipliers, neurons, places

CASES = [(c, clustered) for c in (1, 2) for clustered in (False, True)]


@pytest.mark.parametrize(("c", "clustered"), CASES)
def test_no_neuron_of_the_cell_is_above_the_form(c: int, clustered: bool) -> None:
    for place, V in places(c, clustered):
        W, U = neurons(place.cell, 500)
        assert len(U) > 50
        steep = (W * ((place.cell.X @ U.T).clamp(min=0).T @ V)).sum(1)
        z = torch.cat([W, U], 1)
        form = ((z @ Majorant(place.cell, V, multipliers(place)).C) * z).sum(1)
        assert bool((form >= 2 * steep - 1e-12).all())


def weighted(majorant: Majorant, z: Tensor, h: Tensor) -> Tensor:
    """F(z, h), product by product."""
    cell, at, V = majorant.cell, majorant.at, majorant.V
    w, u = z[: cell.n_outputs], z[cell.n_outputs :]
    t, P, kappa = cell.X[cell.free] @ u, cell.forms @ z, cell.norm_form @ z
    a, b = h + t, h - t
    plus, minus, mixed = (at.pairs.dense(kind) for kind in range(3))
    sa, sb = at.pairs.down(a), at.pairs.down(b)
    total = (V[cell.free] @ w) @ a + 2 * (V[cell.positive] @ w) @ (cell.X[cell.positive] @ u)
    total = total + 2 * (sa @ plus @ sa) + 2 * (sb @ minus @ sb) + 2 * (sa @ mixed @ sb)
    for side, weights, g in ((a, at.on_plus, at.cone_plus), (b, at.on_minus, at.cone_minus)):
        total = total + side @ (weights @ P + g.norm(dim=1) * kappa + g @ u)
    total = total + P @ (at.form_pairs @ P + at.form_cones.norm(dim=1) * kappa + at.form_cones @ u)
    return total + at.balance * (u @ u - w @ w) + majorant.diagonal @ (t * t - h * h)


@pytest.mark.parametrize(("c", "clustered"), CASES)
def test_the_form_is_the_maximum_over_h(c: int, clustered: bool) -> None:
    for place, V in places(c, clustered):
        majorant = Majorant(place.cell, V, multipliers(place))
        z = draw(place.cell.size, seed=5)
        h = majorant.Y @ z
        top = weighted(majorant, z, h)
        torch.testing.assert_close(top, z @ majorant.C @ z, rtol=1e-10, atol=1e-10)
        assert all(weighted(majorant, z, h + 0.1 * draw(len(h), seed=seed)) < top for seed in range(5))


@pytest.mark.parametrize(("c", "clustered"), CASES)
def test_halves_inherit_the_bound(c: int, clustered: bool) -> None:
    for place, V in places(c, clustered):
        at, row = multipliers(place), int(place.cell.free[2])
        before = torch.linalg.eigvalsh(Majorant(place.cell, V, at).C)[-1]
        for half, sign in zip(place.cell.split(row), (1, -1), strict=True):
            after = Majorant(half, V, at.inherited(place.cell, row, sign)).C
            assert torch.linalg.eigvalsh(after)[-1] <= before + 1e-12


def test_coordinates_keep_multipliers() -> None:
    for place, _ in places(2, True):
        at = multipliers(place)
        again = multipliers(type(place).of(place.cell, at))
        for name in ("omega", "slack", "on_plus", "cone_minus", "form_pairs", "form_cones", "balance"):
            torch.testing.assert_close(getattr(again, name), getattr(at, name), rtol=1e-12, atol=1e-15)
