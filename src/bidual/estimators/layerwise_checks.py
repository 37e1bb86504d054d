"""What can be refused of a layerwise classifier before its data are looked at."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from bidual.estimators.network import is_whole
from bidual.runtime.extras import need
from bidual.runtime.memory import available_bytes, human_bytes
from bidual.runtime.ranks import Ranks

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
_MOST = {"stages": 100} | dict.fromkeys(("gates", "factors", "units"), 10**6)
_COUNTABLE = 2**53  # more than any data set has samples
_LARGEST = 1e30  # whose products are numbers in float32
_RANGES = {"momentum": (0.0, 1.0), "drop": (0.0, 1.0), "weight_decay": (0.0, _LARGEST)}


def check_parameters(estimator: Any) -> None:
    """Raise a ValueError for the first parameter that makes no sense."""
    if estimator.verbose:
        need("rich")
    for name, least in _WHOLE.items():
        if not is_whole(getattr(estimator, name), least):
            raise ValueError(f"{name} must be a whole number of at least {least}, got {getattr(estimator, name)!r}.")
        if getattr(estimator, name) > (most := _MOST.get(name, _COUNTABLE)):
            raise ValueError(f"{name} must be at most {most}, got {getattr(estimator, name)!r}.")
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


def check_ranks(estimator: Any, ranks: Ranks) -> None:
    """Raise a ValueError if these ranks cannot train together."""
    if estimator.batch_size < ranks.size:
        raise ValueError(
            f"{ranks.size} ranks cannot share batches of {estimator.batch_size} images; start at most "
            f"{estimator.batch_size}, or make batch_size larger."
        )
    if ranks.size > 1 and estimator.device not in ("cpu", "cuda"):
        raise ValueError(f"every rank takes a GPU of its own; use device='cuda', got {estimator.device!r}.")
    if ranks.size > 1 and estimator.device == "cuda" and ranks.device.type != "cuda":
        raise ValueError("device='cuda' needs a GPU for each rank; use torchrun_ranks(device='cuda'), or device='cpu'.")


def _check_device(device: Any) -> None:
    kind, _, number = str(device).partition(":")
    if kind not in ("cpu", "cuda") or not re.fullmatch("[0-9]{0,2}", number):
        raise ValueError(f"device must be 'cpu' or a GPU like 'cuda' or 'cuda:0', got {device!r}.")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise ValueError(f"device={device!r} is not there: torch finds {torch.cuda.device_count()} GPUs; use 'cpu'.")


def _check_range(name: str, value: Any, low: float, high: float) -> None:
    """Weight decay must be positive: without a price the convex program has no certificate."""
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    inside = number and (low < value if name != "momentum" else low <= value) and value < high + (name == "drop")
    if not (inside and (name != "drop" or value <= 1)):
        bounds = {
            "momentum": "from 0 to below 1",
            "drop": "above 0 and at most 1",
            "weight_decay": "positive",
        }[name]
        most = f", and below {_LARGEST:g}" if name == "weight_decay" and number and value > 1 else ""
        raise ValueError(f"{name} must be a number {bounds}{most}, got {value!r}.")


def _check_stages(downsample: Any, stages: int) -> None:
    listed = isinstance(downsample, Sequence) and not isinstance(downsample, str)
    if not listed or not all(is_whole(stage, 1) and stage <= stages for stage in downsample):
        raise ValueError(f"downsample must list stages from 1 to {stages}, like (2,), got {downsample!r}.")


def _check_rates(rate: Any, stages: int) -> None:
    if isinstance(rate, str):
        if rate != "auto":
            raise ValueError(f"learning_rate must be 'auto', a positive number, or one per stage, got {rate!r}.")
        return
    try:
        numbers = np.atleast_1d(np.asarray(rate, dtype=np.float64))
    except (TypeError, ValueError, OverflowError):
        numbers = np.array([np.nan])
    if numbers.ndim > 1 or len(numbers) not in (1, stages) or not ((numbers > 0) & (numbers < _LARGEST)).all():
        raise ValueError(
            f"learning_rate must be 'auto', a positive number below {_LARGEST:g}, or one for each of {stages} stages, "
            f"got {rate!r}."
        )


def _check_shape(shape: Any) -> None:
    if shape is None:
        return
    right = isinstance(shape, Sequence) and not isinstance(shape, str) and len(shape) == 3
    if not right or not all(is_whole(side, 1) for side in shape):
        raise ValueError(f"image_shape must be (channels, height, width) in positive whole numbers, got {shape!r}.")


def check_memory(estimator: Any, sample_shape: tuple[int, ...]) -> None:
    """Refuse a network that does not fit, or crops that are larger than the images, once their shape is known."""
    channels, height, width = sample_shape
    if not isinstance(estimator.crop, str) and estimator.crop > min(height, width):
        raise ValueError(f"crop must be at most the side of the images, {min(height, width)}, got {estimator.crop}.")
    per_stage = estimator.gates * estimator.units * (1 + estimator.factors)
    seen = 4 * max(channels, estimator.gates * estimator.factors)
    batch = min(estimator.batch_size, 128) * height * width
    need = 4 * per_stage * (seen * estimator.kernel_size**2 + batch)
    if need > (there := available_bytes(torch.device(estimator.device))):
        raise ValueError(
            f"a stage of {estimator.gates} gates with {estimator.factors} factors and {estimator.units} units would "
            f"need {human_bytes(need)}, and {human_bytes(there)} are free; use fewer."
        )
