"""All published results at the smallest scale, through the command line, kept and resumed."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from bidual import report
from bidual.cli.app import main
from bidual.io.datasets import ImageData
from bidual.papers.experiments import (
    bm_figure_6,
    cp_figure_1,
    cp_figure_3,
    cp_figure_4,
    pr_figure_1,
    stage_costs,
    staged_accuracy,
)
from bidual.papers.experiments.stage_costs import Measurement
from bidual.papers.experiments.staged_accuracy import Plan, StagedRow, grow
from bidual.papers.reproduction import ROWS, Claim, Context, Experiment, find, read, reproduce
from bidual.papers.reproduction.page import page, write_page


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All results. Steps of BM Fig. 6 are timed here, and once; test_bm_figure_6.py does it in a process of its own.

    The two longest are shorter still: nothing here asks how good their numbers are.
    """
    folder = tmp_path_factory.mktemp("reproduction") / "out"
    words = ["reproduce", "all", "--scale", "smoke", "--out", str(folder), "--page", str(folder.parent / "page.md")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage_costs, "_LEAST", 0.0)
        patch.setattr(bm_figure_6, "cost_of", Measurement.run)
        spiral = cp_figure_3.SETTINGS["smoke"] | {"n": 12, "epochs": 100, "iterations": (10, 30)}  # type: ignore[operator]
        patch.setitem(cp_figure_3.SETTINGS, "smoke", spiral)  # type: ignore[index]
        images, multiples, per_class = cp_figure_4.SETTINGS["smoke"]
        patch.setitem(cp_figure_4.SETTINGS, "smoke", (replace(images, max_time=0.2), multiples, per_class))  # type: ignore[index]
        with pytest.raises(SystemExit) as leave:
            main(words)
    assert leave.value.code == 0
    return folder


def results(out: Path) -> Iterator[dict[str, Any]]:
    for name in ROWS.values():
        yield json.loads((out / "smoke" / name / "result.json").read_text(), parse_constant=_refuse)


def _refuse(text: str) -> None:
    raise AssertionError(f"{text} is not JSON")


def test_every_row_is_there() -> None:
    assert [f"R{k}" for k in range(1, 16)] == [row for row in ROWS if row.startswith("R")]
    for row, name in ROWS.items():
        experiment = find(row)
        assert (experiment.row, experiment.name) == (row, name)
        assert find(name.upper()) is experiment


def test_every_result_states_paper_ours_and_circumstances(out: Path) -> None:
    for result in results(out):
        assert result["claims"], result["name"]
        for claim in result["claims"]:
            assert claim["paper"]
            assert claim["ours"]
            assert isinstance(claim["holds"], bool)
        assert result["machine"]["cores"] >= 1
        assert result["machine"]["torch"]
        assert result["seconds"] > 0
        assert isinstance(result["seed"], int)
        assert result["configuration"] is not None
        assert result["data"]
        assert "|" in result["table"]


def test_all_take_less_than_five_minutes(out: Path) -> None:
    assert sum(result["seconds"] for result in results(out)) < 300


def test_a_report_of_all_has_each_of_them_once(out: Path) -> None:
    assert len(report(out / "smoke").sections) == 1 + len(ROWS)
    assert len(list(out.glob("**/result.json"))) == len(ROWS)


def test_every_figure_is_drawn_in_both_formats(out: Path) -> None:
    for name in ROWS.values():
        folder = out / "smoke" / name
        assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
        assert b"<svg" in (folder / "figure.svg").read_bytes()[:2000]


def test_no_result_tells_of_the_machine_s_folders(out: Path) -> None:
    for name in ROWS.values():
        text = (out / "smoke" / name / "result.json").read_text()
        assert str(Path.home()) not in text
        assert str(out) not in text


def test_finished_results_are_read_and_not_run_again(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cp_figure_1, "EXPERIMENT", _broken(cp_figure_1.EXPERIMENT))
    said: list[str] = []
    assert reproduce("R4", "smoke", out, say=said.append) == read(out / "smoke" / "cp_figure_1")
    assert said == ["cp_figure_1 was made by another version of the experiment; --force runs it again"]


def test_force_sets_the_old_result_aside_and_a_plain_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = reproduce("R9", "smoke", tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(pr_figure_1, "EXPERIMENT", _broken(pr_figure_1.EXPERIMENT))
        with pytest.raises(KeyboardInterrupt):
            reproduce("R9", "smoke", tmp_path, force=True)
    assert read(first.folder) is None
    assert (first.folder / "result.old.json").is_file()
    assert reproduce("R9", "smoke", tmp_path).claims == first.claims


def _broken(experiment: Experiment) -> Experiment:
    def study(scale: str, means: Context) -> None:
        raise KeyboardInterrupt

    return Experiment(experiment.row, experiment.name, "", "", 0, study)  # type: ignore[arg-type]


def test_an_interrupted_run_leaves_nothing_and_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(pr_figure_1, "EXPERIMENT", _broken(pr_figure_1.EXPERIMENT))
        with pytest.raises(KeyboardInterrupt):
            reproduce("R9", "smoke", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert reproduce("R9", "smoke", tmp_path / "out").claims


def test_an_interrupted_layerwise_run_goes_on_and_adds_up_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[str] = []

    def interrupted(plan: Plan, data: ImageData, *rest: object) -> StagedRow:
        if len(trained) == 2:
            raise KeyboardInterrupt
        trained.append(data.name)
        return grow(plan, data, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(staged_accuracy, "grow", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reproduce("R14", "smoke", tmp_path)
    before = json.loads((tmp_path / "smoke" / "pr_figure_6" / "parts" / "clock.json").read_text())["seconds"]
    monkeypatch.setattr(staged_accuracy, "grow", lambda *args: trained.append("again") or grow(*args))
    done = reproduce("R14", "smoke", tmp_path)
    assert trained == ["fashion-mnist", "fashion-mnist", "again", "again"]
    assert done.seconds > before > 0


def test_the_page_has_every_claim_and_figure(out: Path) -> None:
    text = (out.parent / "page.md").read_text()
    for result in results(out):
        section = text.split(f"## {result['row']}\n")[1].split("<details")[0]
        assert f"**{result['title']}.**" in section
        assert section.count("| yes |") + section.count("| **no** |") == len(result["claims"])
        assert (out.parent / "images" / "reproduction" / f"{result['name']}.png").is_file()
    assert "generated data" in text


def test_results_of_another_kind_are_refused(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text('{"format": 2, "kind": "something"}')
    with pytest.raises(ValueError, match="does not hold a result of bidual reproduce; delete it, or use --force"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["R99"], "there is no experiment 'R99'; did you mean"),
        (["cp_figure_9"], "did you mean cp_figure"),
        (["R4", "--scale", "big"], "scale must be one of paper, cpu, smoke, got 'big'"),
        (["R4", "--workers", "0"], "jobs must be at least 1, got 0"),
        (["R4", "--page", "/nowhere/page.md"], "the folder /nowhere does not exist"),
        (["R15", "--data-dir", "/nowhere"], "data_dir is '/nowhere', which is no folder"),
    ],
)
def test_bad_arguments(words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leave:
        main(["reproduce", *words, "--out", str(tmp_path / "out")])
    assert leave.value.code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_lacks_its_data_is_named_and_the_others_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = [find("R9"), find("R15")]
    monkeypatch.setattr(import_module("bidual.papers.reproduction"), "everything", lambda: chosen)
    monkeypatch.setitem(pr_figure_1.SETTINGS, "cpu", pr_figure_1.SETTINGS["smoke"])  # type: ignore[index]
    with pytest.raises(SystemExit) as leave:
        main(["reproduce", "all", "--out", str(tmp_path / "out"), "--data-dir", str(tmp_path), "--json"])
    shown = capsys.readouterr()
    assert leave.value.code == 2
    assert "1 of 2 did not run: pr_figure_7: MNIST lacks" in shown.err
    assert [result["name"] for result in json.loads(shown.out)["results"]] == ["pr_figure_1"]


def test_the_list_says_what_is_finished(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leave:
        main(["reproduce", "--scale", "smoke", "--out", str(out)])
    assert leave.value.code == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ROWS.values())
    assert len(re.findall(r"\d{4}-\d\d-\d\d", shown)) == len(ROWS)


def test_out_must_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="results go to a folder"):
        reproduce("R4", "smoke", tmp_path / "file")


def test_a_page_needs_results(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there are no results"):
        write_page(tmp_path / "page.md", [])


def test_a_page_keeps_pipes_in_cells(out: Path) -> None:
    result = read(out / "smoke" / "cp_figure_1")
    assert result is not None
    text = page([result.model_copy(update={"claims": (Claim("|x| <= 1", "a\nb", True),)})])
    assert "| \\|x\\| <= 1 | a b | yes |  |" in text
