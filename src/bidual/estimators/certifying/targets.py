"""Targets and sample weights of a network that was trained elsewhere."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils.validation import _check_sample_weight
from torch import Tensor

from bidual.estimators.class_weights import ClassWeight, class_weighted
from bidual.estimators.inputs import as_plain_array, as_targets
from bidual.io.foreign import class_codes, number_targets
from bidual.losses import Loss, MarginLoss
from bidual.losses.datafit import Datafit
from bidual.runtime.json_text import one_line
from bidual.runtime.numerical_errors import check_magnitude


class Targets(NamedTuple):
    """One row per sample; where they come from labels, the classes with their weights and the place of each label."""

    Y: np.ndarray
    class_weight: ClassWeight = None
    classes: np.ndarray = np.empty(0)
    codes: np.ndarray = np.empty(0, dtype=np.intp)

    @classmethod
    def of(
        cls, y: ArrayLike, n_outputs: int, loss: Loss, classes: ArrayLike | None, class_weight: ClassWeight
    ) -> "Targets":
        """Numbers with one column per output as they are, everything else as labels."""
        values = as_numbers("y", as_targets(y), None)
        numeric = values.dtype.kind in "iufb"
        labels = classes is not None or not numeric or loss.classification or n_outputs > 1
        if values.ndim == 1 and labels:
            known, codes = class_codes(values, n_outputs, classes)
            return cls(loss.encode(codes, n_outputs), class_weight, known, codes)
        if class_weight is not None:
            raise ValueError("class_weight is for labels, one per sample, but y holds numbers; use sample_weight.")
        return cls(_signs(number_targets(values, n_outputs), loss))

    def weights(self, sample_weight: ArrayLike | None) -> np.ndarray | None:
        """Those of samples times those of their classes."""
        weight = None
        if sample_weight is not None:
            plain = as_plain_array(sample_weight)
            weight = _check_sample_weight(plain, self.Y, dtype=np.float64, ensure_non_negative=True)
            check_magnitude("sample_weight", weight)
        return class_weighted(self.class_weight, self.classes, self.codes, weight)


def _signs(Y: np.ndarray, loss: Loss) -> np.ndarray:
    """Zeros and ones, as torch's losses of logits take them, as the -1 and 1 of losses of a margin."""
    coded = isinstance(loss, MarginLoss) and bool(np.isin(Y, (0.0, 1.0)).all())
    return 2 * Y - 1 if coded else Y


def weighted(
    samples: Tensor, targets: Targets, sample_weight: ArrayLike | None, loss: Loss, intercept: bool
) -> tuple[Tensor, Datafit]:
    """The samples that have a weight, and their data term."""
    if len(targets.Y) != len(samples):
        raise ValueError(f"X has {len(samples)} samples and y has {len(targets.Y)}; they must be as many.")
    weight = targets.weights(sample_weight)
    Y, there = torch.from_numpy(targets.Y), None if weight is None else torch.from_numpy(weight)
    if there is not None:
        samples, Y, there = (part[there > 0] for part in (samples, Y, there))
    if not len(Y):
        raise ValueError("all samples have weight zero; give some a positive weight.")
    return samples, Datafit(loss, Y, there, intercept)


def as_numbers(name: str, values: ArrayLike, dtype: type | None) -> np.ndarray:
    """An array of a tensor, a list or anything else that numpy takes."""
    try:
        array = np.asarray(as_plain_array(values))
        if array.dtype.kind != "c":
            return array if dtype is None else array.astype(dtype, copy=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of numbers ({one_line(error)}).") from error
    raise ValueError(f"{name} must be real, got complex numbers; give their real and imaginary parts as columns.")
