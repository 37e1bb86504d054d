"""Everything that writes a file, on a disk that is full: the old file stays, one sentence says why, no scratch."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bidual
from bidual.cli.certify import _write as write_better
from bidual.distributed.fitting import CheckpointWriter
from bidual.estimators.onnx_export import export
from bidual.estimators.saving import save
from bidual.papers import reproduction
from bidual.papers.reproduction.page import write_page
from bidual.papers.reproduction.stand_ins import write_stand_in_tables
from bidual.problems.certificate import Certificate
from bidual.training.layerwise import LayerwiseTrainer
from helpers.children import visible
from helpers.cli_tools import run, write_table
from helpers.faulty_disks import small_files
from helpers.small_images import bars, settings

SOURCE = Path(bidual.__file__).parent
Write = Callable[[Path], Any]


@pytest.fixture(scope="module")
def model() -> Any:
    X = np.random.default_rng(0).normal(size=(12, 2))
    return bidual.ConvexMLPRegressor(beta=1.0).fit(X, X[:, 0])


def certificate() -> Certificate:
    return Certificate(1.0, 0.5, torch.ones(2, 3, 1), torch.ones(4, 1), 0.5)


def by_function(model: Any) -> dict[str, Write]:
    images, labels = bars(12)
    trainer = LayerwiseTrainer(settings(downsample=(False,), rates=(0.1,), epochs=1), images, labels, 3)
    return {
        "model.safetensors": lambda path: save(model, path),
        "model.onnx": lambda path: export(model, path),
        "page.html": lambda path: bidual.report(model).save(path),
        "kept.safetensors": lambda path: CheckpointWriter(path, {})(certificate()),
        "checkpoint.safetensors": lambda path: trainer.watched(None, path.parent).run(),
        "better.safetensors": lambda path: write_better(model.module_, path),
        "stand-ins/set.csv": lambda path: write_stand_in_tables(path.parents[1], ["set"]),
    }


SLOW = pytest.param("model.onnx", marks=pytest.mark.slow)  # torch's exporter is
NAMES = ["model.safetensors", "page.html", "kept.safetensors", "checkpoint.safetensors", "better.safetensors"]


@pytest.mark.parametrize("name", [*NAMES, "stand-ins/set.csv", SLOW])
def test_functions_leave_the_old_file(tmp_path: Path, model: Any, name: str) -> None:
    path, write = tmp_path / name, by_function(model)[name]
    path.parent.mkdir(exist_ok=True)
    write(path)
    assert path.stat().st_size > 8
    before = visible(tmp_path)
    path.write_bytes(b"old")
    with small_files(8), pytest.raises(OSError, match=f"cannot write .*{path.name}: file too large"):
        write(path)
    assert path.read_bytes() == b"old"
    assert visible(tmp_path) == before


COMMANDS = {
    "predict": ("{model}", "{table}", "--out", "{out}"),
    "path": ("{table}", "--target", "level", "--n-betas", 2, "--activation", "linear", "--figure", "{out}.png"),
    "fit": ("{table}", "--target", "level", "--beta", 5, "--activation", "linear", "--out", "{out}"),
    "report": ("{model}", "--out", "{out}.html"),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    table = write_table(folder)
    assert (
        run(
            "fit", table, "--target", "level", "--beta", 30, "--activation", "linear", "--out", folder / "m.safetensors"
        ).code
        == 0
    )
    return folder / "m.safetensors"


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_leave_the_old_file(tmp_path: Path, trained: Path, command: str) -> None:
    table = write_table(tmp_path)
    names = {"model": str(trained), "table": str(table), "out": str(tmp_path / "out")}
    arguments = [part.format(**names) if isinstance(part, str) else part for part in COMMANDS[command]]
    target = Path(next(part for part in arguments if str(part).startswith(names["out"])))
    target.write_bytes(b"old")
    with small_files(8):
        done = run(command, *arguments)
    assert (done.code, done.out) == (2, "")
    last = done.err.splitlines()[-1]
    assert last.startswith(f"error: cannot write {target}: file too large; the existing file was left unchanged.")
    assert target.read_bytes() == b"old"
    assert visible(tmp_path) == sorted([target.name, table.name])


@pytest.mark.slow
def test_a_reproduction_goes_on_from_a_full_disk(tmp_path: Path) -> None:
    with small_files(8), pytest.raises(OSError, match="cannot write"):
        reproduction.reproduce("cp_figure_2", "smoke", tmp_path)
    assert not [name for name in visible(tmp_path) if name.endswith((".tmp", "result.json"))]
    result = reproduction.reproduce("cp_figure_2", "smoke", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("old")
    with small_files(8), pytest.raises(OSError, match="cannot write"):
        write_page(page, [result])
    assert page.read_text() == "old"
    write_page(page, [result])
    assert not [name for name in visible(tmp_path) if name.endswith(".tmp")]


# Calls that write, and the files that may make them: the writers themselves, and what goes to memory or to the kernel.
WRITERS = {
    "write_text",
    "write_bytes",
    "savefig",
    "save_file",
    "to_csv",
    "to_parquet",
    "dump",
    "savez",
    "savez_compressed",
}
ALLOWED = {
    ("runtime/files.py", "open"): "the writer",
    ("reporting/plots.py", "savefig"): "into memory",
    ("papers/experiments/stage_costs.py", "open"): "/proc/self/clear_refs",
    ("cli/predict.py", "to_csv"): "into memory",
    ("papers/reproduction/stand_ins.py", "to_csv"): "into memory",
    ("cli/signals.py", "open"): "/dev/null",
    ("runtime/shared_arrays.py", "open"): "memory without a name",
}


def writing_calls(path: Path) -> set[str]:
    """Names of the calls in a file that write another one."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        owner = getattr(getattr(node.func, "value", None), "id", "")
        modes = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        opens = name == "open" and any(set(mode) & set("wax+") and len(mode) <= 3 for mode in modes)
        saves = name == "save" and owner in ("torch", "np", "numpy", "onnx", "image")
        if opens or saves or name in WRITERS:
            found.add(name)
    return found


def test_nothing_writes_in_another_way() -> None:
    calls = {(str(path.relative_to(SOURCE)), name) for path in SOURCE.rglob("*.py") for name in writing_calls(path)}
    assert calls == set(ALLOWED)
