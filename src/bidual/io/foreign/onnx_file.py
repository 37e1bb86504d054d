"""The weights in an ONNX file, from its graph."""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from google.protobuf.message import DecodeError
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, numpy_helper
from torch import Tensor

from bidual.io.foreign.graph import Graph, Lazy, Node
from bidual.io.foreign.weights import TwoLayerWeights

_OLDEST_OPSET = 7  # before it, additions broadcast by attributes
_WIDTHS: dict[int, int] = {  # bytes per number
    TensorProto.FLOAT: 4,
    TensorProto.DOUBLE: 8,
    TensorProto.FLOAT16: 2,
    TensorProto.BFLOAT16: 2,
}
_DAMAGE = (TypeError, AttributeError, LookupError, RuntimeError, OverflowError)  # names that are no text, lost inputs


def from_onnx(path: Path) -> TwoLayerWeights:
    """The weights of a graph of Gemm or MatMul (with Add), Relu, and again Gemm or MatMul (with Add).

    It may cast between floating types, and reshape where that keeps samples apart. Of a graph that this package
    exported, the network is taken without what makes labels of its outputs. Weights kept beside the file are read from
    its own folder only.
    """
    try:
        return _graph(_parse(path), path.parent).weights()
    except _DAMAGE as error:
        raise ValueError(f"it is a damaged ONNX file ({type(error).__name__}); export the network again.") from error


def _graph(model: ModelProto, folder: Path) -> Graph:
    graph = model.graph
    stored = {tensor.name for tensor in graph.initializer}
    samples = _single([value for value in graph.input if value.name not in stored], "input")
    ours = model.producer_name == "bidual"
    end = graph.output[0] if ours and graph.output else _single(graph.output, "output")
    return Graph(
        nodes=[_node(node) for node in graph.node if node.op_type != "Constant"],
        constants=_constants(graph, folder),
        input=samples.name,
        output=end.name,
        sizes=[dim.dim_value if dim.HasField("dim_value") else 0 for dim in samples.type.tensor_type.shape.dim],
        has_head=ours,
    )


def _parse(path: Path) -> ModelProto:
    try:
        model = onnx.load_model_from_string(path.read_bytes())
    except DecodeError as error:
        raise ValueError("it is not an ONNX file, or is cut off; export the network again.") from error
    if not model.graph.node:
        raise ValueError("it holds no ONNX graph; export the network again.")
    opset = max((item.version for item in model.opset_import if item.domain in ("", "ai.onnx")), default=0)
    if opset < _OLDEST_OPSET:
        raise ValueError(f"it has ONNX opset {opset}, before {_OLDEST_OPSET}; export the network with a newer one.")
    return model


def _single(values: Sequence[ValueInfoProto], what: str) -> ValueInfoProto:
    if len(values) != 1:
        names = ", ".join(value.name for value in values[:4]) or "none"
        raise ValueError(f"its graph must have one {what}, got {names}; export the network alone, with raw outputs.")
    return values[0]


def _node(node: NodeProto) -> Node:
    settings: dict[str, Any] = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    op = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
    inputs = tuple(node.input)
    if op == "Dropout" and len(inputs) < 3:  # a third input can switch it on
        op, inputs = "Identity", inputs[:1]
    settings["floating"] = settings.get("to") in _WIDTHS
    settings["swaps"] = list(settings.get("perm", [1, 0])) == [1, 0]
    return Node(op, inputs, tuple(node.output), settings)


def _constants(graph: GraphProto, folder: Path) -> dict[str, Lazy]:
    found: dict[str, Lazy] = {tensor.name: partial(_read, tensor, folder) for tensor in graph.initializer}
    for node in graph.node:
        value = next((item for item in node.attribute if item.name == "value"), None)
        if node.op_type == "Constant" and value is not None and value.type == AttributeProto.TENSOR:
            found[node.output[0]] = partial(_read, value.t, folder)
    return found


def _read(tensor: TensorProto, folder: Path) -> Tensor:
    if tensor.data_type not in _WIDTHS:
        raise ValueError(f"its tensor {tensor.name!r} holds no floating point numbers; export without quantisation.")
    if tensor.data_location == TensorProto.EXTERNAL:
        tensor = _with_data(tensor, folder)
    try:
        array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError) as error:
        raise ValueError(f"its tensor {tensor.name!r} is damaged; export the network again.") from error
    return torch.tensor(np.asarray(array, dtype=np.float64))


def _with_data(tensor: TensorProto, folder: Path) -> TensorProto:
    """The tensor with its numbers from a file beside the model, never from another folder."""
    entries = {item.key: item.value for item in tensor.external_data}
    location = entries.get("location", "")
    file = (folder / location).resolve()
    if not location or file.parent != folder.resolve():
        raise ValueError(f"its weights lie in {location!r}, outside its folder, where nothing is read; export again.")
    if not file.is_file():
        raise ValueError(f"its weights lie in {location!r}, which is not there; copy that file beside the model.")
    inline = TensorProto()
    inline.CopyFrom(tensor)
    del inline.external_data[:]
    inline.data_location = TensorProto.DEFAULT
    inline.raw_data = _slice(file, entries.get("offset", "0"), math.prod(tensor.dims) * _WIDTHS[tensor.data_type])
    return inline


def _slice(file: Path, where: str, length: int) -> bytes:
    offset = int(where) if where.isdecimal() else -1
    if offset < 0 or length < 0 or offset + length > file.stat().st_size:
        raise ValueError(f"its weights lie in {file.name!r}, which is cut off; export the network again.")
    with file.open("rb") as stream:
        stream.seek(offset)
        return stream.read(length)
