"""Figures of runs: the gap over time, curves over beta, and stages of training."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bidual.reporting.drawing import literal
from bidual.reporting.plots import COLOURS, figure_bytes, new_figure, paths_of, plain

_TOLERANCE = "#8893a3"  # readable on light and on dark
_LEAST = 1e-16


def gap_figure(runs: Mapping[str, tuple[Sequence[float], Sequence[float]]], tol: float) -> bytes:
    """The certified relative gap against seconds, one line per solver."""
    figure = new_figure(5.4, 3.2)
    axes = figure.subplots()
    for (name, (seconds, gaps)), colour in zip(runs.items(), COLOURS, strict=False):
        shown = _positive(gaps)
        axes.step(seconds, shown, where="post", color=colour, linewidth=1.2, alpha=0.6)
        axes.plot(seconds, shown, "o", markersize=4, color=colour, label=literal(name))
    axes.axhline(tol, color=_TOLERANCE, linestyle="--", linewidth=1, label=f"tolerance {tol:.0e}")
    axes.set_yscale("log")
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds")
    axes.set_ylabel("certified relative gap")
    axes.legend(frameon=False)
    plain(axes)
    return figure_bytes(figure, ".png")


def _positive(gaps: Sequence[float]) -> NDArray[np.float64]:
    """Gaps for a logarithmic axis: zero is drawn a little below the smallest other."""
    values = np.asarray(gaps, dtype=np.float64)
    least = values[values > 0].min(initial=1.0)
    return np.maximum(values, max(least / 5, _LEAST))


def cv_figure(betas: NDArray[np.float64], losses: NDArray[np.float64], chosen: float) -> bytes:
    """Mean held-out loss over folds, with the spread of the folds, and the beta that was chosen."""
    figure = new_figure(5.4, 3.2)
    axes = figure.subplots()
    order = np.argsort(betas)
    x, mean, spread = betas[order], losses.mean(1)[order], losses.std(1)[order]
    axes.fill_between(x, mean - spread, mean + spread, color=COLOURS[0], alpha=0.2, linewidth=0)
    axes.plot(x, mean, marker="o", markersize=4, color=COLOURS[0], label="mean over folds, with their spread")
    axes.axvline(chosen, color=COLOURS[1], linestyle="--", linewidth=1.2, label=f"chosen: {chosen:.3g}")
    axes.set_xscale("log")
    axes.set_xlabel("weight decay beta")
    axes.set_ylabel("held-out loss per sample")
    axes.legend(frameon=False)
    plain(axes)
    return figure_bytes(figure, ".png")


def path_gaps_figure(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """The certified gap of every network, and the seconds it took, against beta."""
    figure = new_figure(5.4, 4.4)
    above, below = figure.subplots(2, 1, sharex=True)
    betas = [row["beta"] for row in rows]
    above.plot(betas, _positive([row["relative_gap"] for row in rows]), "o", markersize=4, color=COLOURS[2])
    above.set_yscale("log")
    above.set_ylabel("certified relative gap")
    for line in paths_of(rows):
        times = zip(*((row["beta"], row["seconds"]) for row in line), strict=True)
        below.plot(*times, marker="o", markersize=4, color=COLOURS[4])
    below.set_ylim(bottom=0)
    below.set_ylabel("seconds")
    below.set_xscale("log")
    below.set_xlabel("weight decay beta")
    for axes in (above, below):
        plain(axes)
    return figure_bytes(figure, ".png")


def epochs_figure(stages: Mapping[int, Sequence[tuple[float, float]]]) -> bytes:
    """Loss and accuracy of every epoch, one line per stage."""
    figure = new_figure(5.4, 4.4)
    above, below = figure.subplots(2, 1, sharex=True)
    for (stage, pairs), colour in zip(stages.items(), COLOURS, strict=False):
        epochs = range(1, len(pairs) + 1)
        above.plot(epochs, [pair[0] for pair in pairs], marker="o", markersize=3, color=colour, label=f"stage {stage}")
        below.plot(epochs, [pair[1] for pair in pairs], marker="o", markersize=3, color=colour)
    above.set_ylabel("train loss")
    from matplotlib.ticker import MaxNLocator

    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    below.set_ylabel("train accuracy")
    below.set_xlabel("epoch of the stage")
    above.legend(frameon=False)
    for axes in (above, below):
        plain(axes)
    return figure_bytes(figure, ".png")
