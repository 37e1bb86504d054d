"""The page of a regularisation path."""

import math
from collections.abc import Sequence
from typing import Any

from bidual.reporting.certificate import gap_words
from bidual.reporting.drawing import both
from bidual.reporting.elements import Html, joined, number, paragraph, percent, table, tiles
from bidual.reporting.figures import path_gaps_figure
from bidual.reporting.page import Report, Section, assemble
from bidual.reporting.plots import path_figure, paths_of

Rows = Sequence[dict[str, Any]]


def path_report(rows: Rows, beta_max: float, title: str | None) -> Report:
    """Loss, size and certified gap of every network along a path."""
    sections = [
        Section("Summary", _summary(rows, beta_max)),
        Section("Regularisation path", _path(rows)),
        Section("Certificates", _certificates(rows)),
        Section("Networks", _table(rows)),
    ]
    lead = f"{len(rows)} certified networks, one for every weight decay"
    return assemble(title or "Report of a regularisation path", lead, sections)


def _summary(rows: Rows, beta_max: float) -> Html:
    first, last = max(rows, key=lambda row: row["beta"]), min(rows, key=lambda row: row["beta"])
    worst = max(row["relative_gap"] for row in rows)
    seeds = len(paths_of(rows))
    drawn = "" if seeds == 1 else f" for each of {seeds} seeds of the gates,"
    words = (
        f"{len(rows)} networks were trained,{drawn} for weight decays `beta` from {number(first['beta'])} down to "
        f"{number(last['beta'])}, each starting from the one before. From `beta_max` = {number(beta_max)} on the zero "
        f"network is the best one. The networks grow from {first['neurons']} to {last['neurons']} neurons, while the "
        f"training loss per sample goes from {number(first['loss'])} to {number(last['loss'])}."
    )
    proof = (
        f"Every one of them is certified: no network in scope improves on any of them by more than {percent(worst)}."
    )
    if not math.isfinite(worst):
        proof = "For at least one of them nothing is proved."
    pairs = {
        "networks": len(rows),
        "largest relative gap": gap_words(worst),
        "most neurons": max(row["neurons"] for row in rows),
        "seconds": float(sum(row["seconds"] for row in rows)),
    }
    return joined([paragraph(words), paragraph(proof), tiles(pairs)])


def _path(rows: Rows) -> Html:
    text = "Towards the left weight decay is weaker: networks are larger and fit the training samples better."
    alt = f"Training loss per sample and number of neurons against beta for {len(rows)} networks."
    return both(lambda: path_figure(rows), alt, text)


def _certificates(rows: Rows) -> Html:
    words = (
        "Each network has a certificate of its own: a lower bound of its training objective that is proved. The "
        "relative gap is (objective − lower bound) / objective. Small weight decays are usually harder."
    )
    alt = f"Certified relative gap and seconds against beta for {len(rows)} networks."
    return joined([paragraph(words), both(lambda: path_gaps_figure(rows), alt, "")])


def _table(rows: Rows) -> Html:
    headers = ("beta", "beta / beta_max", "train loss per sample", "neurons", "relative gap", "seconds")
    keys = ("beta", "fraction", "loss", "neurons", "relative_gap", "seconds")
    if len(paths_of(rows)) > 1:
        headers, keys = ("seed", *headers), ("seed", *keys)  # type: ignore[assignment]
    return table(headers, [[row[key] for key in keys] for row in rows], "Networks along the path")
