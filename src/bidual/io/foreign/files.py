"""The weights in a file, in safetensors by the names and shapes of tensors. No format is read that can run code."""

import os
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

import safetensors

from bidual.io.foreign.weights import TwoLayerWeights
from bidual.runtime.container import UnreadableFileError
from bidual.runtime.extras import need
from bidual.runtime.json_text import one_line

Shape = tuple[int, ...]
PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".joblib", ".ckpt", ".bin")
_HOW = "save it with safetensors.torch.save_file(module.state_dict(), 'model.safetensors') or torch.export.save instead"
_FIRST = {"hidden", "input", "in", "encoder", "enc", "first", "up"}
_LAST = {"output", "out", "decoder", "dec", "last", "second", "down", "head", "readout", "classifier"}


def from_file(path: str | os.PathLike[str], head: Sequence[str] | None = None) -> TwoLayerWeights:
    """The weights of a two-layer ReLU network in a safetensors, ONNX or torch.export (``.pt2``) file.

    The suffix decides, and where it says nothing, the content. Pickled files are refused: opening one can run any code.
    ``head`` names two layers among others in a safetensors file, which are taken to follow each other with a ReLU
    between: what is before them is in the samples already.
    """
    path = Path(path)
    if not path.is_file():
        what = "it is a folder" if path.is_dir() else "there is no such file"
        raise UnreadableFileError(f"cannot read {path}: {what}; give a .safetensors, .onnx or .pt2 file.")
    suffix = path.suffix.lower()
    try:
        if suffix in PICKLES:
            raise ValueError(f"a {suffix} file is pickled, and pickle can run code; {_HOW}.")
        return _read(path, suffix if suffix in (".safetensors", ".onnx", ".pt2") else _sniff(path), head)
    except ValueError as error:
        raise UnreadableFileError(f"cannot read a network from {path}: {error}") from error


def _sniff(path: Path) -> str:
    """What the first bytes say."""
    with path.open("rb") as file:
        start = file.read(16)
    if start[8:9] == b"{":
        return ".safetensors"
    if start.startswith(b"PK"):
        return ".pt2"
    if start.startswith(b"\x80"):
        raise ValueError(f"it is pickled, and pickle can run code; {_HOW}.")
    raise ValueError("it is of no known kind; give a .safetensors, .onnx or .pt2 file.")


def _read(path: Path, kind: str, head: Sequence[str] | None) -> TwoLayerWeights:
    if kind == ".safetensors":
        return _from_safetensors(path, head)
    if head is not None:
        raise ValueError(f"a head is named in .safetensors files only, and this is {kind}; save its state_dict() so.")
    if kind == ".pt2":
        from bidual.io.foreign.pt2_file import from_pt2

        return from_pt2(path)
    need("onnx")
    from bidual.io.foreign.onnx_file import from_onnx  # onnx takes a while to import

    return from_onnx(path)


def _from_safetensors(path: Path, head: Sequence[str] | None) -> TwoLayerWeights:
    """Two tensors named ``<layer>.weight``, of shapes (m, d) and (c, m), and their ``<layer>.bias``.

    A file of tensors does not say what is between the layers: a ReLU is assumed.
    """
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            if head is not None:
                shapes = _of_head(shapes, head)
            first, second = _layers(shapes) if head is None else (f"{name}." for name in head)
            tensors = {name: file.get_tensor(name) for name in shapes}
    except safetensors.SafetensorError as error:
        raise ValueError(f"it is not a safetensors file, or is cut off ({one_line(error)}); save it again.") from error
    biases = (tensors.get(f"{layer}bias") for layer in (first, second))
    return TwoLayerWeights.of(tensors[f"{first}weight"], tensors[f"{second}weight"], *biases)


def _layers(shapes: Mapping[str, Shape]) -> tuple[str, str]:
    """The prefixes of the hidden and the output layer."""
    named = {name: shape for name, shape in shapes.items() if name.endswith("weight") and len(shape) == 2}
    matrices = {name.removesuffix("weight"): shape for name, shape in named.items()}
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


def _of_head(shapes: Mapping[str, Shape], head: Sequence[str]) -> dict[str, Shape]:
    """The tensors of the two layers that are named."""
    layers = [
        name.removesuffix(".weight") for name, shape in shapes.items() if name.endswith(".weight") and len(shape) == 2
    ]
    for name in head:
        if name not in layers:
            near = get_close_matches(name, layers, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(layers[:8]) or 'none'}."
            raise ValueError(f"it has no layer {name!r}; {hint}")
    return {name: shape for name, shape in shapes.items() if name.rpartition(".")[0] in head}


def _in_order(matrices: Mapping[str, Shape]) -> tuple[str, str]:
    """By the shapes where only one order fits, else by the names."""
    a, b = matrices
    fitting = [(p, q) for p, q in ((a, b), (b, a)) if matrices[p][0] == matrices[q][1]]
    if not fitting:
        raise ValueError(
            f"the layers {a}weight {matrices[a]} and {b}weight {matrices[b]} do not follow each other; the second must "
            "have one column per row of the first."
        )
    if len(fitting) == 1:
        return fitting[0]
    if _rank(a) == _rank(b):
        raise ValueError(
            f"the layers {a}weight and {b}weight fit together in both orders, and their names do not tell which is "
            "first; name them like 'hidden.weight' and 'output.weight'."
        )
    return (a, b) if _rank(a) < _rank(b) else (b, a)


def _rank(name: str) -> tuple[int, list[int]]:
    """By words like hidden and output, else by numbers."""
    words = set(re.split(r"[^a-z]+", name.lower()))
    place = bool(words & _LAST) - bool(words & _FIRST)
    return place, [int(digits) for digits in re.findall(r"\d+", name)]
