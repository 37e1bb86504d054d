"""Python values as JSON with types, for the header of model files. Nothing here can name code to run."""

import dataclasses
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bidual.architectures.sub_network_gates import SubNetworkGates
from bidual.losses import LOSSES, Loss
from bidual.operators.patches import Convolution

Tensors = dict[str, Tensor]


def pack(value: Any, name: str, tensors: Tensors) -> Any:
    """A JSON value for ``value``; arrays with more than one axis go to ``tensors`` under ``name``."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return pack(value.item(), name, tensors)
    if isinstance(value, Loss):
        return {"loss": value.name, "settings": _settings(value)}
    if isinstance(value, Tensor):
        tensors[name] = value.detach().cpu().contiguous()
        return {"tensor": name}
    if isinstance(value, Convolution):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {"convolution": {k: pack(v, f"{name}.{k}", tensors) for k, v in fields.items()}}
    if isinstance(value, SubNetworkGates):
        return {"cells": [pack(getattr(value, k), f"{name}.{k}", tensors) for k in ("weights", "signs")]}
    if isinstance(value, tuple) and all(isinstance(item, int) for item in value):
        return {"numbers": list(value)}
    if isinstance(value, (list, tuple)) and not any(isinstance(item, (list, tuple, np.ndarray)) for item in value):
        return [pack(item, name, tensors) for item in value]
    if isinstance(value, (list, tuple)) or hasattr(value, "__array__"):
        return _pack_array(np.asarray(value), name, tensors)
    raise ValueError(
        f"cannot save {name}={value!r}: a model file holds numbers, texts, arrays and losses; "
        f"replace it with set_params({name}=...) before saving."
    )


def unpack(value: Any, tensors: Tensors) -> Any:
    """What :func:`pack` was given (tuples of anything but whole numbers come back as lists)."""
    if isinstance(value, list):
        return [unpack(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return tensors[value["tensor"]]
    if "array" in value:
        return tensors[value["array"]].numpy()
    if "numbers" in value:
        return tuple(int(item) for item in value["numbers"])
    if "convolution" in value:
        return Convolution(**{k: unpack(v, tensors) for k, v in value["convolution"].items()})
    if "cells" in value:
        return SubNetworkGates(*(unpack(v, tensors) for v in value["cells"]))
    if "loss" in value:
        return LOSSES[value["loss"]](**value["settings"])
    return _unpack_vector(value["values"], value["dtype"])


def _settings(loss: Loss) -> dict[str, Any]:
    return dataclasses.asdict(loss) if dataclasses.is_dataclass(loss) else {}


def _pack_array(array: NDArray[Any], name: str, tensors: Tensors) -> dict[str, Any]:
    if array.dtype.kind not in "biufUO" or (array.dtype.kind in "UO" and array.ndim != 1):
        raise ValueError(f"cannot save {name}: its values are of type {array.dtype}; use numbers or texts.")
    if array.ndim == 1:
        return {"values": [_plain(item, name) for item in array.tolist()], "dtype": _dtype_name(array)}
    native = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    tensors[name] = torch.tensor(native)
    return {"array": name}


def _plain(item: Any, name: str) -> bool | int | float | str:
    if isinstance(item, (bool, int, float, str)):
        return item
    raise ValueError(f"cannot save {name}: it holds {item!r}; use numbers or texts.")


def _dtype_name(array: NDArray[Any]) -> str:
    return {"U": "str", "O": "object"}.get(array.dtype.kind, array.dtype.name)


def _unpack_vector(values: list[Any], dtype: str) -> NDArray[Any]:
    if np.dtype(dtype).kind not in "biufUO":
        raise ValueError(f"a vector of type {dtype!r} is not known")
    return np.array(values, dtype=dtype)
