"""Questions with multipliers: their bound is proved, inherited by halves, and its slopes are right."""

from dataclasses import replace
from math import inf, isfinite

import pytest
import torch
from torch import Tensor

from bidual.polar.products.oracle import ProductBound, minimised
from bidual.polar.subnetworks.descent import AskedBranches
from bidual.polar.subnetworks.pricing import ExactParallel
from bidual.polar.subnetworks.search import ParallelSearch
from bidual.polar.subnetworks.witness import BranchProof, ParallelProof
from bidual.types import Matrix
from helpers.draws import normal


def asked(X: Tensor, v: Tensor, steps: int = 30, deep: bool = False) -> tuple[ProductBound, AskedBranches, Matrix]:
    """Multipliers after a short descent."""
    bound = ProductBound(X)
    W = bound.lengths[:, None] * v
    W = W / W.norm()
    cells = AskedBranches.start(bound, W, deep)
    return bound, minimised(cells, W, 0.03 * max(cells.bounds(W)), steps), W


def proofs(bound: ProductBound, cells: AskedBranches) -> tuple[BranchProof, ...]:
    return tuple(one.proof(bound, 1.0) for one in cells.asked)


def halved(cells: AskedBranches, W: Matrix, rank: int = 0) -> AskedBranches:
    """Every branch by the row whose entry has this rank, then every cell of all questions by rows of their own."""
    row = int(W[:, 0].abs().argsort(descending=True)[rank])
    parts = []
    for one in [half for whole in cells.asked for half in whole.halved(W, row)]:
        first, second = (c.split(q, [0], 0.1) for c, q in zip(one.cells, one.questions(W), strict=True))
        parts.append(replace(one, first=first, second=second))
    return replace(cells, asked=tuple(parts))


@pytest.mark.parametrize("seed", range(2))
def test_never_below_the_steepest_of_all_sub_networks(seed: int) -> None:
    """At the dual point that the multipliers were found for, and at others."""
    X, v = normal(5, 2, seed=seed), normal(5, 1, seed=seed + 9)
    bound, cells, W = asked(X, v)
    exact = [(V, ExactParallel(X, 2).steepest(V).bracket.lower) for V in (v, -1e3 * v, normal(5, 1, seed=seed + 20))]
    for state in (cells, halved(cells, W), halved(halved(cells, W), W, 1)):
        oracle = ParallelProof(X, 2, proofs(bound, state))
        assert all(lower <= oracle.steepest(V).bracket.upper < inf for V, lower in exact)


@pytest.mark.parametrize("widths", [(3,), (2, 2)])
def test_never_below_what_a_search_finds(widths: tuple[int, ...]) -> None:
    X, v = normal(30, 4), normal(30, 1, seed=1)
    bound, cells, _ = asked(X, v, steps=60, deep=len(widths) > 1)
    upper = ParallelProof(X, widths, proofs(bound, cells)).steepest(v).bracket.upper
    lower = ParallelSearch(X, widths, starts=200).steepest(v).bracket.lower
    assert lower <= upper <= 3 * lower


def test_a_dual_point_of_one_sign_has_the_maximum_of_two_layers() -> None:
    X, v = normal(12, 3), normal(12, 1, seed=1).abs()
    bound, cells, _ = asked(X, v, steps=100)
    upper = ParallelProof(X, 4, proofs(bound, cells)).steepest(v).bracket.upper
    assert 2 * ProductBound(X).steepest(v).bracket.lower <= upper <= 2.1 * ProductBound(X).steepest(v).bracket.upper


@pytest.mark.parametrize("seed", range(3))
def test_halves_begin_with_the_bound_of_the_whole(seed: int) -> None:
    X, v = normal(15, 3, seed=seed), normal(15, 1, seed=seed + 9)
    _, cells, W = asked(X, v)
    before = max(cells.bounds(W))
    once = halved(cells, W)
    assert max(once.bounds(W)) <= before * (1 + 1e-3)
    assert max(halved(once, W, 1).bounds(W)) <= before * (1 + 1e-3)
    assert len(once.asked) == 4
    assert once.is_split
    assert not cells.is_split


def test_slopes_are_those_of_differences() -> None:
    X, v = normal(7, 2), normal(7, 1, seed=1)
    _, cells, W = asked(X, v, steps=5)
    cells = halved(cells, W)
    vector, soft = cells.vector, cells.soft()
    found = soft(W.numpy(), vector.numpy(), 0.05)
    assert found is not None
    on_W, on_vector = (torch.from_numpy(part) for part in found[1:])
    for seed in range(3):
        move_W, move = normal(7, 1, seed=seed + 5), normal(len(vector), 1, seed=seed + 6)[:, 0]
        ends = [soft((W + s * move_W).numpy(), (vector + s * move).numpy(), 0.05) for s in (1e-6, -1e-6)]
        assert ends[0] is not None
        assert ends[1] is not None
        slope = float((on_W * move_W).sum() + on_vector @ move)
        assert (ends[0][0] - ends[1][0]) / 2e-6 == pytest.approx(slope, rel=1e-4)


def test_parts_are_taken_and_put_back() -> None:
    X, v = normal(8, 2), normal(8, 1, seed=1)
    _, cells, W = asked(X, v, steps=0)
    cells = halved(cells, W)
    part = cells.only([1, 3])
    back = cells.replaced([1, 3], part.at(part.vector + 1))
    changed = [not torch.equal(a.raw, b.raw) for a, b in zip(back.asked, cells.asked, strict=True)]
    assert changed == [False, True, False, True]
    assert torch.equal(cells.at(cells.vector).vector, cells.vector)


def test_deep_sub_networks_are_not_halved_by_their_last_layer() -> None:
    X, v = normal(12, 2), normal(12, 1, seed=1)
    _, cells, W = asked(X, v, deep=True)
    split = cells.split(W, [0, 1], 0.1)
    assert [one.branch.rows for one in split.asked] == [(), ()]
    assert split.is_split


def test_broken_witnesses_prove_nothing() -> None:
    X, v = normal(8, 2), normal(8, 1, seed=1)
    bound, cells, W = asked(X, v)
    whole, parts = proofs(bound, cells), proofs(bound, halved(cells, W))

    def upper(branches: tuple, widths: int | tuple[int, ...] = 2) -> float:  # type: ignore[type-arg]
        return ParallelProof(X, widths, branches).steepest(v).bracket.upper

    assert isfinite(upper(whole))
    assert isfinite(upper(parts))
    assert upper(whole, (2, 2)) < inf
    assert upper(parts, (2, 2)) == inf  # decided rows are for three layers
    one = whole[0]
    wrong = [
        whole[:1],
        (),
        parts[1:],
        (parts[0], *parts[2:]),
        (*whole[:1], object()),
        (*whole[:1], one.first[0]),
        (one, one),
        (one, replace(whole[1], side=2)),
        (one, replace(whole[1], weights=1.5 + 0 * one.weights)),
        (one, replace(whole[1], weights=one.weights[1:])),
        (one, replace(whole[1], rows=(0,), states=())),
        (one, replace(whole[1], rows=(99,), states=(1,))),
        (one, replace(whole[1], first=())),
        (one, replace(whole[1], second=(replace(one.first[0], signs=(-1.0,)),))),
        (one, replace(whole[1], second=(replace(one.first[0], signs=None),))),
    ]
    assert [upper(branches) for branches in wrong] == [inf] * len(wrong)
    assert ParallelProof(X, 2, whole).steepest(normal(8, 2)).bracket.upper == inf  # two outputs
