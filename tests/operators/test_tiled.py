"""The gated operator on samples that stay on disk."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from bidual.gauges import Nuclear
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.operators import GatedOperator
from bidual.operators.tiled import MappedRows, TiledOperator
from bidual.patterns import activations
from bidual.problems.problem import Problem
from bidual.problems.solution import Limits
from bidual.solvers.plan import plan, solve_auto
from bidual.testing import check_operator

GROWTH = """
import re, sys, torch
from bidual.operators.tiled import MappedRows, TiledOperator
torch.set_num_threads(1)
def megabytes(name):
    return int(re.search(name + r":\\s+(\\d+) kB", open("/proc/self/status").read())[1]) / 1e3
operator = TiledOperator(MappedRows.open(sys.argv[1]), torch.randn(50, 16, dtype=torch.float64), 1, tile_bytes=2**23)
Z, V = torch.randn(operator.block_shape), torch.randn(operator.output_shape)
small = operator.samples.array[:100]
TiledOperator(MappedRows(small), operator.gates, 1).to(torch.float64).adjoint(V[:100].double())
open("/proc/self/clear_refs", "w").write("5")  # forgets the peak so far
before = megabytes("VmRSS")
for dtype in (torch.float32, torch.float64):
    operator.to(dtype).forward(Z.to(dtype))
    operator.to(dtype).adjoint(V.to(dtype))
operator.magnitude
print(megabytes("VmHWM") - before)
"""


@pytest.fixture
def samples(tmp_path):
    X = np.random.default_rng(0).standard_normal((57, 4)) * [1, 10, 0.1, 1] + [0, 5, 0, 0]
    np.save(tmp_path / "X.npy", X)
    return tmp_path / "X.npy", X


@pytest.mark.parametrize("c", [1, 3])
@pytest.mark.parametrize("kept_bytes", [0, 2**20])
def test_it_is_the_operator_in_memory(samples, kept_bytes, c):
    path, X = samples
    rng = torch.Generator().manual_seed(0)
    gates = torch.randn(5, 11, generator=rng, dtype=torch.float64)
    mapped = MappedRows.open(path, centre=torch.tensor(X.mean(0)), scale=torch.tensor(X.std(0)), constant=True)
    tiled = TiledOperator(mapped, gates, c, torch.float64, tile_bytes=3000, kept_bytes=kept_bytes)
    inner = torch.tensor(np.column_stack([(X - X.mean(0)) / X.std(0), np.ones(57)]))
    plain = GatedOperator(inner, activations(inner, gates), c)
    check_operator(tiled, rng)
    Z = torch.randn(tiled.block_shape, generator=rng, dtype=torch.float64)
    V = torch.randn(tiled.output_shape, generator=rng, dtype=torch.float64)
    torch.testing.assert_close(tiled.forward(Z), plain.forward(Z), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(tiled.adjoint(V), plain.adjoint(V), rtol=1e-12, atol=1e-12)
    assert tiled.magnitude == pytest.approx(plain.magnitude)


def test_single_precision_has_the_same_patterns_and_is_certified_in_double(samples):
    path, X = samples
    rng = torch.Generator().manual_seed(0)
    gates = torch.randn(4, 9, generator=rng, dtype=torch.float64)
    tiled = TiledOperator(MappedRows.open(path), gates, 1, tile_bytes=2000)
    Y = torch.tensor(np.maximum(X @ gates[:, :1].numpy(), 0))
    problem = Problem(tiled, Datafit(Squared(), Y, None, True), Nuclear(), 1.0).to(torch.float32)
    problem = problem.with_beta(0.1 * problem.beta_max)
    done = solve_auto(problem, Limits(1e-3))
    inner = torch.tensor(X)
    plain = Problem(
        GatedOperator(inner, activations(inner, gates), 1), problem.datafit.to(torch.float64), Nuclear(), problem.beta
    )
    assert done.certificate.relative_gap <= 1e-3
    assert done.certificate.recheck(plain)


def test_many_rows_on_disk_are_given_to_active_neurons_first():
    operator = TiledOperator(MappedRows(np.ones((13_000, 2), np.float32)), torch.ones(2, 3), 1)
    problem = Problem(operator, Datafit(Squared(), torch.ones(13_000, 1)), Nuclear(), 1.0)
    assert [stage.solver.name for stage in plan(problem, Limits(1e-2))] == ["active_neurons", "fista", "primal_dual"]


def test_columns_are_chosen_and_constant_ones_vanish():
    array = np.column_stack([np.arange(6.0), np.full(6, 7.0), np.arange(6.0) ** 2])
    rows = MappedRows(array, np.array([0, 1]), torch.tensor([1.0, 7.0]), torch.tensor([2.0, 0.0]))
    expected = torch.tensor([[0.5, 0.0], [1.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(rows.tile(slice(2, 4), torch.float64), expected)
    assert rows.width == 2


def test_what_is_no_array_of_numbers_is_refused(tmp_path):
    (tmp_path / "X.npy").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"is not a \.npy file"):
        MappedRows.open(tmp_path / "X.npy")
    with pytest.raises(ValueError, match="rows of real numbers"):
        MappedRows(np.array([["a"]]))
    with pytest.raises(ValueError, match=r"one row per feature \(3\), got 2"):
        TiledOperator(MappedRows(np.zeros((5, 3))), torch.zeros(2, 4), 1)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peaks of memory are read from /proc")
def test_memory_is_bounded_by_tiles(tmp_path):
    """Products and the certificate's float64 on an array of 80 MB add at most a third of that."""
    X = np.lib.format.open_memmap(tmp_path / "X.npy", mode="w+", dtype=np.float32, shape=(400_000, 50))
    block = np.random.default_rng(0).standard_normal((20_000, 50), dtype=np.float32)
    for k in range(20):
        X[20_000 * k : 20_000 * (k + 1)] = block
    X.flush()
    done = subprocess.run(
        [sys.executable, "-c", GROWTH, tmp_path / "X.npy"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 27
