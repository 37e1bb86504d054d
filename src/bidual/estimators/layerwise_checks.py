"""What can be refused of a layerwise classifier: single parameters, parameters together, and sizes beyond memory."""

import re
from collections.abc import Mapping
from typing import Any

import torch

from bidual.estimators import parameters
from bidual.estimators.class_weights import check_class_weight
from bidual.estimators.parameters import is_auto, is_list, is_number, is_whole, must, whole
from bidual.runtime.ranks import Ranks

_LARGEST = 1e30  # whose products are numbers in float32
MOMENTUM = must("a number from 0 to below 1", lambda value: is_number(value) and 0 <= value < 1)
DROP = must("a number above 0 and at most 1", lambda value: is_number(value) and 0 < value <= 1)
CROP = must("'auto' or a whole number of at least 0 pixels", lambda value: is_auto(value) or is_whole(value, 0))
SHAPE = must(
    "(channels, height, width) in positive whole numbers, at most one of them -1",
    lambda value: value is None or _is_shape(value),
)


def _is_shape(value: Any) -> bool:
    right = is_list(value) and len(value) == 3 and all(is_whole(side, 1) or side == -1 for side in value)
    return right and sum(side == -1 for side in value) < 2


def kernel(name: str, value: Any) -> None:
    whole(1)(name, value)
    must("odd, so that maps keep their size", lambda side: side % 2 == 1)(name, value)


def weight_decay(name: str, value: Any) -> None:
    """It must be positive: without a price the convex program has no certificate."""
    most = f", and below {_LARGEST:g}" if is_number(value) and value > 1 else ""
    must(f"a positive number{most}", lambda beta: is_number(beta) and 0 < beta < _LARGEST)(name, value)


def class_weight(name: str, value: Any) -> None:
    """A class of weight zero would be in all batches for nothing, and float32 has no weights that are too large."""
    check_class_weight(name, value)
    for label, weight in value.items() if isinstance(value, Mapping) else ():
        if not 1 / _LARGEST < weight < _LARGEST:
            raise ValueError(
                f"{name} must be positive here, and below {_LARGEST:g}, got {weight!r} for class {label!r}."
            )


def device(name: str, value: Any) -> None:
    kind, _, number = str(value).partition(":")
    if kind not in ("cpu", "cuda") or not re.fullmatch("[0-9]{0,2}", number):
        raise ValueError(f"{name} must be 'cpu' or a GPU like 'cuda' or 'cuda:0', got {value!r}.")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise ValueError(f"{name}={value!r} is not there: torch finds {torch.cuda.device_count()} GPUs; use 'cpu'.")


def check_together(estimator: Any) -> None:
    """Raise a ValueError for a parameter that does not fit another one."""
    stages, downsample = estimator.stages, estimator.downsample
    if not is_list(downsample) or not all(is_whole(stage, 1) and stage <= stages for stage in downsample):
        raise ValueError(f"downsample must list stages from 1 to {stages}, like (2,), got {downsample!r}.")
    wanted = f"'auto', a positive number below {_LARGEST:g}, or one for each of {stages} stages"
    must(wanted, lambda rate: is_auto(rate) or _are_rates(rate, stages))("learning_rate", estimator.learning_rate)
    if estimator.resume and estimator.checkpoint is None:
        raise ValueError("resume=True needs the folder of a checkpoint; set checkpoint.")


def _are_rates(rate: Any, stages: int) -> bool:
    rates = [rate] if is_number(rate) else list(rate) if is_list(rate) else []
    return len(rates) in (1, stages) and all(is_number(one) and 0 < one < _LARGEST for one in rates)


def check_ranks(estimator: Any, ranks: Ranks) -> None:
    """Raise a ValueError if these ranks cannot train together."""
    if ranks.size > 1 and estimator.device not in ("cpu", "cuda"):
        raise ValueError(f"every rank takes a GPU of its own; use device='cuda', got {estimator.device!r}.")
    if ranks.size > 1 and estimator.device == "cuda" and ranks.device.type != "cuda":
        raise ValueError("device='cuda' needs a GPU for each rank; use torchrun_ranks(device='cuda'), or device='cpu'.")


def check_memory(estimator: Any, sample_shape: tuple[int, ...]) -> None:
    """Refuse a network that does not fit, or crops that are larger than the images, once their shape is known."""
    channels, height, width = sample_shape
    if not isinstance(estimator.crop, str) and estimator.crop > min(height, width):
        raise ValueError(f"crop must be at most the side of the images, {min(height, width)}, got {estimator.crop}.")
    per_stage = estimator.n_gates * estimator.units * (1 + estimator.factors)
    seen = 4 * max(channels, estimator.n_gates * estimator.factors)
    batch = min(estimator.batch_size, 128) * height * width
    need = 4 * per_stage * (seen * estimator.kernel_size**2 + batch)
    what = f"a stage of {estimator.n_gates} gates with {estimator.factors} factors and {estimator.units} units"
    parameters.check_memory(need, torch.device(estimator.device), what, "use fewer")
