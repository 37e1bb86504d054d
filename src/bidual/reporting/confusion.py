"""Which classes a classifier takes for which."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int64
from numpy import ndarray
from numpy.typing import ArrayLike

from bidual.reporting.plots import figure_bytes, new_figure

_NUMBERS = 25  # classes up to which the numbers are written

Counts = Int64[ndarray, "c c"]


def confusion_matrix(labels: Int64[ndarray, " n"], guesses: ArrayLike, classes: Sequence[Any]) -> Counts:
    """Entry (j, k) counts the samples of class j that were taken for class k; guesses are entries of ``classes``."""
    index = {name: k for k, name in enumerate(classes)}
    matrix = np.zeros((len(classes), len(classes)), np.int64)
    for label, guess in zip(labels.tolist(), np.asarray(guesses).tolist(), strict=True):
        matrix[label, index[guess]] += 1
    return matrix


def confusion_figure(matrix: Counts, classes: Sequence[Any], suffix: str = ".png", what: str = "images") -> bytes:
    """Shares of every class, a row each, with the counts in the cells; ``what`` was classified."""
    count = len(classes)
    side = min(max(4.5, 0.55 * count), 12.0)
    figure = new_figure(side + 1.6, side + 0.8)
    axes = figure.subplots()
    shares = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    picture = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(count), [str(name) for name in classes], rotation=45, ha="right")
    axes.set_yticks(range(count), [str(name) for name in classes])
    axes.set_xlabel("taken for")
    axes.set_ylabel("class")
    total = int(matrix.sum())
    axes.set_title(f"accuracy {np.trace(matrix) / max(total, 1):.4f} on {total} {what}", loc="left", fontsize=11)
    if count <= _NUMBERS:
        for (row, column), number in np.ndenumerate(matrix):
            shade = "white" if shares[row, column] > 0.6 else "#222222"
            axes.text(column, row, f"{number}", ha="center", va="center", color=shade, fontsize=8)
    figure.colorbar(picture, ax=axes, shrink=0.8, label="share of the class")
    return figure_bytes(figure, suffix)
