"""Training on images, in one process or in the ranks of a torchrun: read, train, save, report."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix

from bidual.estimators import LayerwiseCNNClassifier
from bidual.estimators.saving import save
from bidual.io.datasets import ImageData, load_folder, load_images
from bidual.reporting.plots import check_figure
from bidual.reporting.sample_figures import confusion_figure
from bidual.runtime.console import print_result
from bidual.runtime.files import check_target, write_atomically
from bidual.runtime.ranks import Ranks


@dataclass(frozen=True)
class Source:
    """Which images are trained on, as on the command line."""

    data: str
    data_dir: Path | None
    download: bool
    size: str | None
    images: int | None
    seed: int

    def check(self) -> None:
        if self.images is not None and self.images < 1:
            raise ValueError(f"--images must be at least 1, got {self.images}.")

    def load(self) -> ImageData:
        """A folder of that name if there is one, and else a data set."""
        if Path(self.data).is_dir():
            return load_folder(self.data, size=None if self.size is None else _size(self.size))
        if self.size is not None:
            raise ValueError(f"--size is for folders of images, and {self.data!r} is none.")
        return load_images(self.data, self.data_dir, download=self.download)

    def load_together(self, ranks: Ranks) -> ImageData:
        """On every rank; what must be fetched is fetched by rank 0 before the others look for it."""
        if self.download and ranks.size > 1:
            ranks.together(lambda: self.load() if ranks.leads else None)
            return ranks.together(replace(self, download=False).load)
        return ranks.together(self.load)

    def some(self, count: int) -> NDArray[np.int64]:
        """Which training images: all in their order, or so many at random, since folders are sorted by class."""
        if self.images is None or self.images >= count:
            return np.arange(count)
        return np.sort(np.random.default_rng(self.seed).permutation(count)[: self.images])


class Targets(NamedTuple):
    """What is written and printed, by rank 0 alone."""

    out: Path
    confusion: Path | None
    json: bool
    quiet: bool

    def check(self) -> None:
        check_target(self.out)
        if self.confusion is not None:
            check_figure(self.confusion)
            check_target(self.confusion, self.out)


def train(make: Callable[[], LayerwiseCNNClassifier], source: Source, targets: Targets, ranks: Ranks) -> None:
    """All of the command, with an estimator that may be refused while it is made."""

    def prepared() -> LayerwiseCNNClassifier:
        if ranks.leads:
            targets.check()
        estimator = make()
        source.check()
        estimator._check_parameters(ranks)
        return estimator

    estimator = ranks.together(prepared)
    found = source.load_together(ranks)
    began, some = time.perf_counter(), source.some(len(found.train_labels))
    estimator.fit(found.train_images[some], _named(found, found.train_labels[some]), ranks)
    if not ranks.leads:
        return
    seconds = time.perf_counter() - began
    save(estimator, targets.out)
    run = {"train_images": len(some), "seconds": seconds, "ranks": ranks.size, "out": str(targets.out)}
    report = _report(estimator, found) | run
    if targets.confusion is not None and len(found.test_labels):
        truth, guess = _named(found, found.test_labels), estimator.predict(found.test_images)
        matrix = confusion_matrix(truth, guess, labels=np.asarray(found.classes))
        write_atomically(targets.confusion, confusion_figure(matrix, found.classes, targets.confusion.suffix))
    print_result(report, _facts(report), targets.json, targets.quiet)


def _named(data: ImageData, labels: NDArray[np.int64]) -> NDArray[np.str_]:
    return np.asarray(data.classes)[labels]


def _report(estimator: LayerwiseCNNClassifier, data: ImageData) -> dict[str, Any]:
    tests = _named(data, data.test_labels)
    guesses = estimator.staged_predict(data.test_images) if len(tests) else ()
    right = [float(np.mean(guess == tests)) for guess in guesses]
    last = {record.stage: record for record in estimator.history_}  # of every stage its last epoch
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
            for rate, record in zip(estimator.learning_rates_, last.values(), strict=False)
        ],
        "certificates": [str(certificate) for certificate in estimator.certificates_],
        "interrupted": estimator.interrupted_,
    }


def _facts(report: dict[str, Any]) -> dict[str, str]:
    note = f" ({report['note']})" if report["note"] else ""
    counts = f"{report['train_images']} training images, {report['test_images']} test images"
    facts = {"data": f"{report['data']}: {counts}{note}"}
    if report["ranks"] > 1:
        facts["ranks"] = str(report["ranks"])
    for number, stage in enumerate(report["stages"], 1):
        test = "" if stage["test_accuracy"] is None else f"test accuracy {stage['test_accuracy']:.4f}, "
        facts[f"stage {number}"] = f"{test}train accuracy {stage['train_accuracy']:.4f}, loss {stage['train_loss']:.4f}"
    facts |= {f"certificate {k}": text for k, text in enumerate(report["certificates"], 1)}
    if report["interrupted"]:
        facts["ended early"] = "this is the best network so far"
    return facts | {"seconds": f"{report['seconds']:.1f}", "saved": report["out"]}


def _size(text: str) -> tuple[int, int]:
    parts = text.lower().split("x")
    if len(parts) != 2 or not all(part.isdecimal() and int(part) for part in parts):
        raise ValueError(f"--size must be HEIGHTxWIDTH, like 32x32, got {text!r}.")
    return int(parts[0]), int(parts[1])
