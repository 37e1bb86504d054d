import pytest

from bidual.papers.experiments import cp_figure_1, cp_figure_3
from bidual.papers.experiments.cp_figure_3 import SpiralRow


def test_figure_1_descent_with_few_neurons_stays_above_the_certified_optimum() -> None:
    result = cp_figure_1.run(neurons=(10,), trials=2, epochs=4000, frank_wolfe_steps=200)
    assert result.gap <= 1e-6
    assert float(result.descent[10].final.min()) > 1.02 * result.optimum
    assert all(record.relative_gap > 0.05 for record in result.frank_wolfe)
    assert cp_figure_1.draw(result).startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def spiral() -> list[SpiralRow]:
    return cp_figure_3.run(betas=(1e-1, 1.0), n=24, n_neurons=60, epochs=600, iterations=(50, 200))


def test_figure_3_nothing_falls_below_the_certified_bound(spiral: list[SpiralRow]) -> None:
    for row in spiral:
        assert row.gap <= 1e-6
        for found in (row.gradient_descent, row.rounded, row.cutting_planes, *row.algorithm_1.values()):
            assert found.value >= row.lower_bound
    assert spiral[-1].excess < 0.05


def test_figure_3_the_relaxation_is_the_optimum_in_the_plane(spiral: list[SpiralRow]) -> None:
    for row in spiral:
        assert row.relaxation.value <= row.optimum
        assert row.looseness <= 1e-5
        assert row.above(row.rounded) <= 1e-4
        assert row.above(row.cutting_planes) <= 2e-6


def test_figure_3_algorithm_1_is_slow_even_at_the_optimal_budget(spiral: list[SpiralRow]) -> None:
    for row in spiral:
        few, many = row.algorithm_1[50], row.algorithm_1[200]
        assert row.above(many) < row.above(few)
        assert row.above(many) > 1e-4


def test_figure_3_table_and_figure(spiral: list[SpiralRow]) -> None:
    lines = cp_figure_3.table(spiral).splitlines()
    assert len(lines) == 2 + 2
    assert {line.count("|") for line in lines} == {10}
    assert cp_figure_3.draw(spiral).startswith(b"\x89PNG")
