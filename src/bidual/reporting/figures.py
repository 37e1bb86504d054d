"""Figures of runs: the gap over time, curves over beta, and stages of training."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bidual.estimators.base import ConvexEstimator
from bidual.reporting.plots import COLOURS, GREY, PALE, figure_bytes, literal, new_figure, plain
from bidual.reporting.sample_figures import draw_regions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Runs = Mapping[str, tuple[Sequence[float], Sequence[float]]]  # seconds and relative gaps by name
_LEAST = 1e-16
_WIDE = 20  # from this ratio of the largest number to the smallest an axis is logarithmic


def demo_figure(
    models: Mapping[str, ConvexEstimator], X: NDArray[np.float64], y: NDArray[np.int64], tol: float
) -> bytes:
    """The decision regions of the model of the spiral, whose samples are X and y, and the certified gaps of all."""
    figure = new_figure(10.5, 4.7)
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.15])
    spiral, classes = models["spiral"], models["spiral"].classes_
    draw_regions(left, X, np.searchsorted(classes, y), lambda p: np.searchsorted(classes, spiral.predict(p)), classes)
    left.set(xticks=[], yticks=[], aspect="equal")
    left.set_title(f"Spiral: decision regions of {spiral.n_neurons_} neurons", loc="left", fontsize=11)
    histories = {name: model.history_ for name, model in models.items()}
    runs = {name: ([r.seconds for r in run], [r.relative_gap for r in run]) for name, run in histories.items()}
    _draw_gaps(right, runs, tol, COLOURS[3:])
    right.set_title("How far from the optimum, at most", loc="left", fontsize=11)
    return figure_bytes(figure)


def gap_figure(runs: Runs, tol: float) -> bytes:
    """The certified relative gap against seconds, one line per solver."""
    figure = new_figure(5.4, 3.2)
    _draw_gaps(figure.subplots(), runs, tol, COLOURS)
    return figure_bytes(figure)


def _draw_gaps(axes: "Axes", runs: Runs, tol: float, colours: Sequence[str]) -> None:
    for (name, (seconds, gaps)), colour in zip(runs.items(), colours, strict=False):
        shown = _positive(gaps)
        axes.step(seconds, shown, where="post", color=colour, linewidth=1.2, alpha=0.6)
        axes.plot(seconds, shown, "o", markersize=4, color=colour, label=literal(name))
    axes.axhline(tol, color=PALE, linestyle="--", linewidth=1, label=f"tolerance {tol:.0e}")
    axes.set(yscale="log", xlim=(0, None), xlabel="seconds", ylabel="certified relative gap")
    axes.legend(frameon=False)
    plain(axes)


def _positive(gaps: Sequence[float]) -> NDArray[np.float64]:
    """Gaps for a logarithmic axis: zero is drawn a little below the smallest other."""
    values = np.asarray(gaps, dtype=np.float64)
    least = values[values > 0].min(initial=1.0)
    return np.maximum(values, max(least / 5, _LEAST))


def cv_figure(betas: NDArray[np.float64], values: NDArray[np.float64], chosen: float, label: str) -> bytes:
    """Mean held-out loss or score over folds, with the spread of the folds, and the beta that was chosen."""
    figure = new_figure(5.4, 3.2)
    axes = figure.subplots()
    order = np.argsort(betas)
    x, mean, spread = betas[order], values.mean(1)[order], values.std(1)[order]
    axes.fill_between(x, mean - spread, mean + spread, color=COLOURS[0], alpha=0.2, linewidth=0)
    axes.plot(x, mean, marker="o", markersize=4, color=COLOURS[0], label="mean over folds, with their spread")
    axes.axvline(chosen, color=COLOURS[1], linestyle="--", linewidth=1.2, label=f"chosen: {chosen:.3g}")
    axes.set(xscale="log", xlabel="weight decay beta", ylabel=label)
    axes.legend(frameon=False)
    plain(axes)
    return figure_bytes(figure)


def objectives_figure(known: Mapping[str, float], best: float, bound: float) -> bytes:
    """Objectives of networks, one row each, on an axis that shows what is proved empty and what is unknown.

    Below ``bound`` there is no network; nothing is known between it and ``best``, the smallest of them.
    """
    rows = {**known, "lower bound": bound}
    figure = new_figure(5.2, 1.1 + 0.36 * len(rows))
    axes = figure.subplots()
    top = max(known.values())
    wide = 0 < bound < top / _WIDE
    left, right = (bound / 2, top * (top / bound) ** 0.3) if wide else (0.0, top * 1.25)
    axes.axvspan(left, bound, color=GREY, alpha=0.22, linewidth=0, label="proved empty")
    axes.axvspan(bound, best, facecolor="none", edgecolor=PALE, hatch="///", linewidth=0, alpha=0.6, label="unknown")
    for row, (value, colour) in enumerate(zip(rows.values(), COLOURS, strict=False)):
        is_bound = row == len(known)
        shape: dict[str, Any] = {"marker": "|", "markersize": 14, "mew": 2.5} if is_bound else {"marker": "o"}
        axes.plot(value, row, color=colour, zorder=3, **shape)
        axes.annotate(f"{value:.5g}", (value, row), (9, 0), textcoords="offset points", va="center")
    axes.set(yticks=range(len(rows)), yticklabels=list(rows), ylim=(len(known) + 0.6, -0.6), xlim=(left, right))
    axes.set(xscale="log" if wide else "linear", xlabel="training objective")
    axes.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.2, fontsize=9)
    plain(axes)
    return figure_bytes(figure)


def path_figure(rows: Sequence[Mapping[str, Any]], suffix: str = ".png") -> bytes:
    """Neurons and loss against beta, one above the other; rows with a "seed" have a line for each."""
    figure = new_figure(6.4, 5.2)
    above, below = figure.subplots(2, 1, sharex=True)
    _draw_path(above, rows, "loss", "train loss per row", COLOURS[0])
    _draw_path(below, rows, "neurons", "neurons", COLOURS[1])
    below.yaxis.get_major_locator().set_params(integer=True)
    below.set(xscale="log", xlabel="weight decay beta")
    worst, count = max(row["relative_gap"] for row in rows), len(paths_of(rows))
    seeds = "" if count == 1 else f" of {count} seeds"
    title = f"{len(rows)} networks{seeds}, certified relative gaps at most {worst:.1e}"
    above.set_title(title, loc="left", fontsize=11)
    return figure_bytes(figure, suffix)


def path_gaps_figure(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """The certified gap of every network, and the seconds it took, against beta."""
    figure = new_figure(5.4, 4.4)
    above, below = figure.subplots(2, 1, sharex=True)
    gaps = _positive([row["relative_gap"] for row in rows])
    above.plot([row["beta"] for row in rows], gaps, "o", markersize=4, color=COLOURS[2])
    above.set(yscale="log", ylabel="certified relative gap")
    plain(above)
    _draw_path(below, rows, "seconds", "seconds", COLOURS[4])
    below.set(xscale="log", xlabel="weight decay beta")
    return figure_bytes(figure)


def _draw_path(axes: "Axes", rows: Sequence[Mapping[str, Any]], key: str, label: str, colour: str) -> None:
    """A value against beta, one line per seed."""
    lines = paths_of(rows)
    alpha = 1.0 if len(lines) == 1 else 0.6
    for line in lines:
        betas, values = zip(*((row["beta"], row[key]) for row in line), strict=True)
        axes.plot(betas, values, marker="o", markersize=4, color=colour, alpha=alpha, clip_on=False)
    axes.set(ylabel=label, ylim=(0, None))
    plain(axes)


def paths_of(rows: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """The rows of each seed, in the order in which seeds come; all rows where there are none."""
    seeds = dict.fromkeys(row.get("seed") for row in rows)
    return [[row for row in rows if row.get("seed") == seed] for seed in seeds]


def epochs_figure(stages: Mapping[int, Sequence[tuple[float, float]]]) -> bytes:
    """Loss and accuracy of every epoch, one line per stage."""
    figure = new_figure(5.4, 4.4)
    above, below = figure.subplots(2, 1, sharex=True)
    for (stage, pairs), colour in zip(stages.items(), COLOURS, strict=False):
        epochs = range(1, len(pairs) + 1)
        above.plot(epochs, [pair[0] for pair in pairs], marker="o", markersize=3, color=colour, label=f"stage {stage}")
        below.plot(epochs, [pair[1] for pair in pairs], marker="o", markersize=3, color=colour)
    below.xaxis.get_major_locator().set_params(integer=True)
    above.set_ylabel("train loss")
    below.set(xlabel="epoch of the stage", ylabel="train accuracy")
    above.legend(frameon=False)
    plain(above)
    plain(below)
    return figure_bytes(figure)
