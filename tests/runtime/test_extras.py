"""A fit needs the core packages only; everything else says in one sentence what to install."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from bidual.runtime.extras import EXTRAS, MissingExtra, extra, need
from helpers.places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BLOCKED = (*EXTRAS, "distributed", "requests", "beartype", "cvxpy")
BLOCK = f"import sys; sys.modules.update(dict.fromkeys({BLOCKED!r}))\n"
FIT = """
import numpy as np
import bidual
from bidual import *
X = np.random.default_rng(0).standard_normal((20, 2))
y = X[:, 0] > 0
model = bidual.ConvexMLPClassifier(activation="gated_relu", n_gates=5).fit(X, y)
"""


def child(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BLOCK + code], capture_output=True, text=True, cwd=folder)


def packages(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=\[ ;]", line)[0].lower() for line in requirements}


def test_core_without_extras(tmp_path: Path) -> None:
    done = child(
        FIT
        + """
assert model.certificate_.relative_gap <= model.tol
model.save("m.safetensors")
assert (bidual.load("m.safetensors").predict(X) == model.predict(X)).all()
path = bidual.regularization_path(model, X, y, n_betas=3)
assert len(path.rows) == 3
assert bidual.certify(bidual.ConvexMLPRegressor(beta=1.0).fit(X[:8], X[:8, 1]), X[:8], X[:8, 1], 1.0).lower_bound > 0
import bidual.io.datasets, bidual.reporting, bidual.papers.reproduction, bidual.training.parallel
import bidual.solvers.factored, bidual.training.copositive
import bidual.runtime.jobs, bidual.distributed.fitting, bidual.reporting.plots, bidual.testing
import bidual.training.layerwise
bidual.io.datasets.make_spiral(12, seed=0)
""",
        tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_each_use_names_its_extra(tmp_path: Path) -> None:
    calls = {
        "model.to_onnx('m.onnx')": "An ONNX file needs onnx; install bidual[onnx].",
        "bidual.certify('n.onnx', X, y, 1.0)": "An ONNX file needs onnx; install bidual[onnx].",
        "bidual.report(model)": "A figure or report needs matplotlib; install bidual[report].",
        "bidual.reporting.plots.check_figure('f.png')": "A figure or report needs matplotlib; install bidual[report].",
        "bidual.reporting.plots.new_figure(1, 1)": "A figure or report needs matplotlib; install bidual[report].",
        "bidual.papers.reproduction.find('R1')": "A figure or report needs matplotlib; install bidual[report].",
        "import bidual.io.tables": "A table needs pandas; install bidual[cli].",
        "import bidual.distributed.shards": "A table needs pandas; install bidual[cli].",
        "bidual.papers.uci.data.read_uci('f')": "A table needs pandas; install bidual[cli].",
        "bidual.io.datasets.load_folder('.')": "A folder of images needs PIL; install bidual[images].",
        "bidual.io.datasets.load_images('mnist')": "The cache of data sets needs platformdirs; install bidual[images].",
        "bidual.io.datasets.load_images('mnist', '.', download=True)": "A download needs pooch; "
        "install bidual[images].",
        "model.set_params(verbose=1).fit(X, y)": "A display of progress needs rich; install bidual[cli].",
        "bidual.LayerwiseCNNClassifier(verbose=1).fit(X, y)": "A display of progress needs rich; install bidual[cli].",
        "bidual.runtime.jobs.scheduler('tcp://x').__enter__()": "A Dask scheduler needs dask; install bidual[dask].",
    }
    code = (
        FIT
        + f"""
import bidual.io.datasets, bidual.papers.reproduction, bidual.papers.uci.data, bidual.reporting.plots
import bidual.runtime.jobs
from bidual.runtime.extras import MissingExtra
for call in {list(calls)!r}:
    try:
        exec(call)
    except (MissingExtra, ValueError) as error:
        print(error)
    else:
        print(call, "did not fail")
"""
    )
    (tmp_path / "n.onnx").write_bytes(b"onnx")
    done = child(code, tmp_path)
    assert done.stdout.splitlines() == list(calls.values()), done.stderr
    assert not (tmp_path / "f.png").exists()


def test_the_command_says_what_it_needs(tmp_path: Path) -> None:
    done = child("from bidual.__main__ import main; main()", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: The command line needs typer; install bidual[cli].\n"


def test_commands_say_what_they_need(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    code = "import sys; sys.modules['pyarrow'] = None; from bidual.cli.app import main; "
    code += "main(['fit', 't.parquet', '--target', 'y', '--out', 'm.safetensors'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: A Parquet file needs pyarrow; install bidual[cli].\n"


def test_extras_hold_what_they_promise() -> None:
    extras, names = (
        PROJECT["optional-dependencies"],
        {"PIL": "pillow", "dask": "distributed", "markdown_it": "markdown-it-py"},
    )
    for package, (_, name) in EXTRAS.items():
        assert names.get(package, package) in packages(extras[name])
        assert names.get(package, package) not in packages(PROJECT["dependencies"])
    assert extras["all"] == ["bidual[cli,dask,images,onnx,report]"]


def test_errors_inside_a_package_are_not_hidden() -> None:
    with pytest.raises(ModuleNotFoundError, match="No module named 'nothing_there'"), extra("onnx"):
        import nothing_there  # noqa: F401
    need("rich")
    assert issubclass(MissingExtra, ImportError)
