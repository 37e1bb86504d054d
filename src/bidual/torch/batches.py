"""All samples and targets of a loader."""

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.data import DataLoader

Batches: TypeAlias = Iterable[tuple[Tensor, Tensor]] | tuple[ArrayLike, ArrayLike]


def gathered(data: Any) -> tuple[ArrayLike, ArrayLike]:
    """X and y: of a tuple its two parts, otherwise of all batches in their order.

    Targets of shape (n, 1) become a row, which is what one output takes.
    """
    X, y = _pair(data) if isinstance(data, tuple) else _joined(data)
    column = isinstance(y, (Tensor, np.ndarray)) and y.ndim == 2 and y.shape[1] == 1
    return X, y[:, 0] if column else y


def _pair(data: tuple[Any, ...]) -> tuple[Any, Any]:
    if len(data) != 2:
        raise ValueError(f"data must be a loader of pairs or a tuple (X, y), got a tuple of {len(data)}.")
    return data[0], data[1]


def _joined(data: Any) -> tuple[Tensor, Tensor]:
    if isinstance(data, DataLoader) and data.drop_last and data.batch_size is not None and _lost(data):
        raise ValueError("the loader leaves out the samples of its last batch; make it with drop_last=False.")
    try:
        batches = [_batch(batch) for batch in data]
    except TypeError as error:
        if isinstance(data, Iterable):
            raise
        raise TypeError(f"data must be a loader of pairs or a tuple (X, y), got a {type(data).__name__}.") from error
    if not batches:
        raise ValueError("the loader has no samples; give one that has.")
    X, y = zip(*batches, strict=True)
    return torch.cat(X), torch.cat(y)


def _lost(data: DataLoader[Any]) -> bool:
    try:
        return len(data.dataset) % int(data.batch_size or 1) != 0  # type: ignore[arg-type]
    except TypeError:  # an iterable data set does not know its length
        return False


def _batch(batch: Any) -> tuple[Tensor, Tensor]:
    pair = tuple(batch) if isinstance(batch, (tuple, list)) else ()
    if len(pair) != 2 or not all(isinstance(part, Tensor) for part in pair):
        raise ValueError(f"a batch must be a pair of tensors (inputs, targets), got {type(batch).__name__}.")
    inputs, targets = (part.detach().cpu() for part in pair)
    if not targets.ndim or len(inputs) != len(targets):
        raise ValueError(
            f"a batch has {len(inputs)} inputs and targets of shape {tuple(targets.shape)}; give one each."
        )
    return inputs, targets
