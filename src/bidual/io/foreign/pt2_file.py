"""The weights in a torch.export archive, from its JSON graph and its raw tensors; its pickles are never opened.

In recent versions (seen in torch 2.13) an archive is a zip file with the graph as JSON (``models/*.json``), a JSON list
of the weights, and each weight as raw bytes.
"""

import json
import math
import zipfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bidual.io.foreign.graph import Graph, Lazy, Node
from bidual.io.foreign.weights import TwoLayerWeights
from bidual.runtime.json_text import one_line

Json = dict[str, Any]

_DTYPES = {6: torch.float16, 7: torch.float32, 8: torch.float64, 13: torch.bfloat16}  # torch._export.serde.schema
_SAVE_AGAIN = "save it again with torch.export.save of a newer torch, or as safetensors"
_DAMAGE = (
    *(KeyError, TypeError, IndexError, AttributeError, RuntimeError, OverflowError),  # JSON of another form
    *(json.JSONDecodeError, UnicodeDecodeError, zipfile.BadZipFile, EOFError, OSError),
)

_SAME_MEANING = {"relu": "Relu", "relu_": "Relu", "matmul": "MatMul", "mm": "MatMul"}
_SHAPES = ("view", "reshape", "_unsafe_view", "squeeze", "unsqueeze")
_COPIES = ("clone", "alias", "detach", "contiguous")


def from_pt2(path: Path) -> TwoLayerWeights:
    """The weights of a network that was saved by ``torch.export.save``."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _graph(_Archive(archive)).weights()
    except _DAMAGE as error:
        raise ValueError(
            f"it is not a torch.export archive, or is damaged ({one_line(error)}); {_SAVE_AGAIN}."
        ) from error


class _Archive:
    """The JSON files and raw tensors of an archive."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._zip = archive
        self._members = {info.filename.partition("/")[2]: info for info in archive.infolist()}
        models = [name for name in self._members if name.startswith("models/") and name.endswith(".json")]
        if len(models) != 1:
            raise ValueError(f"it holds {len(models)} torch.export graphs instead of one; {_SAVE_AGAIN}.")
        self.program: Json = json.loads(self._bytes(models[0]))
        config = f"data/weights/{models[0][len('models/') : -len('.json')]}_weights_config.json"
        if config not in self._members:
            raise ValueError(f"its weights are pickled, and pickle can run code, so they are not read; {_SAVE_AGAIN}.")
        self._weights: Json = json.loads(self._bytes(config))["config"]

    def tensor(self, name: str) -> Tensor:
        """A weight, in float64."""
        entry = self._weights[name]
        if entry["use_pickle"]:
            raise ValueError(f"its weight {name!r} is pickled, and pickle can run code; save it as a plain tensor.")
        meta = entry["tensor_meta"]
        if meta["dtype"] not in _DTYPES:
            raise ValueError(f"its weight {name!r} holds no floating point numbers; export without quantisation.")
        sizes, strides = ([int(item["as_int"]) for item in meta[key]] for key in ("sizes", "strides"))
        offset, dtype = int(meta["storage_offset"]["as_int"]), _DTYPES[meta["dtype"]]
        data = self._bytes(f"data/weights/{entry['path_name']}")
        if len(data) % dtype.itemsize or not _inside(sizes, strides, offset, len(data) // dtype.itemsize):
            raise ValueError(f"its weight {name!r} of shape {tuple(sizes)} has {len(data)} bytes; {_SAVE_AGAIN}.")
        return torch.frombuffer(bytearray(data), dtype=dtype).as_strided(sizes, strides, offset).to(torch.float64)

    def _bytes(self, name: str) -> bytes:
        """A member, which torch never compresses: so it is not larger than the file."""
        info = self._members[name]
        if info.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"its member {name} is compressed, which torch does not do; {_SAVE_AGAIN}.")
        return self._zip.read(info)


def _inside(sizes: list[int], strides: list[int], offset: int, length: int) -> bool:
    """Whether a strided tensor lies within so many numbers, without repeating any at will."""
    if len(sizes) != len(strides) or min([*sizes, 1]) < 1 or min([*strides, offset]) < 0:
        return False
    last = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    return last < length and math.prod(sizes) <= length


def _graph(archive: _Archive) -> Graph:
    module = archive.program["graph_module"]
    graph, signature = module["graph"], module["signature"]
    samples = _single(signature["input_specs"], "user_input")
    return Graph(
        nodes=[_node(item) for item in graph["nodes"] if item["outputs"]],
        constants=_constants(archive, signature["input_specs"]),
        input=samples,
        output=_single(signature["output_specs"], "user_output"),
        sizes=[size.get("as_int", 0) for size in graph["tensor_values"][samples]["sizes"]],
    )


def _single(specs: list[Json], kind: str) -> str:
    names = [spec[kind]["arg"].get("as_tensor", {}).get("name", "?") for spec in specs if kind in spec]
    if len(names) != 1 or names == ["?"]:
        what = kind.removeprefix("user_")
        raise ValueError(f"its graph must have one {what} tensor, got {', '.join(names) or 'none'}.")
    return names[0]


def _constants(archive: _Archive, specs: list[Json]) -> dict[str, Lazy]:
    stored = [(spec[kind], f"{kind}_name") for spec in specs for kind in ("parameter", "buffer") if kind in spec]
    return {one["arg"]["name"]: partial(archive.tensor, one[key]) for one, key in stored}


def _node(item: Json) -> Node:
    """An operation of torch in the words of ONNX; one that has none keeps its name, and is refused if it matters."""
    op = item["target"].removeprefix("torch.ops.").removeprefix("aten.").partition(".")[0]
    if op.endswith("_") and op != "relu_":
        raise ValueError(f"its graph changes values in place ({op}); only Linear, ReLU, Linear can be read.")
    arguments = {argument["name"]: argument["arg"] for argument in item["inputs"]}
    name, order, settings = _translate(op, arguments)
    tensors = {key: value["as_tensor"]["name"] for key, value in arguments.items() if "as_tensor" in value}
    inputs = tuple(tensors.get(key, "") for key in order) if order else tuple(tensors.values())
    outputs = (output["as_tensor"]["name"] for output in item["outputs"] if "as_tensor" in output)
    return Node(name, inputs, tuple(outputs), settings)


def _translate(op: str, arguments: Mapping[str, Json]) -> tuple[str, tuple[str, ...], Json]:
    """The ONNX operation, the order of its inputs (empty: as they come) and its settings."""
    number = {key: next(iter(value.values())) for key, value in arguments.items() if "as_tensor" not in value}
    if op == "linear":
        return "Gemm", ("input", "weight", "bias"), {"transB": 1}
    if op == "addmm":
        return "Gemm", ("mat1", "mat2", "self"), {key: number.get(key, 1) for key in ("alpha", "beta")}
    if op == "add" and number.get("alpha", 1) == 1 and "other" not in number:
        return "Add", (), {}
    if op == "flatten":
        return "Flatten", ("self",), {"axis": number.get("start_dim", 0)}
    if op in _SHAPES:
        return "Reshape", ("self",), {}
    if op in _COPIES or (op == "dropout" and number.get("train") is False):
        return "Identity", (), {}
    if op in ("to", "_to_copy"):
        return "Cast", ("self",), {"floating": number.get("dtype", 8) in _DTYPES}
    if op in ("t", "permute", "transpose"):
        return "Transpose", ("self",), {"swaps": _swaps(op, number)}
    return _SAME_MEANING.get(op, op), (), {}


def _swaps(op: str, number: Mapping[str, Any]) -> bool:
    """Whether a matrix is transposed."""
    if op == "transpose":
        return {number["dim0"] % 2, number["dim1"] % 2} == {0, 1}
    return op == "t" or list(number["dims"]) in ([1, 0], [-1, -2])
