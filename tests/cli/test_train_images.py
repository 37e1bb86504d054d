import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import bidual
from helpers.cli_tools import run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twelve grey 8 x 8 images of each of two classes: bright on the left, bright on the right."""
    rng = np.random.default_rng(0)
    for name, half in (("left", slice(0, 4)), ("right", slice(4, 8))):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for k in range(12):
            pixels = rng.integers(0, 60, (8, 8), dtype=np.uint8)
            pixels[:, half] += 180
            Image.fromarray(pixels).save(tmp_path / "pictures" / name / f"{k}.png")
    return tmp_path / "pictures"


SMALL = ("--stages", "2", "--n-gates", "4", "--epochs", "3", "--batch-size", "8", "--no-flip", "--crop", "0")


def test_folder_to_model_and_confusion_matrix(folder: Path, tmp_path: Path) -> None:
    out, figure = tmp_path / "model.safetensors", tmp_path / "confusion.png"
    done = run("train-images", str(folder), "--out", str(out), "--confusion", str(figure), "--json", *SMALL)
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert report["classes"] == ["left", "right"]
    assert len(report["stages"]) == len(report["certificates"]) == 2
    assert report["stages"][-1]["test_accuracy"] > 0.7
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert "stage 2/2 epoch 3/3" in done.err
    model = bidual.load(out)
    picture = np.asarray(Image.open(folder / "left" / "0.png"))
    assert model.predict(picture[None]) == ["left"]


def test_some_images_are_of_all_classes(folder: Path, tmp_path: Path) -> None:
    done = run("train-images", str(folder), "--out", str(tmp_path / "m"), "--images", "8", "--json", *SMALL)
    assert done.code == 0, done.err
    assert json.loads(done.out)["train_images"] == 8
    assert len(bidual.load(tmp_path / "m").classes_) == 2


def test_resumed_on_the_command_line(folder: Path, tmp_path: Path) -> None:
    steps = ("--checkpoint", str(tmp_path / "steps"))
    first = run("train-images", str(folder), "--out", str(tmp_path / "a"), "--quiet", *steps, *SMALL)
    assert (first.code, first.out, first.err) == (0, "", "")
    again = run("train-images", str(folder), "--out", str(tmp_path / "b"), *steps, *SMALL)
    assert again.code == 2
    assert "holds a checkpoint; resume it" in again.err
    resumed = run("train-images", str(folder), "--out", str(tmp_path / "b"), "--quiet", "--resume", *steps, *SMALL)
    assert resumed.code == 0, resumed.err
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing-like-it", "--out", "m"), "unknown data set 'nothing-like-it'"),
        (("cifar-10", "--out", "m", "--data-dir", "."), "CIFAR-10 lacks"),
        (("cifar-10", "--out", "m", "--size", "8x8"), "--size is for folders of images, and 'cifar-10' is none"),
        (("FOLDER", "--out", "m", "--size", "8"), "--size must be HEIGHTxWIDTH, like 32x32, got '8'"),
        (("FOLDER", "--out", "m", "--downsample", "x"), "--downsample needs whole numbers, got 'x'"),
        (("FOLDER", "--out", "m", "--downsample", "7"), "downsample must list stages from 1 to 3"),
        (
            ("FOLDER", "--out", "m", "--learning-rate", "fast"),
            "--learning-rate must be auto, a number, or one per stage",
        ),
        (("FOLDER", "--out", "m", "--resume"), "resume=True needs the folder of a checkpoint"),
        (("FOLDER", "--out", "nowhere/m"), "the folder nowhere does not exist"),
        (("FOLDER", "--out", "m", "--confusion", "c.txt"), "a figure must end in .png"),
        (("FOLDER", "--out", "m.png", "--confusion", "m.png"), "cannot write m.png: it is also read"),
        (("FOLDER", "--out", "m", "--images", "0"), "--images must be at least 1, got 0"),
    ],
)
def test_bad_input_is_one_line(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("train-images", *(str(folder) if word == "FOLDER" else word for word in arguments))
    assert done.code == 2
    assert message in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "m").exists()
