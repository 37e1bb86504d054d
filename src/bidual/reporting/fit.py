"""Pages of fitted estimators."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, is_classifier

from bidual.architectures.modules.base import Units
from bidual.estimators import ConvexEstimator, LayerwiseCNNClassifier
from bidual.reporting.figures import cv_figure, epochs_figure, gap_figure
from bidual.reporting.page import Report, page
from bidual.reporting.plots import Drawn, both
from bidual.reporting.results import Bounds
from bidual.reporting.samples import Activity, activity, drawn_pictures, names_of, plane, take_samples, truth
from bidual.reporting.words import number, objective

_ROWS = 200  # of the table of units


def fit_report(model: ConvexEstimator, X: Any, y: ArrayLike | None, title: str | None) -> Report:
    """Everything there is to show of a fit; what needs samples only where they are given."""
    module, units = model.module_, model.module_.units
    samples = None if X is None else take_samples(model, X, y)
    found = None if samples is None else activity(module, samples.shaped)
    columns = _columns(model, units, found)
    order = [] if units is None else np.argsort(-units.prices, kind="stable")[:_ROWS].tolist()
    return page(
        "fit",
        title or "Report of a fit",
        f"{type(model).__name__}: a {module.words}, trained to a certified optimum",
        model=model,
        task=_task(model),
        n_rows=_n_rows(model),
        shape=_shape(model),
        unit="unit" if units is None else units.name,
        loss=model.loss_.name,
        fraction=model.beta_ / model.beta_max_ if model.beta_max_ > 0 else float("nan"),
        seconds=model.history_[-1].seconds if model.history_ else float("nan"),
        bounds=Bounds.of(model.certificate_, module),
        metric="accuracy" if is_classifier(model) else "R²",
        samples=samples,
        score=None if samples is None or samples.y is None else samples.score,
        gaps=_gaps(model),
        cv=_folds(model) if hasattr(model, "cv_scores_") else None,
        plane=None if samples is None else plane(model, samples),
        truth=None if samples is None else truth(model, samples),
        active=found,
        pictures=drawn_pictures(module, samples),
        units=units,
        units_columns=list(columns),
        units_rows=[[values[k] for values in columns.values()] for k in order],
        nuclear=getattr(model, "penalty", "nuclear") == "nuclear",
        parameters=_parameters(model),
    )


def _task(model: ConvexEstimator) -> str:
    if not is_classifier(model):
        count = model.module_.sizes["n_outputs"]
        return f"regressor with {'one output' if count == 1 else f'{count} outputs'}"
    classes = model.classes_.tolist()
    names = ", ".join(map(str, classes[:6])) + (", …" if len(classes) > 6 else "")
    return f"classifier of {len(classes)} classes ({names})"


def _shape(model: ConvexEstimator) -> str:
    shape = getattr(model, "sample_shape_", None)
    return f"{model.n_features_in_} features" if shape is None else f"shape {' × '.join(map(str, shape))}"


def _n_rows(model: ConvexEstimator) -> int:
    """Training samples of positive weight; a certificate of predictions per token has a row for every token."""
    count = len(model.certificate_.dual_point)
    return count if getattr(model, "_average", True) else count // model.sample_shape_[0]


def _gaps(model: ConvexEstimator) -> Drawn | None:
    """The certified gap over time, where the run kept a history."""
    runs: dict[str, tuple[list[float], list[float]]] = {}
    for record in model.history_:
        seconds, gap = float(record.seconds), float(record.relative_gap)
        if np.isfinite(gap) and np.isfinite(seconds):
            line = runs.setdefault(str(record.solver), ([], []))
            line[0].append(seconds)
            line[1].append(gap)
    alt = f"Certified relative gap against seconds, ending at {model.certificate_.relative_gap:.1e}."
    return both(lambda: gap_figure(runs, float(model.tol)), alt) if runs else None


def _folds(model: ConvexEstimator) -> dict[str, Any]:
    """The cross-validation of a fit."""
    name, values = model.held_out
    return cross_validation(model.betas_, values, model.beta_, name)


def cross_validation(
    betas: NDArray[np.float64], values: NDArray[np.float64], chosen: float, what: str
) -> dict[str, Any]:
    """Held-out losses, or values of a score, of shape (betas, folds), as a figure and the rows of a table."""
    best = "smallest" if what == "loss" else "largest"
    caption = f"Mean {what} on held-out folds for {len(betas)} weight decays; one with the {best} was chosen."
    label = "held-out loss per sample" if what == "loss" else f"held-out {what}"
    drawn = both(lambda: cv_figure(betas, values, chosen, label), f"{caption} Chosen: {number(chosen)}.")
    rows = [[float(b), float(row.mean()), float(row.std())] for b, row in zip(betas, values, strict=True)]
    return {"drawn": drawn, "caption": caption, "what": f"held-out {what}", "rows": rows, "folds": values.shape[1]}


def _columns(model: ConvexEstimator, units: Units | None, found: Activity | None) -> dict[str, list[Any]]:
    """The table of the hidden units, by columns."""
    if units is None:
        return {}
    columns: dict[str, list[Any]] = {
        units.name: list(range(len(units.prices))),
        "incoming norm": np.linalg.norm(units.incoming, axis=1).tolist(),
        "outgoing norm": np.linalg.norm(units.outgoing, axis=1).tolist(),
        "price": units.prices.tolist(),
    }
    if found is not None:
        columns["on for, %"] = (100 * found.means).tolist()
    if units.on_outputs and units.outgoing.shape[1] <= 4:
        for k, values in enumerate(units.outgoing.T):
            columns[f"output weight {k}" if units.outgoing.shape[1] > 1 else "output weight"] = values.tolist()
    if units.on_features:
        names = names_of(model)
        columns["strongest features"] = [_strongest(row, names) for row in units.incoming]
    return columns


def _strongest(weights: NDArray[np.float64], names: Sequence[str]) -> str:
    """The two features with the largest weights, in one line."""
    top = np.argsort(-np.abs(weights[: len(names)]), kind="stable")[:2]
    text = ", ".join(f"{names[k][:30]} {weights[k]:+.2g}" for k in top if weights[k] != 0) or "–"
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def _parameters(model: BaseEstimator) -> dict[str, str]:
    """The parameters of an estimator as short texts."""
    return {name: _short(value) for name, value in sorted(model.get_params(deep=False).items())}


def _short(value: Any) -> str:
    shape = getattr(value, "shape", None)
    text = repr(value) if not shape else f"an array of shape {tuple(shape)}"
    return text if len(text) <= 300 else f"{text[:300]}…"


def layerwise_report(model: LayerwiseCNNClassifier, X: Any, y: ArrayLike | None, title: str | None) -> Report:
    """Stages, their certificates and epochs, the first filters, and the confusion matrix where samples are given."""
    samples = None if X is None else take_samples(model, X, y)
    return page(
        "layerwise",
        title or "Report of a fit",
        "LayerwiseCNNClassifier: a deep network, one convex program per stage",
        model=model,
        samples=samples,
        score=None if samples is None or samples.y is None else samples.score,
        last_accuracy=float(model.history_[-1].accuracy) if model.history_ else None,
        certificates=[
            [c.stage, c.n, c.beta, objective(c.objective), objective(c.dual), c.relative_gap]
            for c in model.certificates_
        ],
        epochs=_epochs(model),
        truth=None if samples is None else truth(model, samples),
        pictures=drawn_pictures(model.module_, samples),
        parameters=_parameters(model),
    )


def _epochs(model: LayerwiseCNNClassifier) -> Drawn | None:
    stages: dict[int, list[tuple[float, float]]] = {}
    for record in model.history_:
        stages.setdefault(int(record.stage), []).append((float(record.loss), float(record.accuracy)))
    text = "Loss and accuracy on the augmented training images, epoch by epoch."
    return both(lambda: epochs_figure(stages), text) if stages else None
