"""The page of a regularisation path."""

from collections.abc import Sequence
from typing import Any

from bidual.reporting.drawing import both
from bidual.reporting.figures import path_gaps_figure
from bidual.reporting.page import Report, page
from bidual.reporting.plots import path_figure, paths_of

_COLUMNS = {
    "seed": "seed",
    "beta": "beta",
    "fraction": "beta / beta_max",
    "loss": "train loss per sample",
    "neurons": "neurons",
    "relative_gap": "relative gap",
    "seconds": "seconds",
}


def path_report(rows: Sequence[dict[str, Any]], beta_max: float, title: str | None) -> Report:
    """Loss, size and certified gap of every network along a path."""
    count, seeds = len(rows), len(paths_of(rows))
    keys = [key for key in _COLUMNS if key != "seed" or seeds > 1]
    return page(
        "path",
        title or "Report of a regularisation path",
        f"{count} certified networks, one for every weight decay",
        rows=rows,
        beta_max=beta_max,
        seeds=seeds,
        path=both(
            lambda: path_figure(rows), f"Training loss per sample and number of neurons against beta, {count} networks."
        ),
        gaps=both(
            lambda: path_gaps_figure(rows), f"Certified relative gap and seconds against beta for {count} networks."
        ),
        headers=[_COLUMNS[key] for key in keys],
        cells=[[row[key] for key in keys] for row in rows],
    )
