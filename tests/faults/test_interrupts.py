"""Ctrl-C, SIGTERM and SIGHUP: one line, the exit code that shells know, no half file and no scratch."""

import signal
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import bidual
from bidual.cli.signals import interruptible
from helpers.children import End, command, visible

ENDLESS = ("--activation", "gated_relu", "--solver", "primal_dual", "--tol", 1e-15, "--n-gates", 200)
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def is_one_line(end: End, number: int) -> bool:
    """Whether a command said that it was interrupted, and nothing else."""
    assert end.code == 128 + number
    assert end.out == ""
    assert end.err.startswith("error: interrupted")
    assert end.err.count("\n") == 1
    assert (signal.Signals(number).name in end.err) is (number != signal.SIGINT)
    return True


def write_many(folder: Path) -> Path:
    """So many rows that a fit of them to the last bit takes minutes."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 8))
    frame = pd.DataFrame(X, columns=list("abcdefgh"))
    frame["level"] = np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + rng.standard_normal(3000)
    frame.to_csv(folder / "table.csv", index=False)
    return folder / "table.csv"


def write_pictures(folder: Path) -> Path:
    """Six small pictures in two classes."""
    rng = np.random.default_rng(0)
    for kind in ("dark", "light"):
        (folder / "pictures" / kind).mkdir(parents=True)
        for k in range(3):
            pixels = rng.integers(0, 100, (8, 8), dtype=np.uint8) + (100 if kind == "light" else 0)
            Image.fromarray(pixels.astype(np.uint8)).save(folder / "pictures" / kind / f"{k}.png")
    return folder / "pictures"


@pytest.mark.parametrize("number", SIGNALS)
def test_fit(tmp_path: Path, number: int) -> None:
    table = write_many(tmp_path)
    out = tmp_path / "model.safetensors"
    out.write_text("the old model")
    child = command(tmp_path, "fit", table, "--target", "level", "--beta", 0.01, *ENDLESS, "--out", out)
    child.wait_until(lambda: child.seconds() > 0.5)
    assert is_one_line(child.tell(number), number)
    assert visible(tmp_path) == ["model.safetensors", "table.csv"]
    assert out.read_text() == "the old model"


def test_path(tmp_path: Path) -> None:
    table = write_many(tmp_path)
    child = command(tmp_path, "path", table, "--target", "level", *ENDLESS, "--figure", tmp_path / "path.png")
    child.wait_until(lambda: child.seconds() > 0.5)
    assert is_one_line(child.tell(signal.SIGINT), signal.SIGINT)
    assert visible(tmp_path) == ["table.csv"]


def test_reproduce(tmp_path: Path) -> None:
    child = command(tmp_path, "reproduce", "cp_figure_1", "--scale", "cpu", "--out", tmp_path / "results")
    child.wait_until(lambda: child.seconds() > 1)
    assert is_one_line(child.tell(signal.SIGTERM), signal.SIGTERM)
    assert not [name for name in visible(tmp_path) if name.endswith((".tmp", "result.json"))]


class Finalised:
    """Gets a signal where Python drops what is raised."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


def test_a_signal_in_a_finaliser_is_not_lost() -> None:
    with interruptible() as asked:
        Finalised()
        assert asked.number == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            time.sleep(30)


@pytest.mark.parametrize("number", SIGNALS[:2])
def test_images_keep_the_best_network_so_far(tmp_path: Path, number: int) -> None:
    pictures, out = write_pictures(tmp_path), tmp_path / "model.safetensors"
    kept = tmp_path / "kept"
    short = ("--n-gates", 4, "--stages", 1, "--downsample", "none", "--learning-rate", 0.01, "--epochs", 100_000)
    options = (*short, "--checkpoint", kept, "--quiet", "--certificate-samples", 0)
    child = command(tmp_path, "train-images", pictures, "--out", out, *options)
    child.wait_until((kept / "progress.json").exists)
    end = child.tell(number)
    assert (end.code, end.out) == (128 + number, "")
    assert end.err.startswith("warning: training ended early")
    assert end.err.count("\n") == 1
    assert bidual.load(out).interrupted_
    assert not [name for name in visible(tmp_path) if name.endswith(".tmp")]
