"""All experiments with several workers: as tasks where they need nobody, alone where they measure time."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from joblib import parallel_config

from bidual.cli.app import main
from bidual.papers.reproduction import ROWS, find, read, reproduce_all, several
from bidual.papers.reproduction.catalogue import DIVIDED, TIMED
from bidual.papers.reproduction.several import Attempt

SETTINGS: dict[str, Any] = {"data_dir": None, "download": False, "device": "cpu", "workers": 2, "force": False}


def attempts(monkeypatch: pytest.MonkeyPatch, lacking: str = "") -> list[tuple[str, int]]:
    """Experiments as they are begun, with their workers; none of them runs."""
    begun: list[tuple[str, int]] = []

    def attempt(name: str, scale: str, out: Path, settings: dict[str, Any], say: object = None) -> Attempt:
        begun.append((find(name).row, settings["workers"]))
        return Attempt(1.0, {}, "lacks its data" if find(name).row == lacking else None)

    monkeypatch.setattr(several, "attempt", attempt)
    return begun


def test_what_measures_time_runs_alone_and_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    begun, said = attempts(monkeypatch), []
    with parallel_config("threading"):
        reproduce_all([find(row) for row in ROWS], "smoke", tmp_path, SETTINGS, said.append)
    tasks, alone = [row for row, workers in begun if workers == 1], [row for row, workers in begun if workers == 2]
    assert set(tasks) == set(ROWS) - TIMED - DIVIDED
    assert set(alone[: len(DIVIDED)]) == DIVIDED
    assert set(alone[len(DIVIDED) :]) == TIMED
    assert begun[len(tasks)][1] == 2
    assert said[0].endswith("what measures time, or divides itself, follows alone")
    assert len(said) == 1 + len(ROWS)


def test_with_one_worker_all_run_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    begun = attempts(monkeypatch)
    reproduce_all([find("R4"), find("R9")], "smoke", tmp_path, SETTINGS | {"workers": 1})
    assert begun == [("R4", 1), ("R9", 1)]


def test_what_cannot_run_is_named_in_the_order_of_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    attempts(monkeypatch, lacking="R15")
    with parallel_config("threading"):
        found = reproduce_all([find("R9"), find("R15")], "smoke", tmp_path, SETTINGS)
    assert found.failed == {"pr_figure_7": "pr_figure_7: lacks its data"}


def test_a_task_s_result_is_that_of_one_process(tmp_path: Path) -> None:
    with parallel_config("threading"):
        (both,) = reproduce_all([find("R9")], "smoke", tmp_path / "both", SETTINGS).done
    (alone,) = reproduce_all([find("R9")], "smoke", tmp_path / "alone", SETTINGS | {"workers": 1}).done
    assert _without_seconds(both.data) == _without_seconds(alone.data)
    assert both.claims[0].paper == alone.claims[0].paper


@pytest.mark.slow
def test_results_in_processes_are_those_of_one_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = [find("R4"), find("R6"), find("R9")]
    monkeypatch.setattr(import_module("bidual.papers.command"), "everything", lambda: chosen)
    shown = []
    for name, jobs in (("serial", "1"), ("both", "2")):
        with pytest.raises(SystemExit) as leave:
            main(["reproduce", "all", "--scale", "smoke", "--out", str(tmp_path / name), "--jobs", jobs, "--json"])
        assert leave.value.code == 0
        shown.append(capsys.readouterr())
    assert [line.split()[0] for line in shown[0].err.splitlines()] == ["R4", "R6", "R9"]
    assert shown[1].err.splitlines()[-1].startswith("R4 ")
    for name in ("cp_figure_1", "cp_figure_3", "pr_figure_1"):
        one, other = (read(tmp_path / folder / "smoke" / name) for folder in ("serial", "both"))
        assert one is not None
        assert other is not None
        assert [claim.holds for claim in one.claims] == [claim.holds for claim in other.claims]
        assert _without_seconds(one.data) == _without_seconds(other.data)
        assert (other.folder / "figure.svg").is_file()
    assert [result["row"] for result in json.loads(shown[1].out)["results"]] == ["R4", "R6", "R9"]


def _without_seconds(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _without_seconds(value) for key, value in data.items() if "seconds" not in key}
    return [_without_seconds(item) for item in data] if isinstance(data, list) else data


def test_files_of_another_machine_are_brought_here(tmp_path: Path) -> None:
    folder = tmp_path / "smoke" / "pr_figure_1"
    files = {"figure.png": b"p", "figure.svg": b"s", "result.json": b"{}"}
    several._bring_home(Attempt(1.0, files), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files
    several._bring_home(Attempt(1.0, files | {"figure.png": b"new"}), folder)
    assert (folder / "figure.png").read_bytes() == b"new"
