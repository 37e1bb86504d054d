"""Figures of a network on samples: regions, predictions, activity, filters and attention maps."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bidual.reporting.plots import COLOURS, PALE, figure_bytes, literal, new_figure, palette, plain, spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Numbers = NDArray[np.float64]
Whole = NDArray[np.int64]
Classify = Callable[[Numbers], Whole]  # points of the plane to the numbers of their classes
_POINTS = 3000  # of a scatter plot
_GRID = 220
_COUNTS = 25  # classes up to which the cells of a confusion matrix hold their counts


def regions_figure(X: Numbers, labels: Whole, guess: Classify, classes: Sequence[Any], names: Sequence[str]) -> bytes:
    """Which class every point of the plane is given, and the samples in the colours of their own classes."""
    figure = new_figure(5.4, 4.6)
    axes = figure.subplots()
    draw_regions(axes, X, labels, guess, classes)
    axes.set(xlabel=literal(names[0]), ylabel=literal(names[1]))
    if len(classes) <= 8:
        axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return figure_bytes(figure)


def draw_regions(axes: "Axes", X: Numbers, labels: Whole, guess: Classify, classes: Sequence[Any]) -> None:
    """As :func:`regions_figure`, without names and legend."""
    from matplotlib.colors import ListedColormap

    colours = palette(len(classes))
    top = max(len(colours) - 1, 1)
    _draw_plane(axes, X, guess, cmap=ListedColormap(colours), alpha=0.3, vmin=0, vmax=top, interpolation="nearest")
    some = spread(len(X), _POINTS)
    for k, (label, colour) in enumerate(zip(classes, colours, strict=True)):
        across, up = X[some][labels[some] == k].T
        axes.scatter(across, up, s=16, color=colour, edgecolor="white", linewidth=0.5, label=literal(label))


def surface_figure(X: Numbers, y: Numbers, guess: Callable[[Numbers], Numbers], names: Sequence[str]) -> bytes:
    """What is predicted at every point of the plane, and the samples in the colours of their targets."""
    figure = new_figure(5.4, 4.4)
    axes, some = figure.subplots(), spread(len(X), _POINTS)
    picture = _draw_plane(axes, X, guess, cmap="viridis", alpha=0.85)
    picture.set_clim(min(picture.norm.vmin, y.min()), max(picture.norm.vmax, y.max()))
    across, up = X[some].T
    axes.scatter(across, up, c=y[some], s=18, cmap="viridis", norm=picture.norm, edgecolor="white", linewidth=0.6)
    axes.set(xlabel=literal(names[0]), ylabel=literal(names[1]))
    figure.colorbar(picture, ax=axes, label="prediction, and target of the samples")
    return figure_bytes(figure)


def _draw_plane(axes: "Axes", X: Numbers, guess: Callable[[Numbers], NDArray[Any]], **style: Any) -> Any:
    """What is predicted at the points of a grid around the samples."""
    low, high = X.min(0), X.max(0)
    margin = 0.06 * np.where(high > low, high - low, 1.0)
    across, up = np.linspace(low - margin, high + margin, _GRID).T
    shown = guess(np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)).reshape(_GRID, _GRID)
    extent = (across[0], across[-1], up[0], up[-1])
    return axes.imshow(shown, origin="lower", extent=extent, aspect="auto", **style)


def curve_figure(x: Numbers, y: Numbers, guess: Callable[[Numbers], Numbers], name: str) -> bytes:
    """The prediction along the only feature, and the samples."""
    figure = new_figure(5.4, 3.4)
    axes = figure.subplots()
    some, ticks = spread(len(x), _POINTS), np.linspace(x.min(), x.max(), 500)
    axes.scatter(x[some], y[some], s=12, color=COLOURS[0], alpha=0.6, label="samples")
    axes.plot(ticks, guess(ticks[:, None]), color=COLOURS[1], label="prediction")
    axes.set(xlabel=literal(name), ylabel="target")
    axes.legend(frameon=False)
    plain(axes)
    return figure_bytes(figure)


def truth_figure(truth: Numbers, guess: Numbers) -> bytes:
    """Predictions against targets, one colour per output; on the line they agree."""
    figure = new_figure(5.0, 4.4)
    axes = figure.subplots()
    some = spread(len(truth), _POINTS)
    for k, colour in enumerate(COLOURS[: truth.shape[1]]):
        label = f"output {k}" if truth.shape[1] > 1 else None
        axes.scatter(truth[some, k], guess[some, k], s=12, color=colour, alpha=0.6, label=label)
    low, high = float(min(truth.min(), guess.min())), float(max(truth.max(), guess.max()))
    axes.plot([low, high], [low, high], color=PALE, linestyle="--", linewidth=1)
    axes.set(xlabel="target", ylabel="prediction")
    if truth.shape[1] > 1:
        axes.legend(frameon=False)
    plain(axes)
    return figure_bytes(figure)


def confusion_figure(matrix: Whole, classes: Sequence[Any], suffix: str = ".png", what: str = "images") -> bytes:
    """Shares of every class, a row each, with the counts in the cells; ``what`` names what is classified."""
    count = len(classes)
    side = min(max(4.5, 0.55 * count), 12.0)
    figure = new_figure(side + 1.6, side + 0.8)
    axes = figure.subplots()
    shares = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    picture = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(count), [str(name) for name in classes], rotation=45, ha="right")
    axes.set_yticks(range(count), [str(name) for name in classes])
    axes.set(xlabel="predicted class", ylabel="true class")
    total = int(matrix.sum())
    axes.set_title(f"accuracy {np.trace(matrix) / max(total, 1):.4f} on {total} {what}", loc="left", fontsize=11)
    if count <= _COUNTS:
        for (row, column), number in np.ndenumerate(matrix):
            shade = "white" if shares[row, column] > 0.6 else "#222222"
            axes.text(column, row, f"{number}", ha="center", va="center", color=shade, fontsize=8)
    figure.colorbar(picture, ax=axes, shrink=0.8, label="share of the true class")
    return figure_bytes(figure, suffix)


def activity_figure(on: Numbers, unit: str) -> bytes:
    """Which neurons are on for which samples, and the share of samples that every neuron is on for."""
    figure = new_figure(5.4, 4.6)
    above, below = figure.subplots(2, 1, height_ratios=[2, 1], sharex=True)
    order = np.argsort(-on.mean(0), kind="stable")
    ordered = on[:, order]
    rows = np.lexsort(ordered.T[::-1]) if ordered.shape[1] else np.arange(len(on))
    from matplotlib.colors import ListedColormap

    colours = ListedColormap(["#8893a326", COLOURS[0]]) if set(np.unique(on)) <= {0.0, 1.0} else "Blues"
    above.imshow(ordered[rows], aspect="auto", cmap=colours, vmin=0, vmax=1, interpolation="nearest")
    above.set(ylabel="samples", yticks=[])
    below.bar(range(on.shape[1]), 100 * on.mean(0)[order], width=1.0, color=COLOURS[0], alpha=0.8)
    below.set(ylim=(0, 100), ylabel="on for, %", xlabel=f"{unit}s, from the most active to the least")
    plain(below)
    return figure_bytes(figure)


def tiles_figure(tiles: Sequence[Numbers], titles: Sequence[str], columns: int) -> bytes:
    """Small pictures in a grid, each in its own symmetric scale: blue negative, red positive."""
    columns = min(columns, len(tiles))
    lines = -(-len(tiles) // columns)
    flatness = min(max(tiles[0].shape[0] / tiles[0].shape[1], 0.25), 3.0)
    figure = new_figure(5.4, max(1.2, 5.4 / columns * lines * flatness + 0.25 * lines))
    for place, axes in enumerate(figure.subplots(lines, columns, squeeze=False).flat):
        axes.axis("off")
        if place < len(tiles):
            reach = float(np.abs(tiles[place]).max()) or 1.0
            axes.imshow(tiles[place], cmap="RdBu_r", vmin=-reach, vmax=reach, interpolation="nearest")
            axes.set_title(titles[place], fontsize=8)
    return figure_bytes(figure)
