"""Figures as bytes, drawn without a display."""

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bidual.estimators.base import ConvexEstimator
from bidual.problems.solution import Record
from bidual.runtime.extras import extra, need
from bidual.runtime.files import check_target

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SUFFIXES = (".png", ".pdf", ".svg")
COLOURS = ("#2f6fb0", "#d9822b", "#3c9d6b", "#b0507a", "#7a6cc0", "#8a7a3c")
GREY = "#555555"


def check_figure(path: str | os.PathLike[str]) -> Path:
    """The path, if a figure can be written there."""
    need("matplotlib")
    if Path(path).suffix.lower() not in _SUFFIXES:
        raise ValueError(f"a figure must end in {', '.join(_SUFFIXES)}, got {str(path)!r}.")
    return check_target(path)


def path_figure(rows: Sequence[Mapping[str, Any]], suffix: str = ".png") -> bytes:
    """Neurons and loss against beta, one above the other; rows with a "seed" have a line for each."""
    figure = new_figure(6.4, 5.2)
    above, below = figure.subplots(2, 1, sharex=True)
    lines = paths_of(rows)
    alpha = 1.0 if len(lines) == 1 else 0.6
    for axes, key, label, colour in (
        (above, "loss", "train loss per row", COLOURS[0]),
        (below, "neurons", "neurons", COLOURS[1]),
    ):
        for line in lines:
            betas, values = zip(*((row["beta"], row[key]) for row in line), strict=True)
            axes.plot(betas, values, marker="o", markersize=4, color=colour, alpha=alpha, clip_on=False)
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        plain(axes)
    from matplotlib.ticker import MaxNLocator

    below.yaxis.set_major_locator(MaxNLocator(integer=True))
    below.set_xscale("log")
    below.set_xlabel("weight decay beta")
    worst = max(row["relative_gap"] for row in rows)
    seeds = "" if len(lines) == 1 else f" of {len(lines)} seeds"
    above.set_title(
        f"{len(rows)} networks{seeds}, certified relative gaps at most {worst:.1e}", loc="left", fontsize=11
    )
    return figure_bytes(figure, suffix)


def paths_of(rows: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """The rows of each seed, in the order in which seeds come; all rows where there are none."""
    seeds = dict.fromkeys(row.get("seed") for row in rows)
    return [[row for row in rows if row.get("seed") == seed] for seed in seeds]


def demo_figure(
    spiral: ConvexEstimator,
    X: NDArray[np.float64],
    y: NDArray[np.int64],
    histories: Mapping[str, Sequence[Record]],
    tol: float,
) -> bytes:
    """The decision boundary on the spiral, and the certified gap over time."""
    figure = new_figure(10.5, 4.7)
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.15])
    _regions(left, spiral, X, y)
    left.set_title(f"Spiral: decision regions of {spiral.n_neurons_} neurons", loc="left", fontsize=11)
    for (name, history), colour in zip(histories.items(), COLOURS[3:], strict=False):
        seconds, gaps = zip(*((r.seconds, max(r.relative_gap, 1e-16)) for r in history), strict=True)
        right.step(seconds, gaps, where="post", color=colour, linewidth=1.2, alpha=0.5)
        right.plot(seconds, gaps, "o", markersize=5, color=colour, label=name)
    right.axhline(tol, color=GREY, linestyle="--", linewidth=1, label=f"tolerance {tol:.0e}")
    right.set_yscale("log")
    right.set_xlim(left=0)
    right.set_xlabel("seconds")
    right.set_ylabel("certified relative gap")
    right.set_title("How far from the optimum, at most", loc="left", fontsize=11)
    right.legend(frameon=False, loc="upper right")
    plain(right)
    return figure_bytes(figure, ".png")


def _regions(axes: "Axes", estimator: ConvexEstimator, X: NDArray[np.float64], y: NDArray[np.int64]) -> None:
    from matplotlib.colors import ListedColormap

    reach = 1.08 * float(np.abs(X).max())
    ticks = np.linspace(-reach, reach, 400)
    grid = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    labels = np.searchsorted(estimator.classes_, estimator.predict(grid)).reshape(len(ticks), -1)
    colours = COLOURS[: len(estimator.classes_)]
    extent = (-reach, reach, -reach, reach)
    top = max(len(colours) - 1, 1)
    axes.imshow(labels, origin="lower", extent=extent, cmap=ListedColormap(colours), alpha=0.28, vmin=0, vmax=top)
    for label, colour in zip(estimator.classes_, colours, strict=True):
        across, up = X[y == label].T
        axes.scatter(across, up, s=18, color=colour, edgecolor="white", linewidth=0.5)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_aspect("equal")


def new_figure(width: float, height: float) -> "Figure":
    with extra("matplotlib"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def plain(axes: "Axes") -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)


def figure_bytes(figure: "Figure", suffix: str) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=suffix[1:].lower(), dpi=150)
    return buffer.getvalue()
