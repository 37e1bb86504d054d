"""The benchmark of distributed fits, at a small size and on one rank."""

import subprocess

import numpy as np
import pytest

import distributed_fit as benchmark
from bidual.distributed import Ranks


def test_a_fit_from_a_file_is_certified(tmp_path):
    benchmark.write_data(tmp_path, 600, 6)
    for solver in benchmark.SOLVERS:
        found = benchmark.work(benchmark.Job("fit", 600, 1, solver, 6, 12), tmp_path, Ranks())
        assert found["status"] == "CERTIFIED"
        assert 0 <= found["gap"] <= benchmark.TOL
        assert found["primal"] >= found["dual"]
        assert f"gap {found['gap']:.1e}" in benchmark.line(found)
    assert np.load(tmp_path / "X.npy", mmap_mode="r").dtype == np.float32


def test_products_are_timed_and_failures_kept(tmp_path, monkeypatch):
    benchmark.write_data(tmp_path, 50, 6)
    found = benchmark.work(benchmark.Job("strong", 50, 1, "", 6, 12), tmp_path, Ranks())
    assert 0 < found["seconds"] <= found["median"]
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 3))
    assert "exit code 3" in benchmark.line(benchmark.launch("a script", benchmark.jobs(True, None)[0], tmp_path))


def test_work_besides_products_is_timed():
    found = benchmark.own_work(100)
    assert [(row["loss"], row["intercept"]) for row in found][::3] == [("squared", False), ("logistic", True)]
    assert all(row["nanoseconds_per_row"] > 0 for row in found)


@pytest.mark.parametrize("quick", [False, True])
def test_the_fit_of_a_million_rows_is_among_the_jobs(quick):
    sizes = {job.rows for job in benchmark.jobs(quick, "fit")}
    assert sizes == ({4000} if quick else {1_000_000})
