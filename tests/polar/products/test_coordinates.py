"""Coordinates of multipliers: a valid start, steps only where they mean something, and pairs that lower the bound."""

from dataclasses import replace

import pytest
import torch

from bidual.polar.products.cells import Cell, orthants
from bidual.polar.products.coordinates import Coordinates, _cone, _everywhere, _root
from bidual.polar.products.majorant import Majorant
from bidual.polar.products.multipliers import Support
from helpers.product_cases import LABELS, draw, multipliers, places

CASES = [(c, clustered) for c in (1, 2) for clustered in (False, True)]


def moments(size: int, seed: int = 3) -> torch.Tensor:
    A = draw(size, size, seed=seed)
    return A @ A.T / size


def starts(c: int, clustered: bool) -> list[tuple[Coordinates, torch.Tensor]]:
    X, V = draw(9, 3), draw(9, c, seed=1)
    X, V = X / torch.linalg.matrix_norm(X, 2), V / V.norm()
    cells = [*orthants(X, c, 2), Cell(X, c), orthants(X, c, 2)[0].split(4)[0]]
    return [(Coordinates.start(cell, V, LABELS if clustered else None), V) for cell in cells]


@pytest.mark.parametrize(("c", "clustered"), CASES)
def test_the_start_is_valid_and_not_far_from_the_elementary_bound(c: int, clustered: bool) -> None:
    """1/2 |V^T X| + 1/2 |V| |X| is what one multiplier for all rows can prove."""
    for place, V in starts(c, clustered):
        C = Majorant(place.cell, V, multipliers(place)).C
        X = place.cell.X
        elementary = (torch.linalg.matrix_norm(V.T @ X, 2) + torch.linalg.matrix_norm(V, 2)) / 2
        assert torch.linalg.eigvalsh(C)[-1] <= 1.3 * elementary


@pytest.mark.parametrize(("c", "clustered"), CASES)
def test_the_start_treats_all_rows_alike_and_has_no_pairs_cones_or_balance(c: int, clustered: bool) -> None:
    for place, V in starts(c, clustered):
        at = multipliers(place)
        free, size = place.cell.free, V[place.cell.free].norm(dim=1)
        assert not any(map(len, at.pairs.where))
        assert not any(bool(g.any()) for g in (at.cone_plus, at.cone_minus, at.form_cones, at.balance))
        assert all(torch.allclose(part, part[:1].expand_as(part)) for part in (at.slack, at.omega))
        torch.testing.assert_close(at.on_plus, at.on_minus)
        torch.testing.assert_close(at.on_plus * size[0], at.on_plus[:1] * size[:, None], rtol=1e-9, atol=1e-12)
        assert (at.pairs.labels is None) or torch.equal(at.pairs.labels, LABELS[free])


@pytest.mark.parametrize(("c", "clustered"), CASES)
def test_only_coordinates_without_a_meaning_stand_still(c: int, clustered: bool) -> None:
    """Without signs of outputs that is the balance; cones have no coordinates there."""
    for place, _ in places(c, clustered):
        cell, still = place.cell, int((place.scales() == 0).sum())
        assert still == (0 if cell.signs is not None else 1)
        moved = multipliers(replace(place, vector=place.vector + place.scales() * draw(len(place.vector), seed=2)))
        if cell.signs is None:
            assert not any(bool(part.any()) for part in (moved.cone_plus, moved.cone_minus, moved.form_cones))
        assert bool((moved.omega != multipliers(place).omega).all())
        assert bool((moved.slack != multipliers(place).slack).all())
        assert not clustered or bool((moved.pairs.shares != multipliers(place).pairs.shares).all())


def with_more(place: Coordinates, V: torch.Tensor, kind: int, where: int, step: float) -> torch.Tensor:
    """C where one pair has more weight."""
    at, p = multipliers(place), place.pairs.count
    dense = [at.pairs.dense(one).reshape(-1).clone() for one in range(3)]
    dense[kind][where] += step
    pairs = replace(at.pairs, support=Support(p, (torch.arange(p * p),) * 3), values=tuple(dense))
    return Majorant(place.cell, V, replace(at, pairs=pairs)).C


@pytest.mark.parametrize(("c", "clustered"), CASES)
def test_slopes_of_pairs_without_a_weight_are_differences(c: int, clustered: bool) -> None:
    for place, V in places(c, clustered):
        M, everywhere = moments(place.cell.size), _everywhere(place.pairs)
        slopes = Majorant(place.cell, V, multipliers(place)).slopes(M, everywhere)
        for kind, (i, j) in enumerate(everywhere):
            pick = len(i) // 2
            where = int(i[pick] * place.pairs.count + j[pick])
            ahead, behind = (with_more(place, V, kind, where, step) for step in (1e-6, -1e-6))
            difference = ((ahead - behind) * M).sum() / 2e-6
            torch.testing.assert_close(difference, slopes[kind][pick], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("clustered", [False, True])
def test_all_pairs_are_listed_once(clustered: bool) -> None:
    place, _ = starts(1, clustered)[0]
    p = place.pairs.count
    plus, minus, mixed = ([*zip(i.tolist(), j.tolist(), strict=True)] for i, j in _everywhere(place.pairs))
    assert plus == minus
    assert sorted(plus) == [(i, j) for i in range(p) for j in range(i)]
    assert sorted(mixed) == [(i, j) for i in range(p) for j in range(p) if i != j or clustered]


def test_a_cluster_of_one_row_has_no_pair_with_itself() -> None:
    """Its a_k b_k is zero, and a slope that is zero but for rounding would choose it or not by chance."""
    place, _ = starts(1, True)[-1]
    rows = torch.bincount(place.pairs.labels)
    alone = [(i, i) for i in range(place.pairs.count) if rows[i] == 1]
    mixed = [*zip(*(part.tolist() for part in _everywhere(place.pairs)[2]), strict=True)]
    assert alone
    assert not set(alone) & set(mixed)


def uneven(c: int, clustered: bool) -> list[tuple[Coordinates, torch.Tensor]]:
    """Starts without pairs whose rows and clusters have different diagonals and shares."""
    made = []
    for place, V in starts(c, clustered):
        count = len(place.cell.free) * (3 if clustered else 2)
        moves = torch.nn.functional.pad(draw(count, seed=5), (0, len(place.vector) - count))
        made.append((replace(place, vector=place.vector + moves), V))
    return made


def slopes_of(place: Coordinates, V: torch.Tensor, M: torch.Tensor) -> list[torch.Tensor]:
    """The derivatives of <C, M> in the weights of all pairs, as matrices; zero where there is no pair."""
    p, everywhere = place.pairs.count, _everywhere(place.pairs)
    found = Majorant(place.cell, V, multipliers(place)).slopes(M, everywhere)
    full = [torch.zeros(p, p, dtype=torch.float64) for _ in found]
    for matrix, slope, (i, j) in zip(full, found, everywhere, strict=True):
        matrix[i, j] = slope
    return full


def dense(place: Coordinates) -> torch.Tensor:
    return torch.stack([multipliers(place).pairs.dense(kind) for kind in range(3)])


@pytest.mark.parametrize(("c", "clustered"), CASES)
def test_new_pairs_are_those_that_lower_the_form_most(c: int, clustered: bool) -> None:
    """By their slope times the weight that they get."""
    for place, V in uneven(c, clustered):
        M, p = moments(place.cell.size), place.pairs.count
        slopes = torch.stack(slopes_of(place, V, M))
        everything = dense(place.with_pairs(V, M, 3 * p))
        assert torch.equal(everything > 0, slopes < 0)
        gains = (-slopes * everything).reshape(-1)
        best = gains.argsort(descending=True)[: min(p, int((gains > 0).sum()))]
        chosen = dense(place.with_pairs(V, M, 1))
        assert chosen.reshape(-1).nonzero()[:, 0].tolist() == sorted(best.tolist())
        assert torch.equal(chosen[chosen > 0], everything[chosen > 0])


@pytest.mark.parametrize(("c", "clustered"), CASES)
def test_pairs_that_matter_keep_their_weights_and_new_ones_are_small(c: int, clustered: bool) -> None:
    """What stays does so to the bit. What comes or goes lowers the form, so that a first part of the way does; what
    comes is smaller than sqrt(D_i D_j) / m as an entry of N, what goes far smaller."""
    for place, V in places(c, clustered):
        M, m = moments(place.cell.size), len(place.cell.free)
        old, new = dense(place), dense(place.with_pairs(V, M, 50))
        change, slopes = new - old, torch.stack(slopes_of(place, V, M))
        assert torch.equal(new[(old > 0) & (new > 0)], old[(old > 0) & (new > 0)])
        assert bool((change * slopes <= 0).all())
        labels = torch.arange(m) if place.pairs.labels is None else place.pairs.labels
        at = multipliers(place)
        roots = Majorant(place.cell, V, at).diagonal.sqrt() / (1.0 if at.pairs.shares is None else at.pairs.shares)
        most = torch.zeros(place.pairs.count, dtype=torch.float64).scatter_reduce(0, labels, roots, "amax")
        assert bool((change < most[:, None] * most / m).all())
        light = 1e-3 * most[:, None] * most
        assert bool(((-change < light) | (slopes == 0)).all())  # a pair without a slope goes, whatever its weight
        before, after = (along(place, V, old + part * change, M) for part in (0.0, 1e-4))
        assert after < before if bool((change * slopes).any()) else clustered  # all that helps may be there already


def along(place: Coordinates, V: torch.Tensor, weights: torch.Tensor, M: torch.Tensor) -> float:
    """<C, M> with all weights of pairs given."""
    p = place.pairs.count
    pairs = replace(place.pairs, support=Support(p, (torch.arange(p * p),) * 3), values=tuple(weights.reshape(3, -1)))
    at = multipliers(place)
    given = replace(at, pairs=replace(pairs, shares=at.pairs.shares))
    return float((Majorant(place.cell, V, given).C * M).sum())


@pytest.mark.parametrize("clustered", [False, True])
def test_tiny_weights_stay_where_they_help_and_go_where_they_do_not(clustered: bool) -> None:
    for place, V in uneven(1, clustered)[:1]:
        M, p = moments(place.cell.size), place.pairs.count
        slopes = torch.stack(slopes_of(place, V, M))
        for size in (1e-12, 1e-2):
            where = [slope.reshape(-1).nonzero()[:, 0] for slope in slopes]
            values = tuple(torch.full((len(at),), size, dtype=torch.float64) for at in where)
            at = multipliers(place)
            given = replace(at, pairs=replace(at.pairs, support=Support(p, tuple(where)), values=values))
            planted = Coordinates.of(place.cell, given)
            now = torch.stack(slopes_of(planted, V, M))
            found = dense(planted.with_pairs(V, M, 0 if size > 1e-3 else 3 * p))
            helps = now < 0 if size < 1e-3 else now != 0
            assert bool((now > 0).any())
            assert torch.equal(found, torch.where(helps, dense(planted), 0.0))


def test_new_pairs_do_not_depend_on_the_unit_of_shares() -> None:
    """Shares of every cluster times a number: weights of its sums shrink by it, so that N is the same."""
    for place, V in uneven(2, True):
        M, m, labels = moments(place.cell.size), len(place.cell.free), place.pairs.labels
        moves = torch.nn.functional.pad(draw(4, seed=8)[labels], (2 * m, len(place.vector) - 3 * m))
        entries = []
        for start in (place, replace(place, vector=place.vector + moves)):
            found = start.with_pairs(V, M, 2)
            shares = multipliers(found).pairs.shares
            entries.append(shares[:, None] * shares * dense(found)[:, labels][:, :, labels])
        torch.testing.assert_close(*entries, rtol=1e-12, atol=0)


def test_pairs_that_come_later_start_smaller() -> None:
    """A place that was descended from is disturbed less."""
    place, V = uneven(1, False)[0]
    M = moments(place.cell.size)
    first, some = dense(place.with_pairs(V, M, 50)), place.with_pairs(V, M, 1)
    later = dense(some.with_pairs(V, M, 50))
    both = (first > 0) & (later > 0) & (dense(some) == 0)
    assert bool(both.any())
    assert bool((later[both] < 0.5 * first[both]).all())


def test_no_pair_is_chosen_where_none_has_room() -> None:
    place, V = starts(1, False)[0]
    assert not any(map(len, place.with_pairs(V, moments(place.cell.size), 0).pairs.where))


@pytest.mark.parametrize(("c", "clustered"), CASES)
def test_new_cones_lower_the_form_and_old_ones_stay(c: int, clustered: bool) -> None:
    for place, V in starts(c, clustered)[:1] + starts(c, clustered)[-1:]:
        M = moments(place.cell.size)
        turned = place.with_cones(V, M)
        at = multipliers(turned)
        slopes, o = Majorant(place.cell, V, multipliers(place)).moments(M), place.cell.n_outputs
        for g, slope in zip((at.cone_plus, at.cone_minus, at.form_cones), slopes, strict=True):
            cosine = -(g * slope[:, o:]).sum(1) / (g.norm(dim=1) * slope[:, o:].norm(dim=1))
            assert bool((cosine > 1 - 1e-9).all())  # against the slope
        again = multipliers(turned.with_cones(V, moments(place.cell.size, seed=9)))
        torch.testing.assert_close(again.cone_plus, at.cone_plus)
        torch.testing.assert_close(again.form_cones, at.form_cones)


def test_cones_and_their_roots_are_inverse() -> None:
    g = draw(5, 3) * torch.tensor([1.0, 1e-8, 1e8, 0.0, 1.0], dtype=torch.float64)[:, None]
    torch.testing.assert_close(_cone(_root(g)), g, rtol=1e-12, atol=0)
    torch.testing.assert_close(_root(g).norm(dim=1).square(), g.norm(dim=1), rtol=1e-12, atol=0)


def test_weights_of_zero_can_grow() -> None:
    place, _ = starts(2, False)[0]
    at = multipliers(place)
    zero = replace(at, on_plus=0 * at.on_plus, on_minus=0 * at.on_minus, form_pairs=0 * at.form_pairs)
    again = multipliers(Coordinates.of(place.cell, zero))
    for weights in (again.on_plus, again.on_minus, again.form_pairs):
        assert 0 < float(weights.min()) <= float(weights.max()) < 1e-12
