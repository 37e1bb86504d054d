"""Sweeps on a Dask cluster of two processes: the same results as here, also when one of them is killed."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from joblib import parallel_config

import bidual
from bidual.cli.app import main
from bidual.papers.uci.study import Row
from bidual.runtime import jobs
from bidual.runtime.jobs import Task, run_all, scheduler
from helpers.sweep_tasks import cross_validated, die, square, study, write_sets

distributed = pytest.importorskip("dask.distributed", reason="Dask is not installed")
dask = pytest.importorskip("dask")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
    ) as two_workers:
        yield two_workers.scheduler_address


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sets(tmp_path_factory.mktemp("sets"))


@pytest.fixture(scope="module")
def rows(folder: Path) -> list[Row]:
    return study(folder)


def test_cross_validation_is_the_same_as_here(address: str) -> None:
    serial = cross_validated()
    with scheduler(address):
        assert cross_validated() == serial
    with distributed.Client(address, set_as_default=False) as client, parallel_config("dask", client=client):
        assert cross_validated() == serial


def test_the_command_fits_folds_there(address: str, folder: Path, tmp_path: Path) -> None:
    words = ["fit", folder / "one.csv", "--target", "label", "--activation", "gated_relu", "--n-gates", 8, "--quiet"]
    for name, more in (("here", []), ("there", ["--scheduler", address])):
        with pytest.raises(SystemExit) as leave:
            main([*map(str, words), "--out", str(tmp_path / name), *more])
        assert leave.value.code == 0
    here, there = (bidual.load(tmp_path / name) for name in ("here", "there"))
    assert here.get_params() == there.get_params()
    assert (here.cv_scores_ == there.cv_scores_).all()
    assert here.beta_ == there.beta_


def test_the_study_is_the_same_and_survives_the_loss_of_a_worker(address: str, folder: Path, rows: list[Row]) -> None:
    with distributed.Client(address, set_as_default=False) as client:
        before = client.run(os.getpid)
        told: list[Row] = []

        def kill_one(row: Row) -> None:
            told.append(row)
            if len(told) == 3:
                os.kill(min(before.values()), signal.SIGKILL)

        with scheduler(address):
            assert study(folder, kill_one) == rows
        assert len(told) == len(rows)
        client.wait_for_workers(2, timeout=60)
        assert min(before.values()) not in client.run(os.getpid).values()


def test_the_study_is_the_same_as_here(address: str, folder: Path, rows: list[Row]) -> None:
    with scheduler(address):
        assert study(folder) == rows


@pytest.mark.slow
def test_a_task_that_kills_its_workers_is_an_error() -> None:
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as one_worker,
        scheduler(one_worker.scheduler_address),
    ):
        assert run_all([Task(square, (k,)) for k in range(3)]) == [0, 1, 4]
        with pytest.raises(ChildProcessError, match="lost with 1 worker"):
            run_all([Task(die)])


@pytest.mark.parametrize("wrong", ["tcp://127.0.0.1:9", "nonsense://x", "127.0.0.1"])
def test_an_address_that_does_not_answer(
    wrong: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(jobs, "_PATIENCE", 0.3)
    with pytest.raises(SystemExit) as leave:
        main(["reproduce", "R4", "--scale", "smoke", "--out", str(tmp_path), "--scheduler", wrong])
    assert leave.value.code == 2
    assert capsys.readouterr().err.startswith(f"error: no Dask scheduler answers at '{wrong}'; give one that runs")


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask.distributed", None)
    with pytest.raises(ImportError, match=r"install bidual\[dask\]"), scheduler("tcp://127.0.0.1:8786"):
        pass


def test_a_cluster_without_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_PATIENCE", 1.0)
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=":0") as empty,
        pytest.raises(ConnectionError, match="has no workers; start some with: dask worker tcp://"),
        scheduler(empty.scheduler_address),
    ):
        pass
