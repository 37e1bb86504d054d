"""Fits that do not fit: refused before any work with the estimate, or ended in one line."""

import resource
from math import inf
from pathlib import Path

import numpy as np
import pytest
import torch

import bidual
from bidual.cli.app import _explain, main
from bidual.runtime import memory
from bidual.runtime.memory import group_bytes, is_out_of_memory
from helpers.children import Child, End
from helpers.cli_tools import run, write_table

ESTIMATORS = {
    "mlp": lambda: bidual.ConvexMLPRegressor(activation="gated_relu", n_gates=50),
    "linear cv": lambda: bidual.ConvexMLPRegressorCV(activation="gated_relu", n_gates=50),
    "cnn": lambda: bidual.ConvexCNNRegressor(activation="gated_relu", n_gates=50, image_shape=(1, 4), kernel_size=2),
    "parallel": lambda: bidual.ConvexParallelRegressor(activation="gated_relu", n_subnetworks=50),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_refuse_with_the_estimate(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).normal(size=(30, 4))
    monkeypatch.setattr(memory, "_machine_bytes", lambda: 5_000)
    with pytest.raises(ValueError, match=r"need [\d.]+ \w?B, and 5 kB are free; lower n_"):
        ESTIMATORS[name]().fit(X, X[:, 0])


def limited_fit(folder: Path, spare: int, estimate: int | None = None) -> End:
    """A fit with far too many gates in a process with ``spare`` bytes left, after one that loads all it needs."""
    table, out, gated = write_table(folder), folder / "m", ("--activation", "gated_relu", "--beta", "auto")
    fit = ["fit", str(table), "--target", "level", *gated, "--out", str(out), "--n-gates"]
    assert run(*fit, 5).code == 0
    out.unlink()

    def limited() -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + spare, -1))
        if estimate is not None:
            memory._machine_bytes = memory._limited_bytes = lambda: estimate
        main([*fit, "500000"])

    end = Child(folder, limited).end()
    assert not out.exists()
    return end


def test_a_limit_of_the_process_counts(tmp_path: Path) -> None:
    code, out, err = limited_fit(tmp_path, 2**27)
    assert (code, out) == (2, "")
    assert err.startswith("error: 40 samples with 1 outputs and n_gates=500000 would need ")
    assert err.count("\n") == 1


def test_memory_that_ends_in_the_middle_is_one_line(tmp_path: Path) -> None:
    code, out, err = limited_fit(tmp_path, 2**26, estimate=2**60)
    assert (code, out) == (2, "")
    assert err == "error: out of memory; use fewer samples, fewer patterns or fewer jobs.\n"


def test_every_kind_of_memory_error_is_known() -> None:
    for allocate in (lambda: torch.empty(10**15), lambda: np.empty(10**15)):
        with pytest.raises((RuntimeError, MemoryError)) as caught:
            allocate()
        assert is_out_of_memory(caught.value)
        assert _explain(caught.value) == "out of memory; use fewer samples, fewer patterns or fewer jobs."
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not is_out_of_memory(ValueError("out of memory"))


def write(root: Path, files: dict[str, object]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    return root


def test_a_container_of_either_version_counts(tmp_path: Path) -> None:
    new = {
        "proc/self/cgroup": "0::/job/step",
        "sys/fs/cgroup/job/step/memory.max": "max",
        "sys/fs/cgroup/job/memory.max": 1000,
        "sys/fs/cgroup/job/memory.current": 700,
        "sys/fs/cgroup/job/memory.stat": "anon 500\ninactive_file 200",
    }
    assert group_bytes(write(tmp_path / "new", new)) == 500
    old = {
        "proc/self/cgroup": "9:cpu:/elsewhere\n4:memory:/job",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": 2**63 - 4096,
        "sys/fs/cgroup/memory/job/memory.limit_in_bytes": 1000,
        "sys/fs/cgroup/memory/job/memory.usage_in_bytes": 900,
    }
    assert group_bytes(write(tmp_path / "old", old)) == 100
    assert group_bytes(write(tmp_path / "none", {"proc/self/cgroup": "0::/"})) == inf
    assert group_bytes(tmp_path / "nothing") == inf


def test_the_command_says_the_estimate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_machine_bytes", lambda: 5_000)
    table, gated = write_table(tmp_path), ("--activation", "gated_relu")
    done = run("fit", table, "--target", "level", "--beta", "auto", *gated, "--out", tmp_path / "m")
    assert done.code == 2
    assert "5 kB are free" in done.err
    assert done.err.count("\n") == 1
