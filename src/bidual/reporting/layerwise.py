"""The page of a network that was grown stage by stage."""

from typing import Any

from numpy.typing import ArrayLike

from bidual.estimators import LayerwiseCNNClassifier
from bidual.reporting.certificate import objective, reach
from bidual.reporting.drawing import both
from bidual.reporting.elements import Html, joined, number, paragraph, table, tiles
from bidual.reporting.figures import epochs_figure
from bidual.reporting.fit import settings_section
from bidual.reporting.page import Report, Section, assemble
from bidual.reporting.samples import Samples, picture_sections, take_samples, truth_section
from bidual.training.layerwise.certificates import StageCertificate

_MORE = "With images and labels this page also shows the confusion matrix: in Python `bidual.report(model, X, y)`."


def layerwise_report(estimator: LayerwiseCNNClassifier, X: Any, y: ArrayLike | None, title: str | None) -> Report:
    """Stages, their certificates and epochs, the first filters, and the confusion matrix where samples are given."""
    samples = None if X is None else take_samples(estimator, X, y)
    sections = [Section("Summary", _summary(estimator, samples)), Section("Certificates", _certificates(estimator))]
    sections += _epochs(estimator)
    if samples is not None:
        sections += truth_section(estimator, samples)
    sections += picture_sections(estimator.module_, samples)
    sections.append(settings_section(estimator.get_params(deep=False)))
    return assemble(
        title or "Report of a fit", "LayerwiseCNNClassifier: a deep network, one convex program per stage", sections
    )


def _summary(estimator: LayerwiseCNNClassifier, samples: Samples | None) -> Html:
    count, classes = len(estimator.module_.stages), estimator.classes_.tolist()
    shape = " × ".join(map(str, estimator.sample_shape_))
    words = [
        paragraph(
            f"This is a classifier of images of shape {shape} into {len(classes)} classes. Its network has "
            f"**{count} stages**, each trained while the ones before it were frozen; the last has "
            f"{estimator.module_.n_neurons} channels that its head uses."
        )
    ]
    if estimator.interrupted_:
        words.append(paragraph("Training ended early; this is the best network until then."))
    pairs: dict[str, Any] = {"stages": count, "classes": len(classes)}
    if estimator.history_:
        pairs["train accuracy, last epoch"] = float(estimator.history_[-1].accuracy)
    if samples is not None and samples.y is not None:
        pairs["accuracy"] = samples.score
        words.append(
            paragraph(f"On the {samples.count} images given here its accuracy is **{number(samples.score)}**.")
        )
    else:
        words.append(paragraph(_MORE, "soft"))
    return joined([*words, tiles(pairs)])


def _certificates(estimator: LayerwiseCNNClassifier) -> Html:
    found = estimator.certificates_
    if not found:
        return paragraph("No stage was certified; `certificate_samples` says on how many images they are.")
    headers = ("stage", "images", "beta", "objective", "lower bound", "relative gap")
    rows = [[c.stage, c.n, c.beta, objective(c.objective), objective(c.dual), c.relative_gap] for c in found]
    return joined([_meaning(found[-1]), table(headers, rows, "Certificates of the stages")])


def _meaning(last: StageCertificate) -> Html:
    return paragraph(
        "The objective of a stage is the sum of losses over some training images plus the weight decay of its own "
        "filters and head. The lower bound is proved for every stage with the same gates and inputs, of any number of "
        "filters; the relative gap is (objective − lower bound) / objective. For the last stage, "
        f"{reach(last.relative_gap)}. Nothing is proved about all stages together, nor about new images."
    )


def _epochs(estimator: LayerwiseCNNClassifier) -> list[Section]:
    if not estimator.history_:
        return []
    stages: dict[int, list[tuple[float, float]]] = {}
    for record in estimator.history_:
        stages.setdefault(int(record.stage), []).append((float(record.loss), float(record.accuracy)))
    text = "Loss and accuracy on the augmented training images, epoch by epoch."
    return [Section("Training", both(lambda: epochs_figure(stages), text, text))]
