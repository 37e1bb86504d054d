import pytest

from bidual.papers.experiments import bm_figure_2
from bidual.papers.experiments.bm_figure_2 import Cell


@pytest.fixture(scope="module")
def cells() -> tuple[Cell, ...]:
    return bm_figure_2.run(ns=(3,), betas=(1e-4, 1e-1), factors=(1, 2), seeds=(0,), epochs=40, preconditioned_steps=20)


def test_every_cell_has_a_certified_optimum_that_no_training_beats(cells: tuple[Cell, ...]) -> None:
    assert len(cells) == 2 * 2 * 3
    for cell in cells:
        assert cell.optimum.relative_gap <= 1e-8
        assert -1e-8 <= cell.gap <= cell.certified + 1e-8


def test_escape_closes_the_gap_and_descent_leaves_one(cells: tuple[Cell, ...]) -> None:
    gaps = {method: [cell.gap for cell in cells if cell.method == method] for method in bm_figure_2.TITLES}
    assert max(gaps["escape"]) <= 1e-6
    assert all(cell.certified <= 1e-4 for cell in cells if cell.method == "escape")
    assert max(gaps["descent"]) > 1e-2


def test_the_bound_of_the_paper_fails_short_of_stationarity(cells: tuple[Cell, ...]) -> None:
    """Where the zero network is optimal, (20) is zero as soon as the residual is small enough, whatever the weights."""
    failing = [cell for cell in cells if cell.bound_fails]
    assert failing
    assert all(cell.certified >= cell.gap for cell in failing)


def test_repeated_patterns_are_dropped() -> None:
    counts = [bm_figure_2.make_problem(n, 1e-2).operator.block_shape[0] for n in (3, 45, 150)]
    assert counts[0] <= 6
    assert counts == sorted(counts)
    assert counts[-1] < 100


def test_figure_and_table_show_every_method(cells: tuple[Cell, ...]) -> None:
    assert bm_figure_2.draw(cells).startswith(b"\x89PNG")
    assert bm_figure_2.table(cells).count("\n") == 1 + len({(c.optimum.n, c.optimum.beta, c.method) for c in cells})
