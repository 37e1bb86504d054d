import math

import pytest
import torch

from bidual.papers.experiments import cp_table_1
from bidual.papers.experiments.cp_table_1 import Curve, Point, make_data
from bidual.polar import Faces
from bidual.problems.solution import Limits
from bidual.solvers.conic.cone_program import solve_cone_program
from bidual.solvers.driver import solve
from bidual.training.copositive import relax
from bidual.training.relu.column_generation import ColumnGeneration

SMALL = {
    ("scalar", 2): (6, 9),
    ("vector", 2): (6, 9),
    ("relaxation", 2): (6, 9),
    ("scalar", 3): (4, 6),
    ("vector", 3): (4, 6),
    ("relaxation", 3): (4, 6),
    ("scalar", 0): (5, 8),
    ("vector", 0): (3, 4),
    ("relaxation", 0): (5, 8),
}


@pytest.fixture(scope="module")
def curves() -> list[Curve]:
    return cp_table_1.run(SMALL, seeds=(0,), longest=math.inf)


def test_rows_are_complete(curves: list[Curve]) -> None:
    assert [(curve.method, curve.rank) for curve in curves] == list(SMALL)
    for curve, sizes in zip(curves, SMALL.values(), strict=True):
        assert [point.n for point in curve.points] == list(sizes)
        assert curve.ended == ""
        assert math.isfinite(curve.slope)
        assert all(point.seconds > 0 for point in curve.points)
        assert curve.method != "vector" or all(point.gap <= 1e-6 for point in curve.points)


def test_table_and_figure(curves: list[Curve]) -> None:
    lines = cp_table_1.table(curves).splitlines()
    assert len(lines) == 2 + 9
    assert {line.count("|") for line in lines} == {7}
    assert cp_table_1.draw(curves).startswith(b"\x89PNG")


def test_slope_and_printed_exponent() -> None:
    points = tuple(Point(n, 1e-3 * n**2.5, math.nan) for n in (10, 20, 40, 80))
    assert Curve("vector", 3, points, "").slope == pytest.approx(2.5)
    assert Curve("vector", 3, points, "").printed == "12"
    assert math.isnan(Curve("scalar", 2, points[:1], "").slope)


def test_a_curve_ends_where_the_next_point_would_be_too_long() -> None:
    (curve,) = cp_table_1.run({("relaxation", 2): (6, 8, 10)}, seeds=(0,), longest=0.0)
    assert len(curve.points) == 1
    assert curve.ended.startswith("n = 8 would take about")


def test_a_refusal_ends_a_curve() -> None:
    (curve,) = cp_table_1.run({("relaxation", 3): (6, 600)}, seeds=(0,), longest=math.inf)
    assert [point.n for point in curve.points] == [6]
    assert "use the form 'joint'" in curve.ended


def test_the_programs_of_one_row_agree_on_white_data() -> None:
    """One output: CP (10), the relaxation (20) and training over all patterns have one value."""
    problem = make_data(4, 0, 1, seed=0)
    cone = solve_cone_program(problem, torch.ones(1, 4, dtype=torch.bool)).objective
    exact = solve(problem, ColumnGeneration(Faces(problem.X)), Limits(1e-7)).certificate
    assert cone == pytest.approx(exact.primal, rel=1e-5)
    assert relax(problem, "spike_free").dual == pytest.approx(exact.primal, rel=1e-5)
