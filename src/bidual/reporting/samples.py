"""A network on samples: the parts of a page that need X, or X and y."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import is_classifier
from sklearn.metrics import confusion_matrix
from torch import Tensor

from bidual.architectures.modules import RebuildableModule
from bidual.architectures.modules.base import Numbers, as_numbers
from bidual.estimators import ConvexEstimator, LayerwiseCNNClassifier
from bidual.estimators.inputs import as_targets, full_samples
from bidual.reporting import sample_figures as figures
from bidual.reporting.plots import Drawn, both, literal, spread
from bidual.reporting.words import number
from bidual.runtime.extras import extra

Estimator = ConvexEstimator | LayerwiseCNNClassifier
_SAMPLES = 500  # for the activity of units
_UNITS = 400  # that are drawn
_CLASSES = 60  # up to which a confusion matrix is drawn
_PICTURED = 3  # samples in the pictures that a network draws of itself


@dataclass(frozen=True)
class Samples:
    """Samples as the network takes them, and their targets and predictions."""

    shaped: Tensor
    y: NDArray[Any] | None
    guess: NDArray[Any]
    score: float

    @property
    def count(self) -> int:
        return len(self.shaped)


def take_samples(estimator: Estimator, X: Any, y: ArrayLike | None) -> Samples:
    """The samples, checked against the estimator; a mismatch is an error before anything is drawn."""
    shaped = full_samples(estimator._network_samples(X), "report on fewer samples")
    values = None if y is None else np.asarray(as_targets(y))
    if values is not None and len(values) != len(shaped):
        raise ValueError(f"X has {len(shaped)} samples and y has {len(values)}; they must be as many.")
    if values is not None and is_classifier(estimator):
        values = known_labels(values, estimator.classes_)
    guess = np.asarray(estimator.predict(X))
    if values is not None and not is_classifier(estimator) and values.size != guess.size:
        raise ValueError(f"y has shape {values.shape}, but predictions have shape {guess.shape}; give y as in fit.")
    score = float("nan") if values is None or len(values) < 2 else float(estimator.score(X, values))
    return Samples(shaped, values, guess, score)


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


class Section(NamedTuple):
    """A part of a page: a figure and its caption, perhaps a sentence before it and the rows of a table after it."""

    title: str
    drawn: Drawn | None
    caption: str
    words: str = ""
    rows: Sequence[Sequence[Any]] = ()


def plane(model: Estimator, samples: Samples) -> Section | None:
    """The decision regions or the predicted surface for two features, the curve for one."""
    planar = samples.shaped.ndim == 2 and samples.y is not None
    if not planar or samples.shaped.shape[1] > 2 or (samples.guess.ndim > 1 and samples.guess.shape[1] > 1):
        return None
    X, y, names = samples.shaped.numpy(), np.asarray(samples.y), names_of(model)
    if is_classifier(model):
        return _regions(model, X, y, names) if len(names) == 2 else None
    values = y.reshape(-1).astype(np.float64)

    def guess(points: NDArray[np.float64]) -> NDArray[np.float64]:
        return _predict(model, points).reshape(-1)

    if len(names) == 1:
        drawn = both(lambda: figures.curve_figure(X[:, 0], values, guess, names[0]), "The prediction and the samples.")
        return Section("Prediction curve", drawn, "")
    text = f"The prediction over the plane of {names[0]} and {names[1]}, and the samples."
    return Section("Predicted surface", both(lambda: figures.surface_figure(X, values, guess, names), text), text)


def _regions(model: Any, X: NDArray[np.float64], y: NDArray[Any], names: list[str]) -> Section:
    classes = model.classes_

    def guess(points: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.searchsorted(classes, _predict(model, points))

    alt = f"Decision regions of {len(classes)} classes in the plane of {names[0]} and {names[1]}, with the samples."
    drawn = both(lambda: figures.regions_figure(X, np.searchsorted(classes, y), guess, classes, names), alt)
    return Section("Decision boundary", drawn, "Background: the predicted class. Dots: samples, in their true class.")


def _predict(model: Any, points: NDArray[np.float64]) -> NDArray[Any]:
    if not hasattr(model, "feature_names_in_"):
        return np.asarray(model.predict(points))
    with extra("pandas"):
        import pandas as pd
    return np.asarray(model.predict(pd.DataFrame(points, columns=names_of(model))))


def truth(model: Estimator, samples: Samples) -> Section | None:
    """The confusion matrix of a classifier, or predictions against targets."""
    if samples.y is None:
        return None
    return _confusion(model.classes_, samples) if is_classifier(model) else _predictions(samples)


def _confusion(classes: NDArray[Any], samples: Samples) -> Section:
    matrix = confusion_matrix(samples.y, samples.guess, labels=classes)
    wrong = int(matrix.sum() - np.trace(matrix))
    words = f"{wrong} of {samples.count} samples are misclassified: accuracy {number(samples.score)}."
    rows = [
        [str(name), int(row.sum()), int(row[k]), float(row[k] / max(row.sum(), 1)), _mistaken(row, k, classes)]
        for k, (name, row) in enumerate(zip(classes.tolist(), matrix, strict=True))
    ]
    names, alt = [literal(name) for name in classes.tolist()], f"Confusion matrix of {len(classes)} classes. {words}"
    few = len(classes) <= _CLASSES
    drawn = both(lambda: figures.confusion_figure(matrix, names, what="samples"), alt) if few else None
    return Section("Confusion matrix", drawn, "Rows are the true classes.", words, rows)


def _mistaken(row: NDArray[np.int64], k: int, classes: NDArray[Any]) -> str:
    others = np.where(np.arange(len(row)) == k, 0, row)
    return f"{classes[int(others.argmax())]} ({int(others.max())})" if others.any() else "–"


def _predictions(samples: Samples) -> Section:
    target = np.asarray(samples.y, dtype=np.float64).reshape(samples.count, -1)
    guess = samples.guess.reshape(target.shape).astype(np.float64)
    error = float(np.sqrt(np.mean((target - guess) ** 2)))
    words = f"R² is {number(samples.score)}, the root mean squared error {number(error)}, on {samples.count} samples."
    drawn = both(lambda: figures.truth_figure(target, guess), words)
    return Section("Predictions and targets", drawn, "On the dashed line a prediction equals its target.", words)


@dataclass(frozen=True)
class Activity:
    """When units are on."""

    shares: Numbers  # of the places (patches, pairs of tokens) of a sample where a unit is on, (n, m)
    n_patterns: int  # how many of the units' activation patterns on these samples differ

    @property
    def means(self) -> Numbers:
        """The share of every unit over all samples."""
        return self.shares.mean(0)

    @property
    def shown(self) -> Numbers:
        """The shares that are drawn: of very many units some, evenly spread."""
        return self.shares[:, spread(self.shares.shape[1], _UNITS)]

    def drawn(self, unit: str) -> Drawn:
        """Units against samples."""
        shown = self.shown
        alt = f"Which of {shown.shape[1]} {unit}s are on for which of {len(shown)} samples, and their shares."
        return both(lambda: figures.activity_figure(shown, unit), alt)


@torch.no_grad()
def activity(module: RebuildableModule, x: Tensor) -> Activity | None:
    """When the units are on, on some of the samples as the network takes them; None for units that are always on."""
    some = x[torch.from_numpy(spread(len(x), _SAMPLES))]
    on = module.on(some.to(next(module.parameters()).device, torch.float64))
    if on is None or not on.numel() or module.units is None:
        return None
    places = on.bool().flatten(2) if on.ndim > 2 else on.bool()[:, :, None]
    patterns = len(torch.unique(places.transpose(0, 1).flatten(1), dim=0))
    return Activity(as_numbers(places.double().mean(2)), patterns)


def drawn_pictures(module: RebuildableModule, samples: Samples | None) -> list[Section]:
    """The pictures that a network draws of itself, on a few of the samples where there are any."""
    if samples is None:
        found = module.pictures()
    else:
        some = spread(samples.count, _PICTURED)
        x = samples.shaped[torch.from_numpy(some)].to(next(module.parameters()).device)
        found = module.pictures(x, [f"sample {k}" for k in some])
    return [
        Section(one.title, both(partial(figures.tiles_figure, one.tiles, one.names, one.columns), one.alt), one.caption)
        for one in found
    ]
