"""The weights in a safetensors file: two layers by their names and shapes."""

import re
from collections.abc import Mapping
from pathlib import Path

import safetensors
from torch import Tensor

from bidual.io.foreign.weights import TwoLayerWeights
from bidual.runtime.json_text import one_line

Shape = tuple[int, ...]

_FIRST = {"hidden", "input", "in", "encoder", "enc", "first", "up"}
_LAST = {"output", "out", "decoder", "dec", "last", "second", "down", "head", "readout", "classifier"}


def from_safetensors(path: Path) -> TwoLayerWeights:
    """Two tensors named ``<layer>.weight``, of shapes (m, d) and (c, m), and their ``<layer>.bias``.

    A file of tensors does not say what is between the layers: a ReLU is assumed.
    """
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            first, second = _layers(shapes)
            tensors = {name: file.get_tensor(name) for name in shapes}
    except safetensors.SafetensorError as error:
        raise ValueError(f"it is not a safetensors file, or is cut off ({one_line(error)}); save it again.") from error
    return TwoLayerWeights.of(*_of_layer(first, second, "weight", tensors), *_of_layer(first, second, "bias", tensors))  # type: ignore[arg-type]


def _of_layer(first: str, second: str, what: str, tensors: Mapping[str, Tensor]) -> list[Tensor | None]:
    return [tensors.get(layer + what) for layer in (first, second)]


def _layers(shapes: Mapping[str, Shape]) -> tuple[str, str]:
    """The prefixes of the hidden and the output layer."""
    matrices = {name.removesuffix("weight"): shape for name, shape in shapes.items() if _is_matrix(name, shape)}
    known = {prefix + what for prefix in matrices for what in ("weight", "bias")}
    strange = [name for name in shapes if name not in known]
    if len(matrices) != 2 or strange:
        shown = ", ".join(f"{name} {shape}" for name, shape in list(shapes.items())[:6]) or "nothing"
        more = ", ..." if len(shapes) > 6 else ""
        raise ValueError(
            "it must hold the weight matrices of two linear layers, named like 'fc1.weight' and 'fc1.bias', and "
            f"nothing else; it holds {shown}{more}."
        )
    return _in_order(matrices)


def _is_matrix(name: str, shape: Shape) -> bool:
    return name.endswith("weight") and len(shape) == 2


def _in_order(matrices: Mapping[str, Shape]) -> tuple[str, str]:
    """By the shapes where only one order fits, else by the names."""
    a, b = matrices
    fitting = [(p, q) for p, q in ((a, b), (b, a)) if matrices[p][0] == matrices[q][1]]
    if not fitting:
        raise ValueError(
            f"the layers {a}weight {matrices[a]} and {b}weight {matrices[b]} do not follow each other; the second must "
            "have one column per row of the first."
        )
    return fitting[0] if len(fitting) == 1 else _by_name(a, b)


def _by_name(a: str, b: str) -> tuple[str, str]:
    """By numbers in the names, else by words like hidden and output; refused if neither tells."""
    ranks = _rank(a), _rank(b)
    if ranks[0] == ranks[1]:
        raise ValueError(
            f"the layers {a}weight and {b}weight fit together in both orders, and their names do not tell which is "
            "first; name them like 'hidden.weight' and 'output.weight'."
        )
    return (a, b) if ranks[0] < ranks[1] else (b, a)


def _rank(name: str) -> tuple[int, list[int]]:
    words = set(re.split(r"[^a-z]+", name.lower()))
    place = bool(words & _LAST) - bool(words & _FIRST)
    return place, [int(digits) for digits in re.findall(r"\d+", name)]
