"""Python values as JSON with types, for the header of model files. Nothing here can name code to run."""

from enum import Enum
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bidual.architectures import ARCHITECTURES
from bidual.gauges import GAUGES
from bidual.losses import LOSSES
from bidual.runtime.container import Tensors
from bidual.runtime.registry import PARTS, Registry, settings_of
from bidual.solvers import SOLVERS

_ROOMS: dict[str, Registry[Any]] = {room.what: room for room in (LOSSES, GAUGES, SOLVERS, ARCHITECTURES, PARTS)}


def pack(value: Any, name: str, tensors: Tensors) -> Any:
    """A JSON value for ``value``; arrays with more than one axis go to ``tensors`` under ``name``.

    Losses, gauges, solvers, architectures and parts become the name of their class and their settings.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, np.generic):
        return pack(value.item(), name, tensors)
    if isinstance(value, Tensor):
        tensors[name] = value
        return {"tensor": name}
    for what, room in _ROOMS.items():
        if isinstance(value, room.base):
            settings = settings_of(value).items()
            return {what: room.name_of(value), "settings": {k: pack(v, f"{name}.{k}", tensors) for k, v in settings}}
    if isinstance(value, (list, tuple)) and not any(isinstance(item, (list, tuple, np.ndarray)) for item in value):
        items = [pack(item, f"{name}.{k}", tensors) for k, item in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, (list, tuple)) or hasattr(value, "__array__"):
        return _pack_array(np.asarray(value), name, tensors)
    raise ValueError(
        f"cannot save {name}={value!r}: a model file holds numbers, strings, arrays, losses, gauges and solvers; "
        f"replace it with set_params({name}=...) before saving."
    )


def unpack(value: Any, tensors: Tensors) -> Any:
    """What :func:`pack` was given."""
    if isinstance(value, list):
        return [unpack(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return tensors[value["tensor"]]
    if "array" in value:
        return tensors[value["array"]].numpy()
    if "tuple" in value:
        return tuple(unpack(item, tensors) for item in value["tuple"])
    for what, room in _ROOMS.items():
        if what in value:
            return room.make(value[what], {k: unpack(v, tensors) for k, v in value["settings"].items()})
    return _unpack_vector(value["values"], value["dtype"])


def _pack_array(array: NDArray[Any], name: str, tensors: Tensors) -> dict[str, Any]:
    if array.dtype.kind not in "biufUO" or (array.dtype.kind in "UO" and array.ndim != 1):
        raise ValueError(f"cannot save {name}: its values are of type {array.dtype}; use numbers or strings.")
    if array.ndim == 1:
        return {"values": [_plain(item, name) for item in array.tolist()], "dtype": _dtype_name(array)}
    native = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    tensors[name] = torch.tensor(native)
    return {"array": name}


def _plain(item: Any, name: str) -> bool | int | float | str:
    if isinstance(item, (bool, int, float, str)):
        return item
    raise ValueError(f"cannot save {name}: it holds {item!r}; use numbers or strings.")


def _dtype_name(array: NDArray[Any]) -> str:
    return {"U": "str", "O": "object"}.get(array.dtype.kind, array.dtype.name)


def _unpack_vector(values: list[Any], dtype: str) -> NDArray[Any]:
    if np.dtype(dtype).kind not in "biufUO":
        raise ValueError(f"a vector of type {dtype!r} is not known")
    return np.array(values, dtype=dtype)
