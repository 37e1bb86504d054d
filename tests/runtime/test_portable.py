"""Windows and macOS lack modules, signals and calls of Linux; folders may have spaces and letters of any language."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bidual.runtime import files
from bidual.runtime.files import write_atomically
from helpers.cli_tools import run, write_table

BLOCK = """
import os, signal, sys
import psutil  # whose part for Linux, and only that, imports resource
sys.modules.update(fcntl=None, resource=None)
for name in ("SIGHUP", "SIGPIPE", "SIGKILL", "pthread_kill", "pause"):
    delattr(signal, name)
for name in ("fork", "getuid", "sysconf"):
    delattr(os, name)
"""
FIT = """
import numpy as np
import bidual
X = np.random.default_rng(0).standard_normal((20, 2))
model = bidual.ConvexMLPClassifier(activation="gated_relu").fit(X, X[:, 0] > 0)
model.save("model.safetensors")
assert (bidual.load("model.safetensors").predict(X) == model.predict(X)).all()
"""
RUN = """
from bidual.cli.app import main
def run(words):
    try:
        main(words)
    except SystemExit as leave:
        if leave.code != 0:
            raise
"""
FAST = ("--activation", "gated_relu", "--tol", 1e-2, "--beta", 0.1)
FOLDER = "mes données – データ"


def child(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BLOCK + code], capture_output=True, text=True, cwd=folder)


def test_a_fit_needs_nothing_of_linux(tmp_path: Path) -> None:
    done = child(FIT, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_commands_need_nothing_of_linux(tmp_path: Path) -> None:
    """One process for all of them, which ends with the code of the first that fails."""
    table, model = write_table(tmp_path).name, "model.safetensors"
    commands = [
        ["fit", table, "--target", "label", *map(str, FAST), "--out", model],
        ["predict", model, table, "--out", "labels.csv"],
        ["report", model, "--out", "page.html"],
    ]
    done = child(RUN + f"for words in {commands}: run(words)", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert all((tmp_path / words[-1]).is_file() for words in commands)


def test_names_with_spaces_and_letters_of_any_language(tmp_path: Path) -> None:
    folder = tmp_path / FOLDER
    folder.mkdir()
    table = write_table(folder).rename(folder / "tableau à lire.csv")
    model, page, labels = (folder / name for name in ("modèle n° 1.safetensors", "Übersicht ☃.html", "ответы.csv"))
    code, out, err = run("fit", table, "--target", "label", "--out", model, "--json", *FAST)
    assert (code, err) == (0, "")
    assert json.loads(out)["out"] == str(model)
    assert run("predict", model, table, "--out", labels)[::2] == (0, "")
    assert len(labels.read_text(encoding="utf-8").splitlines()) == len(table.read_text().splitlines())
    assert run("report", model, "--data", table, "--target", "label", "--out", page)[::2] == (0, "")
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in (table, model, page, labels))


def test_without_locks_only_old_scratch_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "fcntl", None)
    left = tmp_path / ".model.01234567.tmp"
    left.write_text("")
    write_atomically(tmp_path / "model", b"new")
    assert left.exists()
    monkeypatch.setattr(files, "_OLD", -1.0)
    write_atomically(tmp_path / "model", b"newer")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert (tmp_path / "model").read_bytes() == b"newer"
