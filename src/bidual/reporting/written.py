"""Pages of what commands wrote: the JSON of `bidual fit`, `path` and `certify`, and reproductions."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from bidual.problems.certificate import Scope
from bidual.reporting.certificate import Bounds, Judged, certificate_body, gap_words, judged_report, objective, reach
from bidual.reporting.elements import Html, escaped, facts, inline, joined, number, paragraph, tiles
from bidual.reporting.fit import cv_section
from bidual.reporting.page import Report, Section, assemble
from bidual.reporting.path import path_report
from bidual.reporting.reproduction import find_results, is_reproduction, read_reproduction, reproduction_report
from bidual.reporting.shapes import Fields, as_number, read_json

_BETAS, _FOLDS = 10_000, 1_000
_KNOWN = (
    "a model (.safetensors), the --json of bidual fit, path or certify, or a reproduction (a folder or its result.json)"
)


def written_report(path: Path, title: str | None) -> Report:
    """The page of a JSON file, or of a folder of reproductions."""
    if path.is_dir():
        return reproduction_report([read_reproduction(found) for found in find_results(path)], title)
    if path.suffix.lower() != ".json":
        raise ValueError(f"cannot report {path}: its suffix is {path.suffix!r}; give {_KNOWN}.")
    value = read_json(path)
    if is_reproduction(value):
        return reproduction_report([read_reproduction(path)], title)
    fields = Fields(value, str(path))
    for key, make in (("path", _path), ("lower_bound", _judged), ("primal", _fit)):
        if key in fields:
            return make(fields, title)
    raise ValueError(f"{path} holds no result that a report knows; give {_KNOWN}.")


def _path(fields: Fields, title: str | None) -> Report:
    rows = [
        {
            "beta": row.positive("beta"),
            "fraction": row.number("fraction"),
            "loss": row.number("loss"),
            "neurons": row.whole("neurons"),
            "relative_gap": _gap(row),
            "seconds": row.number("seconds"),
        }
        | ({"seed": row.whole("seed")} if "seed" in row else {})
        for row in fields.each("path", _BETAS)
    ]
    if not rows:
        raise ValueError(f"{fields.where}: 'path' is empty; run `bidual path` again.")
    return path_report(rows, fields.number("beta_max"), title)


def _gap(fields: Fields) -> float:
    """A relative gap; where nothing is proved it is infinite, which JSON writes as null."""
    gap = fields.number("relative_gap")
    return math.inf if math.isnan(gap) else gap


def _judged(fields: Fields, title: str | None) -> Report:
    reached, lower = fields.number("objective"), fields.number("lower_bound")
    found = Judged(reached, lower, _gap(fields), fields.number("better_objective"), fields.text("status"))
    context = {
        "task": escaped(fields.text("task", "")),
        "loss": escaped(fields.text("loss", "")),
        "samples": fields.whole("rows"),
        "network": ", ".join(f"{fields.whole(name)} {name}" for name in ("features", "neurons", "outputs")),
        "beta": fields.number("beta"),
        "seconds": number(fields.number("seconds"), 3),
    }
    return judged_report(found, {name: value for name, value in context.items() if value != ""}, title)


def _fit(fields: Fields, title: str | None) -> Report:
    scope = fields.text("scope")
    if scope not in Scope.__members__:
        raise ValueError(f"{fields.where}: 'scope' must be one of {', '.join(Scope.__members__)}, got {scope[:40]!r}.")
    bounds = Bounds(fields.number("primal"), fields.number("dual"), _gap(fields), Scope[scope])
    sections = [Section("Summary", _summary(fields, bounds)), Section("Certificate", certificate_body(bounds, None))]
    if "cv" in fields:
        sections.append(_cross_validation(fields))
    return assemble(title or "Report of a fit", "What `bidual fit` wrote; the model file itself shows more", sections)


def _summary(fields: Fields, bounds: Bounds) -> Html:
    words = inline(
        f"A network of **{fields.whole('neurons')} neurons** for ",
        escaped(fields.text("task")),
        f", trained on {fields.whole('rows')} samples of {fields.whole('features')} features. Its training objective "
        f"is {objective(bounds.primal)}, the proved lower bound {objective(bounds.dual)}: "
        f"{reach(bounds.relative_gap)}.",
    )
    more = "A report of the model file shows its neurons and the gap over time too, and with `--data` how it predicts."
    scores = {
        name: fields.number(key)
        for key, name in (("train_accuracy", "train accuracy"), ("train_r2", "train R²"))
        if key in fields
    }
    key_numbers: dict[str, Any] = {
        "certified relative gap": gap_words(bounds.relative_gap),
        "beta": fields.number("beta"),
    }
    run = {
        "solver": escaped(fields.text("solver", "")),
        "beta_max": fields.number("beta_max"),
        "seconds": fields.number("seconds"),
    }
    return joined([paragraph(words), paragraph(more, "soft"), tiles(key_numbers | scores), facts(run)])


def _cross_validation(fields: Fields) -> Section:
    cv = fields.fields("cv")
    try:
        betas = np.array([as_number(beta) for beta in cv.items("betas", _BETAS)])
        losses = np.array([[as_number(loss) for loss in row] for row in cv.items("losses", _BETAS)], dtype=float)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{cv.where} must hold 'betas' and a table of 'losses'; write the file again.") from error
    right = losses.ndim == 2 and len(losses) == len(betas) > 0 and 0 < losses.shape[1] <= _FOLDS
    if not right or not (np.isfinite(betas).all() and (betas > 0).all()):
        raise ValueError(f"{cv.where} must hold as many positive 'betas' as rows of 'losses'; write the file again.")
    return cv_section(betas, losses, fields.positive("beta"))
