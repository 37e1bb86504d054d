"""Multipliers that may come from a file: those of another size or meaning prove nothing, and scaling keeps the rest."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import torch

from bidual.polar.products.majorant import Majorant
from bidual.polar.products.multipliers import Pairs
from bidual.polar.products.oracle import ProductBound
from bidual.polar.products.proof import proved_bound
from bidual.polar.products.soft_bound import Cells
from bidual.polar.products.witness import CellProof, ProductProof, covering, given_back, proof_of
from bidual.polar.relaxations.reduction import Scaled
from helpers.product_cases import draw, multipliers, places

N, D, C = 8, 3, 1
TENSORS = ["omega", "slack", "on_plus", "on_minus", "cone_plus", "cone_minus", "balance", "form_pairs", "form_cones"]


@cache
def made(clustered: bool, signed: bool = True) -> tuple[ProductBound, Cells, torch.Tensor]:
    """Cells, the first with two fixed rows, and the W that they were made for."""
    W = draw(N, C, seed=1)
    W = W / W.norm()
    X = draw(N, D) * torch.linspace(0.2, 3, N, dtype=torch.float64)[:, None]
    oracle = ProductBound(X, per_row=4, dense=4 if clustered else 50, clusters=3, most_outputs=C if signed else 0)
    cells = oracle.start(W)
    for _ in range(2):
        cells = cells.split(W, (0,), 0.1)
    return oracle, cells, W


def proof(clustered: bool = False) -> tuple[ProductProof, torch.Tensor]:
    oracle, cells, W = made(clustered)
    return ProductProof(oracle.X, oracle.proofs(cells)), W


@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("signed", [False, True])
def test_multipliers_of_scaled_and_turned_rows_prove_the_scaled_bound(clustered: bool, signed: bool) -> None:
    oracle, cells, W = made(clustered, signed)
    scaled = Scaled.of(oracle.X)
    for place, one in zip(cells.places, oracle.proofs(cells), strict=True):
        there = proved_bound(one.cell(oracle.X, C), W, one.at.wide())
        here = proved_bound(place.cell, W, place.multipliers(place.vector))
        assert there == pytest.approx(scaled.size * here, rel=1e-6)
        assert one.fixed == place.cell.fixed
        assert one.signs == (None if place.cell.signs is None else tuple(place.cell.signs.tolist()))


@pytest.mark.parametrize("factor", [1e-3, 1.0, 5.0])
def test_the_bound_is_the_largest_of_all_cells_and_scales_with_the_dual(factor: float) -> None:
    whole, W = proof()
    each = [proved_bound(one.cell(whole.X, C), W, one.at.wide()) for one in whole.cells]
    assert math.isfinite(whole.bound(factor * W))
    assert whole.bound(factor * W) == pytest.approx(factor * max(each), rel=1e-12)
    assert min(each) < max(each)


def test_multipliers_of_another_norm_are_scaled_to_norm_one() -> None:
    oracle, cells, _ = made(False)
    for one, other in zip(oracle.proofs(cells), oracle.proofs(cells, 4.0), strict=True):
        torch.testing.assert_close(other.at.slack, one.at.slack / 4)


def with_support(one: CellProof, **parts: object) -> Pairs:
    return replace(one.at.pairs, support=replace(one.at.pairs.support, **parts))


def changed(one: CellProof, **parts: object) -> CellProof:
    return replace(one, at=replace(one.at, **parts))


@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("name", TENSORS)
def test_tensors_of_another_size_prove_nothing(name: str, clustered: bool) -> None:
    whole, W = proof(clustered)
    first, *rest = whole.cells
    given = getattr(first.at, name)
    assert math.isfinite(whole.bound(W))
    for wrong in (given[None], given[:-1] if given.ndim else given[None, None], given.expand(2, *given.shape)):
        assert replace(whole, cells=(changed(first, **{name: wrong}), *rest)).bound(W) == math.inf
    if given.ndim == 2:
        assert replace(whole, cells=(changed(first, **{name: given[:, :-1]}), *rest)).bound(W) == math.inf


BROKEN: dict[str, Callable[[CellProof], CellProof]] = {
    "a row twice": lambda one: replace(one, rows=(one.rows[0], one.rows[0])),
    "a row too far": lambda one: replace(one, rows=(one.rows[0], N)),
    "a negative row": lambda one: replace(one, rows=(one.rows[0], -1)),
    "a sign of two": lambda one: replace(one, row_signs=(one.row_signs[0], 2 * one.row_signs[1])),
    "outputs of two": lambda one: replace(one, signs=tuple(2 * s for s in one.signs)),
    "a pair twice": lambda one: changed(
        one,
        pairs=with_support(one, where=tuple(torch.cat([at[:1], at[:-1]]) for at in one.at.pairs.where)),
    ),
    "two kinds of pairs": lambda one: changed(one, pairs=with_support(one, where=one.at.pairs.where[:2])),
    "values of two kinds": lambda one: changed(one, pairs=replace(one.at.pairs, values=one.at.pairs.values[:2])),
    "a pair too far": lambda one: with_pair(one, one.at.pairs.count**2),
    "a pair before the first": lambda one: with_pair(one, -1),
    "fewer values": lambda one: changed(one, pairs=replace(one.at.pairs, values=tuple(v[1:] for v in values(one)))),
    "another count": lambda one: changed(one, pairs=with_support(one, count=one.at.pairs.count + 1)),
}
IN_CLUSTERS: dict[str, Callable[[CellProof], CellProof]] = {
    "labels without shares": lambda one: changed(one, pairs=replace(one.at.pairs, shares=None)),
    "shares without labels": lambda one: changed(one, pairs=replace(one.at.pairs, labels=None)),
    "a label too far": lambda one: changed(one, pairs=replace(one.at.pairs, labels=one.at.pairs.labels + 1)),
    "a negative label": lambda one: changed(one, pairs=replace(one.at.pairs, labels=one.at.pairs.labels * 0 - 1)),
    "too few labels": lambda one: changed(one, pairs=replace(one.at.pairs, labels=one.at.pairs.labels[1:])),
    "too few shares": lambda one: changed(one, pairs=replace(one.at.pairs, shares=one.at.pairs.shares[1:])),
}


def values(one: CellProof) -> tuple[torch.Tensor, ...]:
    return one.at.pairs.values


def with_pair(one: CellProof, place: int) -> CellProof:
    where = tuple(torch.cat([at[1:], at.new_tensor([place])]) for at in one.at.pairs.where)
    return changed(one, pairs=with_support(one, where=where))


@pytest.mark.parametrize(("name", "clustered"), [(n, False) for n in BROKEN] + [(n, True) for n in IN_CLUSTERS])
def test_a_proof_of_no_meaning_proves_nothing(name: str, clustered: bool) -> None:
    whole, W = proof(clustered)
    first, *rest = whole.cells
    assert clustered or all(map(len, first.at.pairs.where))
    broken = (BROKEN | IN_CLUSTERS)[name](first)
    assert first.fits(whole.X, C)
    assert not broken.fits(whole.X, C)
    assert replace(whole, cells=(broken, *rest)).bound(W) == math.inf
    assert whole.bound(W) < math.inf


def test_places_of_pairs_at_both_ends_are_allowed() -> None:
    whole, _ = proof()
    first = whole.cells[0]
    assert all(with_pair(first, place).fits(whole.X, C) for place in (0, first.at.pairs.count**2 - 1))


def test_a_cell_with_every_row_fixed_or_no_pairs_is_bounded() -> None:
    """One row and one output: the polar is |v|, and both halves of both signs prove it."""
    X, W = torch.tensor([[2.0]], dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    for clustered in (False, True):
        oracle = ProductBound(X, dense=0 if clustered else 5, clusters=1)
        cells = oracle.start(W).split(W, (0, 1), 0.1)
        assert all(not len(place.cell.free) for place in cells.places)
        whole = ProductProof(X, oracle.proofs(cells))
        assert len(cells.places) == 4
        assert 1 <= whole.bound(W) < math.inf


def test_without_starts_nothing_is_searched() -> None:
    whole, W = proof()
    assert len(whole.steepest(W).neurons) == 0
    found = replace(whole, X=whole.X, starts=8).steepest(W, above=0.0)
    assert len(found.neurons) > 0
    assert found.bracket.lower > 0
    assert found.bracket.upper == pytest.approx(whole.steepest(W).bracket.upper, rel=1e-12)


def test_seeds_and_the_threshold_are_handed_to_the_search() -> None:
    whole, W = proof()
    searching = replace(whole, starts=8)
    best = searching.steepest(W).neurons[:1]
    assert len(searching.steepest(W, above=1e9).neurons) < len(searching.steepest(W).neurons)
    assert any(torch.allclose(u, best[0], atol=1e-6) for u in searching.steepest(W, seeds=best).neurons)


def test_outputs_that_cells_do_not_know_are_not_bounded() -> None:
    whole, W = proof()
    assert whole.bound(W.expand(-1, 2)) == math.inf
    assert not covering(whole.cells, 2)
    assert replace(whole, cells=whole.cells[1:]).bound(W) == math.inf


@pytest.mark.parametrize("clustered", [False, True])
def test_witnesses_take_half_the_bytes_unless_numbers_leave_single_precision(clustered: bool) -> None:
    oracle, cells, _ = made(clustered)
    kept = oracle.proofs(cells)[0].at
    for at, number, place in ((kept, torch.float32, torch.int32), (kept.wide(), torch.float64, torch.int64)):
        numbers, labels = [getattr(at, name) for name in TENSORS] + [*at.pairs.values], [*at.pairs.where]
        if clustered:
            numbers, labels = [*numbers, at.pairs.shares], [*labels, at.pairs.labels]
        assert {part.dtype for part in numbers} == {number}
        assert {part.dtype for part in labels} == {place}
    for factor in (1e-60, 1e60):
        for name in ("slack", "omega"):
            far = replace(kept.wide(), **{name: getattr(kept.wide(), name) * factor})
            assert far.compact() is far


@pytest.mark.parametrize("clustered", [False, True])
def test_multipliers_come_back_from_their_witness(clustered: bool) -> None:
    X = torch.nn.functional.normalize(torch.cat([draw(9, 3), draw(9, 3) @ draw(3, 1, seed=2)], 1), dim=1)  # of rank 3
    scaled = Scaled.of(X)
    x = torch.from_numpy(scaled.x)
    for place, V in places(2, clustered):
        cell = replace(place.cell, X=x)
        at = multipliers(place)
        back, again = given_back(X, scaled, proof_of(X, scaled, cell, at), 2)
        assert back.fixed == cell.fixed
        torch.testing.assert_close(back.forms, cell.forms)
        C, D = (Majorant(one, V, weights).C for one, weights in ((cell, at), (back, again)))
        assert C is not None
        torch.testing.assert_close(D, C, rtol=1e-4, atol=1e-5 * float(C.abs().max()))
