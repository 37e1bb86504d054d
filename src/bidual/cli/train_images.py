"""`bidual train-images`: grow a deep network on a data set or a folder of images."""

import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from bidual.cli import training as t
from bidual.cli.output import print_facts, print_json
from bidual.confusion import confusion_figure, confusion_matrix
from bidual.datasets import ImageData, load_folder, load_images
from bidual.estimators import LayerwiseCNNClassifier
from bidual.estimators.layerwise_checks import check_parameters
from bidual.figures import check_figure
from bidual.files import check_target, write_atomically
from bidual.serialize import save

Wanted = Annotated[
    str,
    typer.Argument(
        help="fashion-mnist, mnist, cifar-10, or a folder of images with one subfolder per class.",
        metavar="DATA",
        show_default=False,
    ),
]


def train_images(
    data: Wanted,
    out: Annotated[Path, typer.Option(help="The model file to write (safetensors).", show_default=False)],
    confusion: Annotated[
        Path | None, typer.Option(help="A picture of the confusion matrix to write.", show_default=False)
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where data sets lie; else BIDUAL_DATA, else the cache.", show_default=False)
    ] = None,
    download: Annotated[bool, typer.Option("--download", help="Fetch a data set that is not there.")] = False,
    size: Annotated[
        str | None, typer.Option(help="Resize the images of a folder, like 32x32.", show_default=False)
    ] = None,
    images: Annotated[int | None, typer.Option(help="Train on so many random images only.", show_default=False)] = None,
    stages: Annotated[int, typer.Option(help="How many stages.")] = 3,
    gates: Annotated[int, typer.Option(help="Random gates per stage.")] = 64,
    factors: Annotated[int, typer.Option(help="Filters per gate.")] = 1,
    units: Annotated[int, typer.Option(help="1 for two-layer stages; more for three-layer ones.")] = 1,
    downsample: Annotated[str, typer.Option(help="Stages that halve the map first, like 1,2; none for none.")] = "2",
    epochs: Annotated[int, typer.Option(help="Epochs per stage.")] = 15,
    batch_size: Annotated[int, typer.Option(help="Images per step.")] = 128,
    learning_rate: Annotated[str, typer.Option(help="auto, a number, or one per stage, like 0.1,0.05,0.05.")] = "auto",
    weight_decay: Annotated[float, typer.Option(help="Beside the mean loss.")] = 5e-4,
    crop: Annotated[str, typer.Option(help="Random shifts by so many pixels; auto is an eighth of the side.")] = "auto",
    flip: Annotated[bool, typer.Option(help="Random mirror images.")] = True,
    checkpoint: Annotated[
        Path | None, typer.Option(help="A folder for a checkpoint after every epoch.", show_default=False)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the checkpoint in that folder.")] = False,
    certificate_samples: Annotated[int, typer.Option(help="Images that every stage is certified on.")] = 500,
    seed: t.Seed = 0,
    device: Annotated[str, typer.Option(help="cpu, or a GPU like cuda.")] = "cpu",
    json: t.Json = False,
    quiet: t.Quiet = False,
) -> None:
    """Grow a deep network stage by stage on images, and save it.

    Ctrl-C keeps the best network so far; with --checkpoint a killed training goes on with --resume.
    """
    check_target(out)
    if confusion is not None:
        check_figure(confusion)
        check_target(confusion, out)
    estimator = LayerwiseCNNClassifier(
        stages=stages,
        gates=gates,
        factors=factors,
        units=units,
        downsample=_stages(downsample),
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=_rates(learning_rate),
        drop_every=max(1, round(0.3 * epochs)),
        weight_decay=weight_decay,
        crop="auto" if crop == "auto" else _whole("--crop", crop),
        flip=flip,
        checkpoint=checkpoint,
        resume=resume,
        certificate_samples=certificate_samples,
        random_state=seed,
        verbose=int(not quiet),
        device=device,
    )
    if images is not None and images < 1:
        raise ValueError(f"--images must be at least 1, got {images}.")
    check_parameters(estimator)
    found = _load(data, data_dir, download, size)
    began = time.perf_counter()
    some = _some(len(found.train_labels), images, seed)
    estimator.fit(found.train_images[some], _named(found, found.train_labels[some]))
    seconds = time.perf_counter() - began
    save(estimator, out)
    report = _report(estimator, found, seconds, out) | {"train_images": len(some)}
    if confusion is not None and len(found.test_labels):
        matrix = confusion_matrix(found.test_labels, estimator.predict(found.test_images), found.classes)
        write_atomically(confusion, confusion_figure(matrix, found.classes, confusion.suffix))
    _say(report, json, quiet)


def _load(data: str, data_dir: Path | None, download: bool, size: str | None) -> ImageData:
    """A folder of that name if there is one, and else a data set."""
    if Path(data).is_dir():
        return load_folder(data, size=None if size is None else _size(size))
    if size is not None:
        raise ValueError(f"--size is for folders of images, and {data!r} is none.")
    return load_images(data, data_dir, download=download)


def _some(count: int, wanted: int | None, seed: int) -> NDArray[np.int64]:
    """Which training images: all in their order, or so many at random, since folders are sorted by class."""
    if wanted is None or wanted >= count:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).permutation(count)[:wanted])


def _named(data: ImageData, labels: Any) -> list[str]:
    return [data.classes[label] for label in labels]


def _report(estimator: LayerwiseCNNClassifier, data: ImageData, seconds: float, out: Path) -> dict[str, Any]:
    tests = _named(data, data.test_labels)
    right = [
        float(sum(a == b for a, b in zip(guess, tests, strict=True)) / len(tests))
        for guess in (estimator.staged_predict(data.test_images) if tests else ())
    ]
    last = [
        [record for record in estimator.history_ if record.stage == stage][-1]
        for stage in range(1, len(estimator.module_.stages) + 1)
    ]
    return {
        "data": data.name,
        "note": data.note,
        "test_images": len(tests),
        "classes": list(data.classes),
        "stages": [
            {
                "learning_rate": rate,
                "train_loss": record.loss,
                "train_accuracy": record.accuracy,
                "test_accuracy": right[record.stage - 1] if right else None,
            }
            for rate, record in zip(estimator.learning_rates_, last, strict=False)
        ],
        "certificates": [str(certificate) for certificate in estimator.certificates_],
        "interrupted": estimator.interrupted_,
        "seconds": seconds,
        "out": str(out),
    }


def _say(report: dict[str, Any], json: bool, quiet: bool) -> None:
    if json:
        print_json(report)
    elif not quiet:
        print_facts(_facts(report))


def _facts(report: dict[str, Any]) -> dict[str, str]:
    note = f" ({report['note']})" if report["note"] else ""
    facts = {
        "data": f"{report['data']}: {report['train_images']} training images, {report['test_images']} test images{note}"
    }
    for number, stage in enumerate(report["stages"], 1):
        test = "" if stage["test_accuracy"] is None else f"test accuracy {stage['test_accuracy']:.4f}, "
        facts[f"stage {number}"] = f"{test}train accuracy {stage['train_accuracy']:.4f}, loss {stage['train_loss']:.4f}"
    facts |= {f"certificate {k}": text for k, text in enumerate(report["certificates"], 1)}
    if report["interrupted"]:
        facts["ended early"] = "this is the best network so far"
    return facts | {"seconds": f"{report['seconds']:.1f}", "saved": report["out"]}


def _stages(text: str) -> tuple[int, ...]:
    return () if text == "none" else tuple(_whole("--downsample", part) for part in text.split(","))


def _rates(text: str) -> str | float | tuple[float, ...]:
    if text == "auto":
        return text
    try:
        rates = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--learning-rate must be auto, a number, or one per stage, got {text!r}.") from None
    return rates[0] if len(rates) == 1 else rates


def _size(text: str) -> tuple[int, int]:
    parts = text.lower().split("x")
    if len(parts) != 2 or not all(part.isdigit() and int(part) for part in parts):
        raise ValueError(f"--size must be HEIGHTxWIDTH, like 32x32, got {text!r}.")
    return int(parts[0]), int(parts[1])


def _whole(name: str, text: str) -> int:
    if not text.strip().isdigit():
        raise ValueError(f"{name} needs whole numbers, got {text!r}.")
    return int(text)
