"""Arguments of every command: right ones, wrong ones, and texts of any kind."""

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from bidual import ConvexMLPClassifier
from bidual.estimators.saving import save
from fuzz.judging import check_command
from fuzz.scale import tried

VALUES = (
    *("0", "1", "2", "-1", "0.5", "1e-3", "1e400", "nan", "inf", "-inf", "99999999999999999999", "", " ", "x", "auto"),
    *("none", "cv", "²", "1,2", "1,,2", "3x3", "0x0", "100000x100000", "relu", "gated_relu", "linear", "log_loss"),
    *("hinge", "squared", "absolute", "nuclear", "frobenius", "fista", "closed_form", "classification", "regression"),
    *("cpu", "cpu:²", "cuda", "cuda:99", "meta", "y", "a", "[/y]", "../up.csv", "t.csv", "m.safetensors", "w.json"),
    *("images", ".", "/", "no/such/x.html", "x.html", "x.png", "x.txt", "f.svg", "a" * 300, "\0", "é😀", "--json"),
    *("-", "--", "smoke", "cp_figure_1", "R99", "\udcff", "mnist", "fashion mnist", "~", "$HOME", "*.csv", "%s", "{}"),
)
OPTIONS: dict[str, tuple[str, ...]] = {
    "fit": (
        *("--target", "--out", "--task", "--beta", "--activation", "--n-gates", "--oracle", "--n-starts"),
        *("--loss", "--penalty", "--solver"),
        *("--tol", "--seed", "--checkpoint", "--jobs", "--json", "--quiet", "--distributed"),
    ),
    "predict": ("--out", "--proba", "--json"),
    "certify": ("--target", "--beta", "--loss", "--task", "--standardise", "--tol", "--out", "--json", "--quiet"),
    "path": (
        "--target",
        "--task",
        "--n-betas",
        "--ratio",
        "--figure",
        "--n-gates",
        "--oracle",
        "--loss",
        "--tol",
        "--json",
    ),
    "train-images": (
        *(
            "--out",
            "--confusion",
            "--size",
            "--images",
            "--stages",
            "--n-gates",
            "--factors",
            "--units",
            "--downsample",
        ),
        *("--batch-size", "--learning-rate", "--weight-decay", "--crop", "--flip", "--no-flip", "--resume"),
        *("--certificate-samples", "--seed", "--device", "--json", "--quiet"),
    ),
    "report": ("--out", "--data", "--target", "--title", "--json", "--quiet"),
    "bench": ("--peers", "--json"),
    "reproduce": ("--scale", "--jobs", "--page", "--json", "--device"),
}
FLAGS = {"--json", "--quiet", "--distributed", "--proba", "--standardise", "--flip", "--no-flip", "--resume"}
BASES: dict[str, tuple[str, ...]] = {
    "fit": ("t.csv", "--target", "y", "--out", "o", "--beta", "auto", "--activation", "gated_relu", "--n-gates", "3"),
    "predict": ("m.safetensors", "t.csv"),
    "certify": ("m.safetensors", "t.csv", "--target", "y"),
    "path": ("t.csv", "--target", "y", "--n-betas", "2", "--activation", "gated_relu", "--n-gates", "3"),
    "train-images": (
        *("images", "--out", "o", "--stages", "1", "--n-gates", "2", "--epochs", "1", "--downsample", "none", "--crop"),
        *("0", "--certificate-samples", "2", "--learning-rate", "0.1", "--quiet"),
    ),
    "report": ("m.safetensors", "--out", "o.html"),
    "bench": ("--peers", "w.json"),
    "reproduce": ("--scale", "smoke"),
}
LIMITED = {"fit", "certify", "path"}
SLOW = ("report", "train-images", "reproduce")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table, a model of it, a result in JSON, and a folder of images."""
    root = tmp_path_factory.mktemp("arguments")
    X = np.random.default_rng(0).standard_normal((8, 2))
    rows = [f"{a},{b},{'no' if k % 2 else 'yes'}" for k, (a, b) in enumerate(X)]
    (root / "t.csv").write_text("\n".join(["a,b,y", *rows]))
    save(ConvexMLPClassifier(oracle="search", n_starts=3, tol=0.1).fit(X, np.arange(8) % 2), root / "m.safetensors")
    (root / "w.json").write_text(json.dumps({"cases": []}))
    for name in ("cat", "dog"):
        (root / "images" / name).mkdir(parents=True)
        for k in range(3):
            pixels = np.full((4, 4), 40 * k, np.uint8)
            Image.fromarray(pixels).save(root / "images" / name / f"{k}.png")
    return root


@st.composite
def arguments(draw: st.DrawFn, command: str) -> list[str]:
    """The command as it should be, with some options changed, added or lost."""
    given = list(BASES[command])
    for option in draw(st.lists(st.sampled_from(OPTIONS[command]), max_size=3)):
        value = draw(st.sampled_from(VALUES) | st.text(max_size=5))
        given += [option] if option in FLAGS else [option, value] if draw(st.booleans()) else [f"{option}={value}"]
    change = draw(st.integers(0, 5))
    if change == 0 and given:
        given[draw(st.integers(0, len(given) - 1))] = draw(st.sampled_from(VALUES) | st.text(max_size=5))
    elif change == 1 and given:
        given.pop(draw(st.integers(0, len(given) - 1)))
    return [*given, "--max-time", "0.05"] if command in LIMITED else given


@pytest.mark.parametrize("command", [name for name in BASES if name not in SLOW])
@tried(15)
@given(data=st.data())
def test_arguments(command: str, folder: Path, data: st.DataObject) -> None:
    _check(folder, command, *data.draw(arguments(command)))


@pytest.mark.parametrize("command", SLOW)
@tried(6)
@given(data=st.data())
def test_arguments_of_what_draws_and_trains(command: str, folder: Path, data: st.DataObject) -> None:
    _check(folder, command, *data.draw(arguments(command)))


@tried(30)
@given(words=st.lists(st.sampled_from([*BASES, "--version", "--help", *VALUES]) | st.text(max_size=6), max_size=4))
def test_any_words(folder: Path, words: list[str]) -> None:
    if not {"bench", "demo"} & set(words[:1]):  # which run for long without more words
        _check(folder, *words)


def _check(folder: Path, *words: str) -> None:
    """In a copy of the folder; nothing may be written but what was named, and the table stays."""
    named = {Path(word.partition("=")[2] if word.startswith("--") else word).as_posix() for word in words}
    with TemporaryDirectory() as place:
        copy = Path(shutil.copytree(folder, Path(place) / "work"))
        check_command(copy, *words, outputs=tuple(named - {"t.csv"}))
        assert {path.name for path in Path(place).iterdir()} <= {"work", "up.csv"}
