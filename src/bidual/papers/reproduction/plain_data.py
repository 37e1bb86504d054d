"""Results as plain data: what JSON can hold."""

import dataclasses
import math
import os
from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np
from torch import Tensor, nn


def plain_data(value: Any) -> Any:
    """Mappings, lists, numbers and texts only; numbers that are not finite become "nan", "inf" and "-inf".

    Dataclasses become mappings of their fields; modules are left out.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (np.generic, np.ndarray, Tensor)):
        return plain_data(value.tolist())
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return _many(value)


def _many(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _mapping({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    if hasattr(value, "_asdict"):
        return _mapping(value._asdict())
    if isinstance(value, Mapping):
        return _mapping(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain_data(item) for item in value]
    raise TypeError(f"results must be plain data, got {type(value).__name__}; keep it out, or make it a dataclass.")


def _mapping(items: Mapping[Any, Any]) -> dict[str, Any]:
    return {_key(key): plain_data(item) for key, item in items.items() if not isinstance(item, nn.Module)}


def _key(key: Any) -> str:
    return ", ".join(map(str, key)) if isinstance(key, tuple) else str(key)
