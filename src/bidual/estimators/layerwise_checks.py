"""What can be refused of a layerwise classifier before its data are looked at."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from bidual.estimators.network import is_whole

_WHOLE = {
    "stages": 1,
    "gates": 1,
    "factors": 1,
    "units": 1,
    "kernel_size": 1,
    "pooling": 1,
    "epochs": 1,
    "batch_size": 1,
    "drop_every": 1,
    "certificate_samples": 0,
}
_RANGES = {"momentum": (0.0, 1.0), "drop": (0.0, 1.0), "weight_decay": (0.0, np.inf)}


def check_parameters(estimator: Any) -> None:
    """Raise a ValueError for the first parameter that makes no sense."""
    for name, least in _WHOLE.items():
        if not is_whole(getattr(estimator, name), least):
            raise ValueError(f"{name} must be a whole number of at least {least}, got {getattr(estimator, name)!r}.")
    for name, (low, high) in _RANGES.items():
        _check_range(name, getattr(estimator, name), low, high)
    if estimator.kernel_size % 2 == 0:
        raise ValueError(f"kernel_size must be odd, so that maps keep their size, got {estimator.kernel_size}.")
    _check_stages(estimator.downsample, estimator.stages)
    _check_rates(estimator.learning_rate, estimator.stages)
    if estimator.crop != "auto" and not is_whole(estimator.crop, 0):
        raise ValueError(f"crop must be 'auto' or a whole number of at least 0 pixels, got {estimator.crop!r}.")
    _check_shape(estimator.image_shape)
    if estimator.resume and estimator.checkpoint is None:
        raise ValueError("resume=True needs the folder of a checkpoint; set checkpoint.")
    if not isinstance(estimator.flip, (bool, np.bool_)):
        raise ValueError(f"flip must be True or False, got {estimator.flip!r}.")
    _check_device(estimator.device)


def _check_device(device: Any) -> None:
    kind, _, number = str(device).partition(":")
    if kind not in ("cpu", "cuda") or not (number.isdigit() or number == ""):
        raise ValueError(f"device must be 'cpu' or a GPU like 'cuda' or 'cuda:0', got {device!r}.")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise ValueError(f"device={device!r} is not there: torch finds {torch.cuda.device_count()} GPUs; use 'cpu'.")


def _check_range(name: str, value: Any, low: float, high: float) -> None:
    """Weight decay must be positive: without a price the convex program has no certificate."""
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    inside = number and (low < value if name != "momentum" else low <= value) and value < high + (name == "drop")
    if not (inside and (name != "drop" or value <= 1)):
        bounds = {"momentum": "from 0 to below 1", "drop": "above 0 and at most 1", "weight_decay": "positive"}[name]
        raise ValueError(f"{name} must be a number {bounds}, got {value!r}.")


def _check_stages(downsample: Any, stages: int) -> None:
    listed = isinstance(downsample, Sequence) and not isinstance(downsample, str)
    if not listed or not all(is_whole(stage, 1) and stage <= stages for stage in downsample):
        raise ValueError(f"downsample must list stages from 1 to {stages}, like (2,), got {downsample!r}.")


def _check_rates(rate: Any, stages: int) -> None:
    if isinstance(rate, str):
        if rate != "auto":
            raise ValueError(f"learning_rate must be 'auto', a positive number, or one per stage, got {rate!r}.")
        return
    numbers = np.atleast_1d(np.asarray(rate, dtype=np.float64))
    if len(numbers) not in (1, stages) or numbers.ndim > 1 or not (np.isfinite(numbers) & (numbers > 0)).all():
        raise ValueError(f"learning_rate must be 'auto', a positive number, or one for each of {stages} stages.")


def _check_shape(shape: Any) -> None:
    if shape is None:
        return
    right = isinstance(shape, Sequence) and not isinstance(shape, str) and len(shape) == 3
    if not right or not all(is_whole(side, 1) for side in shape):
        raise ValueError(f"image_shape must be (channels, height, width) in positive whole numbers, got {shape!r}.")
