"""Weights of classes, as scikit-learn has them: None, "balanced", or a number for each of some classes."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bidual.estimators.parameters import is_number
from bidual.runtime.numerical_errors import check_magnitude

ClassWeight: TypeAlias = Mapping[Any, float] | str | None
Weights: TypeAlias = NDArray[np.float64]


def check_class_weight(name: str, value: Any) -> None:
    """Refuse what is wrong whatever the classes are."""
    if isinstance(value, Mapping):
        for label, weight in value.items():
            if not is_number(weight) or not 0 <= weight < np.inf:
                raise ValueError(f"{name} must be finite and not negative, got {weight!r} for class {label!r}.")
    elif value is not None and not (isinstance(value, str) and value == "balanced"):
        raise ValueError(f"{name} must be None, 'balanced' or a dict with the weights of classes, got {value!r}.")


def class_weighted(
    class_weight: ClassWeight, classes: NDArray[Any], codes: NDArray[np.integer], weight: Weights | None
) -> Weights | None:
    """The weight of every sample times that of its class; None where all are one.

    Args:
        class_weight: what :func:`check_class_weight` accepts.
        classes: all of them.
        codes: the place of each sample's class among them.
        weight: of the samples, if they have any.
    """
    if class_weight is None:
        return weight
    product = class_weights(class_weight, classes, codes, weight)[codes] * (1.0 if weight is None else weight)
    check_magnitude("class_weight times sample_weight", product)
    return product


def class_weights(
    class_weight: Mapping[Any, float] | str,
    classes: NDArray[Any],
    codes: NDArray[np.integer],
    weight: Weights | None = None,
) -> Weights:
    """The weight of every class.

    "balanced" is n / (k n_c) for a class of n_c among n samples of k classes, all of them counted with their weights,
    so that one of weight 2 is the same as two; classes without weight do not count.
    """
    if isinstance(class_weight, str):
        counts = np.bincount(codes, weights=weight, minlength=len(classes)).astype(np.float64)
        there = counts > 0
        return np.divide(counts.sum(), there.sum() * counts, out=np.ones(len(classes)), where=there)
    known = classes.tolist()
    if unknown := [label for label in class_weight if label not in known]:
        raise ValueError(f"class_weight names {unknown[0]!r}, which is none of the classes {_some(known)}; drop it.")
    return np.array([class_weight.get(label, 1.0) for label in known], dtype=np.float64)


def _some(labels: list[Any]) -> str:
    return repr(labels) if len(labels) <= 10 else f"{repr(labels[:10])[:-1]}, ...]"
