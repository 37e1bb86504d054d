"""The scripts beside the package that measure it, at small sizes."""

import json

import pytest

import floor
import flops
import scaling
import scaling_report
from gated_problems import Case


def test_floor_writes_both_tables(tmp_path, capsys):
    floor.main(["--quick", "--out", str(tmp_path)])
    found = json.loads((tmp_path / "floor.json").read_text())
    assert {row["solver"] for row in found["steps"]} == {"kernel_admm", "eta_newton", "q_interior_point"}
    assert all(row["share"] > 0 for row in found["products"])
    assert all(row["ratio"] > 1 for row in found["steps"])
    assert (tmp_path / "floor.md").read_text().endswith(capsys.readouterr().out[:-1])


def test_operations_by_formula():
    case = Case(10, 2, 3, 0.1, 5)
    assert flops.product_flops(case) == 4 * 10 * 2 * 3 * 5
    assert flops.admm_work(case, 3).single == flops.product_flops(case) + 2 * 10**2 * 5
    assert flops.product_bytes(case, 8) == 2 * flops.product_bytes(case, 4)


def test_a_point_of_the_scaling_run_is_a_process_of_its_own():
    sweep = scaling.SWEEPS[3]
    found = scaling.point(sweep, Case(40, 3, 5, 0.1, 7, "frobenius"), 1)
    assert (found.size, found.error) == (7, "")
    assert found.reached
    assert found.seconds > 0


def test_exponents_are_fitted_to_the_upper_half_without_failures(tmp_path):
    (sweep,) = scaling.SWEEPS[:1]
    sizes = (1, 10, 20, 50, 100)
    points = [scaling_report.Point("n", n, sweep.base, 3.0 * n**1.5, 2.0 * n, 1e-5) for n in sizes]
    points[:1] = [scaling_report.Point("n", 1, sweep.base, 1e5, 1e5, 1e-5)]
    points[3] = scaling_report.Point("n", 50, sweep.base, error="gone")
    assert scaling_report.fit(points, "seconds") == pytest.approx((1.5, 3.0))
    scaling.write(tmp_path, [sweep], points, "text")
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "scaling.json").read_text())["fits"]["n"]["megabytes"] == pytest.approx([1.0, 2.0])
    assert any("gone" in line for line in scaling_report.table([sweep], points))
