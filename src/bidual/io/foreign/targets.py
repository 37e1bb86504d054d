"""Targets for a network that is already there: its outputs say how labels become numbers."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bidual.losses import Loss

Targets = NDArray[np.float64]


def class_targets(labels: ArrayLike, n_outputs: int, loss: Loss, classes: ArrayLike | None = None) -> Targets:
    """Labels as the matrix Y (n, c), encoded as the classifiers of this package do: see :meth:`Loss.encode`.

    One output is for two classes, -1 for the first in sorted order and +1 for the second.

    Args:
        labels: one per sample.
        n_outputs: how many outputs the network has.
        loss: says how classes become numbers.
        classes: in the order of the outputs, where it is known; otherwise whole numbers from 0 to c - 1 are the
            numbers of outputs, and other labels stand in sorted order.
    """
    y = np.asarray(labels)
    if y.ndim != 1:
        raise ValueError(f"labels must be one per sample, got shape {y.shape}.")
    known = _classes(y, n_outputs) if classes is None else np.asarray(classes)
    _check_outputs(len(known), n_outputs)
    return loss.encode(_codes(y, known), n_outputs)


def number_targets(values: ArrayLike, n_outputs: int) -> Targets:
    """Regression targets as the matrix Y (n, c)."""
    Y = np.asarray(values, dtype=np.float64)
    Y = Y.reshape(len(Y), -1)
    if Y.shape[1] != n_outputs:
        raise ValueError(f"the network has {n_outputs} outputs, but there are {Y.shape[1]} targets per sample.")
    return Y


def _classes(y: NDArray[Any], n_outputs: int) -> NDArray[Any]:
    """A file may lack a class, but whole numbers still say which output is theirs."""
    found = np.unique(y)
    if n_outputs > 1 and found.dtype.kind in "iu" and found[0] >= 0 and found[-1] < n_outputs:
        return np.arange(n_outputs)
    return found


def _check_outputs(n_classes: int, n_outputs: int) -> None:
    if n_classes != max(n_outputs, 2):
        raise ValueError(
            f"the labels have {n_classes} classes, but a network with {n_outputs} outputs is for "
            f"{max(n_outputs, 2)}; give the data it was trained on, or use regression."
        )


def _codes(y: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.intp]:
    """The position of every label among the classes."""
    place = {label: index for index, label in enumerate(classes.tolist())}
    codes = np.array([place.get(label, -1) for label in y.tolist()], dtype=np.intp)
    if (codes < 0).any():
        raise ValueError(f"the label {y[codes < 0].tolist()[0]!r} is none of the classes {classes.tolist()}.")
    return codes
