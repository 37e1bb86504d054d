"""The weights in a file. No format is read that can run code."""

import os
from pathlib import Path

from bidual.io.foreign.state_dict import from_safetensors
from bidual.io.foreign.weights import TwoLayerWeights
from bidual.runtime.container import UnreadableFileError
from bidual.runtime.extras import need

PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".joblib", ".ckpt", ".bin")
_HOW = "save it with safetensors.torch.save_file(module.state_dict(), 'model.safetensors') or torch.export.save instead"


def from_file(path: str | os.PathLike[str]) -> TwoLayerWeights:
    """The weights of a two-layer ReLU network in a safetensors, ONNX or torch.export (``.pt2``) file.

    The suffix decides, and where it says nothing, the content. Pickled files are refused: opening one can run any code.
    """
    path = Path(path)
    if not path.is_file():
        what = "it is a folder" if path.is_dir() else "there is no such file"
        raise UnreadableFileError(f"cannot read {path}: {what}; give a .safetensors, .onnx or .pt2 file.")
    try:
        return _read(path, _kind(path))
    except ValueError as error:
        raise UnreadableFileError(f"cannot read a network from {path}: {error}") from error


def _kind(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix in PICKLES:
        raise ValueError(f"a {suffix} file is pickled, and pickle can run code; {_HOW}.")
    return suffix if suffix in (".safetensors", ".onnx", ".pt2") else _sniff(path)


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


def _read(path: Path, kind: str) -> TwoLayerWeights:
    if kind == ".safetensors":
        return from_safetensors(path)
    if kind == ".pt2":
        from bidual.io.foreign.pt2_file import from_pt2

        return from_pt2(path)
    need("onnx")
    from bidual.io.foreign.onnx_file import from_onnx  # onnx takes a while to import

    return from_onnx(path)
