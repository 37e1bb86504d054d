"""The page of a network that was grown stage by stage."""

from typing import Any

from numpy.typing import ArrayLike

from bidual.estimators import LayerwiseCNNClassifier
from bidual.reporting.drawing import Drawn, both
from bidual.reporting.figures import epochs_figure
from bidual.reporting.fit import parameters
from bidual.reporting.page import Report, page
from bidual.reporting.samples import drawn_pictures, take_samples, truth
from bidual.reporting.words import objective


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
        parameters=parameters(model),
    )


def _epochs(model: LayerwiseCNNClassifier) -> Drawn | None:
    stages: dict[int, list[tuple[float, float]]] = {}
    for record in model.history_:
        stages.setdefault(int(record.stage), []).append((float(record.loss), float(record.accuracy)))
    text = "Loss and accuracy on the augmented training images, epoch by epoch."
    return both(lambda: epochs_figure(stages), text) if stages else None
