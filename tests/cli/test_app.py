import json
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

from gated_problems import Case
from helpers.cli_tools import refused, run


def test_version_and_help() -> None:
    assert run("--version") == (0, f"bidual {version('bidual')}\n", "")
    assert "predict" in run().out
    for command in ("demo", "fit", "predict", "path", "bench"):
        code, text, err = run(command, "--help")
        assert (code, err) == (0, "")
        assert "--json" in text


def test_wrong_use_is_one_line() -> None:
    for arguments in (("nothing",), ("fit",), ("fit", "t.csv"), ("predict", "--what")):
        assert refused("", *arguments)


def test_bugs_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise TypeError("a bug")

    monkeypatch.setattr(sys.modules["bidual.cli.fit"], "check_target", broken)
    code, out, err = run("fit", "t.csv", "--target", "y", "--out", "m")
    assert (code, out) == (70, "")
    assert err == "internal error: TypeError: a bug; please report it, with what BIDUAL_DEBUG=1 shows.\n"
    monkeypatch.setenv("BIDUAL_DEBUG", "1")
    with pytest.raises(TypeError, match="a bug"):
        run("fit", "t.csv", "--target", "y", "--out", "m")


def test_the_entry_point_of_a_process(tmp_path: Path) -> None:
    call = "from bidual.cli.app import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", call, "predict", "m", "t.csv"], capture_output=True, text=True, cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == "error: cannot load m: there is no such file; give the path of a model that was saved by bidual.\n"
    )


def test_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("gated_problems")
    monkeypatch.setattr(module, "QUICK", (Case(60, 4, 8, 0.1), Case(60, 4, 8, 0.1, 5, "nuclear")))
    code, text, _ = run("bench", "--quick", "--json")
    cases = json.loads(text)["cases"]
    assert code == 0
    assert [case["case"]["penalty"] for case in cases] == ["per_output", "nuclear"]
    assert all(case["gap"] <= 1e-6 for case in cases)
    assert "final gap" in run("bench", "--quick").out


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["bidual.cli.demo"]
    monkeypatch.setattr(module, "SEEDS", range(1))
    monkeypatch.setattr(module, "_BASELINE_STEPS", 5)
    monkeypatch.setattr(module, "TOL", 0.05)
    code, text, err = run("demo", "--out", tmp_path / "new", "--json")
    results = json.loads(text)
    assert code == 0
    assert err == "" or err.startswith("warning: certified relative gap")  # breast cancer has rank 31
    assert results["results"][0]["relative_gap"] <= 0.05
    assert [row["data"] for row in results["results"]] == ["spiral"] * 2 + ["breast cancer"] * 2
    assert results["results"][0]["accuracy"][0] > 0.9
    assert Path(results["figure"]).read_bytes().startswith(b"\x89PNG")
    (tmp_path / "file").write_text("")
    assert refused("is a file", "demo", "--out", tmp_path / "file")
