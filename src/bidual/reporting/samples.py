"""What a network does on samples: the sections of a fit's page that need X, or X and y."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import is_classifier
from torch import Tensor

from bidual.architectures.modules import RebuildableModule
from bidual.architectures.modules.views import Picture, Units
from bidual.estimators import ConvexEstimator, LayerwiseCNNClassifier
from bidual.reporting.confusion import confusion_figure, confusion_matrix
from bidual.reporting.drawing import both, literal, spread
from bidual.reporting.elements import Html, escaped, joined, number, paragraph, table
from bidual.reporting.page import Section
from bidual.reporting.sample_figures import (
    activity_figure,
    curve_figure,
    regions_figure,
    surface_figure,
    tiles_figure,
    truth_figure,
)
from bidual.reporting.units import Activity, activity_of
from bidual.runtime.extras import extra

Estimator = ConvexEstimator | LayerwiseCNNClassifier
_SAMPLES = 500  # that activity is looked at
_UNITS = 400  # that are drawn
_CLASSES = 60  # that a confusion matrix is drawn for
_PICTURED = 3  # samples that a network is pictured on


@dataclass(frozen=True)
class Samples:
    """Samples as the estimator takes them, as the network takes them, and their targets and predictions."""

    X: Any
    shaped: Tensor
    y: NDArray[Any] | None
    guess: NDArray[Any]
    score: float

    @property
    def count(self) -> int:
        return len(self.shaped)


def take_samples(estimator: Estimator, X: Any, y: ArrayLike | None) -> Samples:
    """The samples, checked against the estimator; a mismatch is said before anything is drawn."""
    shaped = estimator._network_samples(X)
    values = None if y is None else np.asarray(y.detach().cpu() if isinstance(y, Tensor) else y)
    if values is not None and len(values) != len(shaped):
        raise ValueError(f"X has {len(shaped)} samples and y has {len(values)}; they must be as many.")
    if values is not None and is_classifier(estimator):
        values = known_labels(values, estimator.classes_)
    guess = np.asarray(estimator.predict(X))
    if values is not None and not is_classifier(estimator) and values.size != guess.size:
        raise ValueError(f"y has shape {values.shape}, but predictions have shape {guess.shape}; give y as in fit.")
    score = float("nan") if values is None or len(values) < 2 else float(estimator.score(X, values))
    return Samples(X, shaped, values, guess, score)


def known_labels(y: NDArray[Any], classes: NDArray[Any]) -> NDArray[Any]:
    """The labels in the type of the classes, all of which must be known."""
    labels = y.reshape(-1).astype(str) if classes.dtype.kind in "UO" and y.dtype.kind not in "UO" else y.reshape(-1)
    strange = [label for label in dict.fromkeys(labels.tolist()) if label not in set(classes.tolist())]
    if strange:
        names = ", ".join(str(name) for name in classes[:8].tolist())
        raise ValueError(f"y holds {strange[0]!r}, which the model does not know; its classes are {names}.")
    return labels


def names_of(estimator: Estimator) -> list[str]:
    """The features' names, or x1, x2 and so on."""
    names = getattr(estimator, "feature_names_in_", None)
    return [f"x{k + 1}" for k in range(estimator.n_features_in_)] if names is None else [str(name) for name in names]


def plane_section(estimator: Estimator, samples: Samples) -> list[Section]:
    """The decision regions or the predicted surface for two features, the curve for one."""
    planar = samples.shaped.ndim == 2 and samples.y is not None
    if not planar or samples.shaped.shape[1] > 2 or (samples.guess.ndim > 1 and samples.guess.shape[1] > 1):
        return []
    X, y, names = samples.shaped.numpy(), np.asarray(samples.y), names_of(estimator)
    if is_classifier(estimator):
        return _regions(estimator, X, y, names) if len(names) == 2 else []
    values = y.reshape(-1).astype(np.float64)

    def guess(points: NDArray[np.float64]) -> NDArray[np.float64]:
        return _predict(estimator, points).reshape(-1)

    if len(names) == 1:
        picture = both(lambda: curve_figure(X[:, 0], values, guess, names[0]), "The prediction and the samples.", "")
        return [Section("Prediction curve", picture)]
    text = escaped(f"The prediction over the plane of {names[0]} and {names[1]}, and the samples.")
    return [Section("Predicted surface", both(lambda: surface_figure(X, values, guess, names), text, text))]


def _regions(estimator: Any, X: NDArray[np.float64], y: NDArray[Any], names: list[str]) -> list[Section]:
    classes = estimator.classes_
    labels = _codes(y, classes)

    def guess(points: NDArray[np.float64]) -> NDArray[np.int64]:
        return _codes(_predict(estimator, points), classes)

    text = "The ground shows which class the network gives every point, the dots the samples and their own classes."
    alt = f"Decision regions of {len(classes)} classes in the plane of {names[0]} and {names[1]}, with the samples."
    return [Section("Decision boundary", both(lambda: regions_figure(X, labels, guess, classes, names), alt, text))]


def _predict(estimator: Any, points: NDArray[np.float64]) -> NDArray[Any]:
    if not hasattr(estimator, "feature_names_in_"):
        return np.asarray(estimator.predict(points))
    with extra("pandas"):
        import pandas as pd
    return np.asarray(estimator.predict(pd.DataFrame(points, columns=names_of(estimator))))


def _codes(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    index = {name: k for k, name in enumerate(classes.tolist())}
    return np.array([index[label] for label in labels.tolist()], dtype=np.int64)


def truth_section(estimator: Estimator, samples: Samples) -> list[Section]:
    """The confusion matrix of a classifier, or predictions against targets."""
    if samples.y is None:
        return []
    return _confusion(estimator, samples) if is_classifier(estimator) else _truth(samples)


def _confusion(estimator: Estimator, samples: Samples) -> list[Section]:
    classes = estimator.classes_
    matrix = confusion_matrix(_codes(np.asarray(samples.y), classes), samples.guess, classes.tolist())
    wrong = int(matrix.sum() - np.trace(matrix))
    words = f"{wrong} of {samples.count} samples are taken for another class: accuracy {number(samples.score)}."
    shares = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    rows = [
        [escaped(name), int(matrix[k].sum()), int(matrix[k, k]), float(shares[k, k]), _mistaken(matrix[k], k, classes)]
        for k, name in enumerate(classes.tolist())
    ]
    parts, names = [paragraph(words)], [literal(name) for name in classes.tolist()]
    if len(classes) <= _CLASSES:
        alt = f"Confusion matrix of {len(classes)} classes. {words}"
        parts.append(both(lambda: confusion_figure(matrix, names, what="samples"), alt, "Rows are the true classes."))
    headers = ("class", "samples", "right", "share right", "most often taken for")
    return [Section("Confusion matrix", joined([*parts, table(headers, rows, "Every class by itself")]))]


def _mistaken(row: NDArray[np.int64], k: int, classes: NDArray[Any]) -> Html:
    others = np.where(np.arange(len(row)) == k, 0, row)
    return escaped(f"{classes[int(others.argmax())]} ({int(others.max())})" if others.any() else "–")


def _truth(samples: Samples) -> list[Section]:
    truth = np.asarray(samples.y, dtype=np.float64).reshape(samples.count, -1)
    guess = samples.guess.reshape(truth.shape).astype(np.float64)
    error = float(np.sqrt(np.mean((truth - guess) ** 2)))
    words = f"R² is {number(samples.score)}, the root mean squared error {number(error)}, on {samples.count} samples."
    caption = "On the dashed line a prediction equals its target."
    return [
        Section(
            "Predictions and targets",
            joined([paragraph(words), both(lambda: truth_figure(truth, guess), words, caption)]),
        )
    ]


def activity(estimator: Estimator, samples: Samples) -> Activity | None:
    """When the units are on, on some of the samples."""
    some = torch.from_numpy(spread(samples.count, _SAMPLES))
    device = next(estimator.module_.parameters()).device
    return activity_of(estimator.module_, samples.shaped[some].to(device))


def activity_section(found: Activity | None, units: Units | None, total: int) -> list[Section]:
    """How many patterns the units have, and which are on where."""
    if found is None or units is None:
        return []
    looked, count = found.shares.shape
    some = "" if looked == total else f" (of {total}, evenly spread)"
    means = found.shares.mean(0)
    always, never = int((means == 1).sum()), int((means == 0).sum())
    alike = f" {units.name.capitalize()}s that share a pattern act as one linear map where they are on."
    share = alike if units.on_features else ""
    words = (
        f"On {looked} samples{some} the {count} {units.name}s have **{found.n_patterns} different activation "
        f"patterns**; {always} are on everywhere, {never} nowhere. A {units.name} is on for "
        f"{number(100 * float(means.mean()), 3)} % of what it sees, on average.{share}"
    )
    shown = found.shares[:, spread(count, _UNITS)]
    alt = f"Which of {shown.shape[1]} {units.name}s are on for which of {looked} samples, and their shares."
    rest = "" if count <= _UNITS else f" {_UNITS} {units.name}s are shown."
    caption = f"Blue: on. Samples are sorted by their pattern.{rest}"
    return [
        Section(
            "Active patterns",
            joined([paragraph(words), both(lambda: activity_figure(shown, units.name), alt, caption)]),
        )
    ]


def picture_sections(module: RebuildableModule, samples: Samples | None) -> list[Section]:
    """What the network shows of itself, on a few of the samples where there are any."""
    if samples is None:
        return [_picture_section(picture) for picture in module.pictures()]
    some = spread(samples.count, _PICTURED)
    x = samples.shaped[torch.from_numpy(some)].to(next(module.parameters()).device)
    return [_picture_section(picture) for picture in module.pictures(x, [f"sample {k}" for k in some])]


def _picture_section(picture: Picture) -> Section:
    drawn = both(lambda: tiles_figure(picture.tiles, picture.names, picture.columns), picture.alt, picture.caption)
    return Section(picture.title, drawn)
