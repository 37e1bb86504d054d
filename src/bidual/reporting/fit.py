"""The page of a fitted estimator."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import is_classifier

from bidual.architectures.modules.views import Units
from bidual.estimators import ConvexEstimator
from bidual.reporting.certificate import Bounds, certificate_body, gap_words, objective, reach
from bidual.reporting.drawing import both
from bidual.reporting.elements import Html, details, escaped, facts, inline, joined, number, paragraph, table, tiles
from bidual.reporting.figures import cv_figure, gap_figure
from bidual.reporting.page import Report, Section, assemble
from bidual.reporting.samples import (
    Samples,
    activity,
    activity_section,
    names_of,
    picture_sections,
    plane_section,
    take_samples,
    truth_section,
)
from bidual.reporting.units import Activity

_ROWS = 200  # of the table of units
_MORE = (
    "With the data this page also shows the active patterns, the confusion matrix or the predictions, and the decision "
    "boundary of two features: `bidual report model.safetensors --data table.csv --target column --out report.html`, "
    "or in Python `bidual.report(model, X, y)`."
)


def fit_report(estimator: ConvexEstimator, X: Any, y: ArrayLike | None, title: str | None) -> Report:
    """Everything there is to show of a fit; what needs samples only where they are given."""
    samples = None if X is None else take_samples(estimator, X, y)
    module = estimator.module_
    found = None if samples is None else activity(estimator, samples)
    units = module.units
    sections = [
        Section("Summary", _summary(estimator, samples, units)),
        Section(
            "Certificate",
            certificate_body(Bounds.of(estimator.certificate_, module), float(estimator.tol)),
        ),
        *_gaps(estimator),
        *_cross_validation(estimator),
    ]
    if samples is not None:
        sections += plane_section(estimator, samples) + truth_section(estimator, samples)
        sections += activity_section(found, units, samples.count)
    sections += picture_sections(module, samples)
    sections += [*_units(estimator, units, found), settings_section(estimator.get_params(deep=False))]
    lead = f"{type(estimator).__name__}: a {module.words}, trained to a certified optimum"
    return assemble(title or "Report of a fit", lead, sections)


def _summary(estimator: ConvexEstimator, samples: Samples | None, units: Units | None) -> Html:
    certificate = estimator.certificate_
    words = [paragraph(_task(estimator)), paragraph(_network(estimator, units))]
    words.append(
        paragraph(
            f"Its training objective is **{objective(certificate.primal)}**, and the proved lower bound is "
            f"**{objective(certificate.dual)}**: {reach(certificate.relative_gap)}."
        )
    )
    if samples is not None and samples.y is not None:
        words.append(
            paragraph(
                f"On the {samples.count} samples given here its {_metric(estimator)} is **{number(samples.score)}**."
            )
        )
    else:
        words.append(paragraph(_MORE, "soft"))
    return joined([*words, tiles(_key_numbers(estimator, samples, units))])


def _task(estimator: ConvexEstimator) -> Html:
    shape = getattr(estimator, "sample_shape_", None)
    what = f"{estimator.n_features_in_} features" if shape is None else f"shape {' × '.join(map(str, shape))}"
    rows = f"trained on {_rows(estimator)} samples of {what}."
    if not is_classifier(estimator):
        count = estimator.module_.sizes["n_outputs"]
        return inline(f"This is a regressor with {'one output' if count == 1 else f'{count} outputs'}, {rows}")
    classes = estimator.classes_.tolist()
    shown = ", ".join(map(str, classes[:6])) + (", …" if len(classes) > 6 else "")
    return inline(f"This is a classifier of {len(classes)} classes (", escaped(shown), f"), {rows}")


def _rows(estimator: ConvexEstimator) -> int:
    """Training samples of positive weight; a certificate of predictions per token has a row for every token."""
    count = len(estimator.certificate_.dual_point)
    return count if getattr(estimator, "_average", True) else count // estimator.sample_shape_[0]


def _network(estimator: ConvexEstimator, units: Units | None) -> Html:
    unit = "unit" if units is None else units.name
    last = estimator.history_[-1].seconds if estimator.history_ else float("nan")
    return inline(
        f"The network is a {estimator.module_.words} with **{estimator.module_.n_neurons} {unit}s**, fitted with "
        f"{estimator._make_loss().name} loss and `beta` {number(estimator.beta_)}, which is "
        f"{number(_fraction(estimator), 3)} of `beta_max`, where the zero network becomes the best. The solver was ",
        escaped(estimator.solver_),
        f", with {estimator.n_iter_} steps in {number(last, 3)} seconds.",
    )


def _fraction(estimator: ConvexEstimator) -> float:
    return estimator.beta_ / estimator.beta_max_ if estimator.beta_max_ > 0 else float("nan")


def _metric(estimator: ConvexEstimator) -> str:
    return "accuracy" if is_classifier(estimator) else "R²"


def _key_numbers(estimator: ConvexEstimator, samples: Samples | None, units: Units | None) -> dict[str, Any]:
    pairs: dict[str, Any] = {
        "certified relative gap": gap_words(estimator.certificate_.relative_gap),
        "scope": estimator.certificate_.scope.name.replace("_", " ").lower(),
        f"{'unit' if units is None else units.name}s": estimator.module_.n_neurons,
        "beta": float(estimator.beta_),
    }
    if samples is not None and samples.y is not None:
        pairs[_metric(estimator)] = samples.score
    return pairs


def _gaps(estimator: ConvexEstimator) -> list[Section]:
    """The certified gap over time, where the run kept a history."""
    runs: dict[str, tuple[list[float], list[float]]] = {}
    for record in estimator.history_:
        seconds, gap = float(record.seconds), float(record.relative_gap)
        if np.isfinite(gap) and np.isfinite(seconds):
            line = runs.setdefault(str(record.solver), ([], []))
            line[0].append(seconds)
            line[1].append(gap)
    if not runs:
        return []
    text = "How far the network could be from the best one, at most, while the solver ran."
    alt = f"Certified relative gap against seconds, ending at {estimator.certificate_.relative_gap:.1e}."
    return [Section("Gap over time", both(lambda: gap_figure(runs, float(estimator.tol)), alt, text))]


def _cross_validation(estimator: Any) -> list[Section]:
    if not hasattr(estimator, "cv_scores_"):
        return []
    return [cv_section(np.asarray(estimator.betas_), -np.asarray(estimator.cv_scores_), float(estimator.beta_))]


def cv_section(betas: NDArray[np.float64], losses: NDArray[np.float64], chosen: float) -> Section:
    """Held-out losses of every beta, shape (betas, folds), as a figure and a table."""
    text = f"Mean loss on held-out folds for {len(betas)} weight decays; the one with the smallest was chosen."
    picture = both(lambda: cv_figure(betas, losses, chosen), f"{text} Chosen: {number(chosen)}.", text)
    rows = [[float(b), float(row.mean()), float(row.std())] for b, row in zip(betas, losses, strict=True)]
    folds = f"Every weight decay, over {losses.shape[1]} folds"
    return Section(
        "Cross-validation", joined([picture, table(("beta", "held-out loss", "spread over folds"), rows, folds)])
    )


def _units(estimator: ConvexEstimator, units: Units | None, found: Activity | None) -> list[Section]:
    """The hidden units with their norms, the ones that weigh most first."""
    if units is None or not len(units.prices):
        return []
    order = np.argsort(-units.prices, kind="stable")[:_ROWS]
    columns = _columns(estimator, units, found)
    rows = [[values[k] for values in columns.values()] for k in order]
    shown = "all of them" if len(order) == len(units.prices) else f"the {len(order)} that weigh most"
    words = f"{len(units.prices)} {units.name}s, {shown}. {_price_words(estimator, units)}"
    body = [paragraph(words), table(list(columns), rows, f"{units.name.capitalize()}s, {shown}")]
    return [Section(f"{units.name.capitalize()}s", joined(body))]


def _price_words(estimator: ConvexEstimator, units: Units) -> str:
    if not units.whole:
        return "Norms are of their first and last weights."
    price = (
        f"The price of a {units.name} is the norm of its incoming weights, bias included, times that of its outgoing "
        "ones"
    )
    if getattr(estimator, "penalty", "nuclear") != "nuclear":
        return f"{price}."
    return f"{price}; `beta` times the sum of prices is what the objective charges for them."


def _columns(estimator: ConvexEstimator, units: Units, found: Activity | None) -> dict[str, list[Any]]:
    prices = units.prices
    columns: dict[str, list[Any]] = {
        units.name: list(range(len(prices))),
        "incoming norm": np.linalg.norm(units.incoming, axis=1).tolist(),
        "outgoing norm": np.linalg.norm(units.outgoing, axis=1).tolist(),
        "price": prices.tolist(),
    }
    if found is not None:
        columns["on for, %"] = (100 * found.shares.mean(0)).tolist()
    if units.on_outputs and units.outgoing.shape[1] <= 4:
        for k, values in enumerate(units.outgoing.T):
            columns[f"output weight {k}" if units.outgoing.shape[1] > 1 else "output weight"] = values.tolist()
    if units.on_features:
        names = names_of(estimator)
        columns["strongest features"] = [_strongest(row, names) for row in units.incoming]
    return columns


def _strongest(weights: NDArray[np.float64], names: Sequence[str]) -> Html:
    top = np.argsort(-np.abs(weights[: len(names)]), kind="stable")[:2]
    text = ", ".join(f"{names[k][:30]} {weights[k]:+.2g}" for k in top if weights[k] != 0) or "–"
    return Html(f'<span class="tight">{escaped(text)}</span>')


def settings_section(parameters: dict[str, Any]) -> Section:
    """The parameters, folded."""
    pairs = {name: _short(value) for name, value in sorted(parameters.items())}
    return Section("Settings", details("All parameters", facts(pairs)))


def _short(value: Any) -> Html:
    shape = getattr(value, "shape", None)
    text = repr(value) if not shape else f"an array of shape {tuple(shape)}"
    return escaped(text if len(text) <= 300 else f"{text[:300]}…")
