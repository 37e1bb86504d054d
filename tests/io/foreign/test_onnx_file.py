import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from torch import nn

from bidual.estimators.mlp import ConvexMLPClassifier, ConvexMLPRegressor
from bidual.io.foreign import from_file
from bidual.runtime.container import UnreadableFileError
from helpers.foreign_tools import X, agrees, network, own

H, A, W, B = (tensor.numpy() for tensor in network().state_dict().values())
STORED: dict[str, np.ndarray] = {
    "H": H,
    "A": A,
    "W": W,
    "B": B,
    "HT": H.T,
    "WT": W.T,
    "row": A[None],
    "one": np.ones(1),
}
STORED |= {"half": H / 2, "shape": np.array([-1, 3]), "flat": np.array([-1]), "S": np.ones((2, 6)), "W1": W[:1]}
STORED |= {"tall": np.ones((4, 5)), "nan": W * np.nan, "ints": H.astype(np.int8), "vector": np.ones(5)}


def node(op: str, inputs: str, output: str, **settings: Any) -> NodeProto:
    return helper.make_node(op, inputs.split(), [output], **settings)


def model(*nodes: NodeProto, inputs: int = 1, outputs: str = "y", shape: Any = ("n", 3), opset: int = 20) -> ModelProto:
    used = {name for each in nodes for name in each.input}
    stored = [numpy_helper.from_array(np.ascontiguousarray(v), k) for k, v in STORED.items() if k in used]
    samples = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, shape) for name in ("x", "x2")[:inputs]]
    results = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, None) for name in outputs.split()]
    graph = helper.make_graph(list(nodes), "g", samples, results, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def write(folder: Path, proto: ModelProto) -> Path:
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    return folder / "m.onnx"


FIRST, RELU = node("Gemm", "x H A", "h", transB=1), node("Relu", "h", "r")
LAST = node("Gemm", "r W B", "y", transB=1)
SPLIT = (node("MatMul", "x HT", "p"), node("Add", "A p", "h"))

ACCEPTED: dict[str, ModelProto] = {
    "gemm": model(FIRST, RELU, LAST),
    "gemm without trans": model(node("Gemm", "x HT A", "h"), RELU, node("Gemm", "r WT B", "y")),
    "matmul": model(*SPLIT, RELU, node("MatMul", "r WT", "q"), node("Add", "q B", "y")),
    "opset 7": model(FIRST, RELU, LAST, opset=7),
    "alpha": model(node("Gemm", "x half A", "h", transB=1, alpha=2.0), RELU, LAST),
    "row": model(node("MatMul", "x HT", "p"), node("Add", "p row", "h"), RELU, LAST),
    "transposed": model(node("Transpose", "H", "t", perm=[1, 0]), node("Gemm", "x t A", "h"), RELU, LAST),
    "casts": model(
        node("Cast", "x", "c", to=TensorProto.FLOAT),
        node("Cast", "H", "k", to=TensorProto.FLOAT),
        node("Gemm", "c k A", "h", transB=1),
        RELU,
        LAST,
    ),
    "harmless": model(
        node("Flatten", "x", "f"),
        node("Identity", "f", "i"),
        node("Gemm", "i H A", "h", transB=1),
        RELU,
        node("Dropout", "r", "d"),
        node("Gemm", "d W B", "e", transB=1),
        node("Flatten", "e", "y"),
    ),
    "reshape": model(node("Reshape", "x shape", "f"), node("Gemm", "f H A", "h", transB=1), RELU, LAST),
    "images": model(node("Flatten", "x", "f"), node("Gemm", "f H A", "h", transB=1), RELU, LAST, shape=("n", 1, 3)),
    "constants": model(
        helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(H)),
        node("Gemm", "x k A", "h", transB=1),
        RELU,
        LAST,
    ),
    "idle branch": model(FIRST, RELU, node("Tanh", "r", "idle"), LAST),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_graphs_agree(name: str, tmp_path: Path) -> None:
    assert agrees(from_file(write(tmp_path, ACCEPTED[name])), network())


def test_no_biases_factors_and_flat_outputs(tmp_path: Path) -> None:
    parts = node("Gemm", "x H A", "h", transB=1, beta=2.0), RELU
    graph = model(*parts, node("Gemm", "r W1", "o", transB=1), node("Reshape", "o flat", "y"))
    weights = from_file(write(tmp_path, graph))
    assert weights.output_bias is None
    assert agrees(weights, lambda x: (x @ torch.tensor(H).T + 2 * torch.tensor(A)).relu() @ torch.tensor(W[0]))


def test_initialisers_that_are_inputs_too(tmp_path: Path) -> None:
    graph = model(FIRST, RELU, LAST)
    graph.graph.input.extend(helper.make_tensor_value_info(k, TensorProto.DOUBLE, STORED[k].shape) for k in "HAWB")
    assert agrees(from_file(write(tmp_path, graph)), network())


REFUSED: dict[str, tuple[ModelProto, str]] = {
    "tanh": (model(FIRST, node("Tanh", "h", "r"), LAST), r"found Linear\(3, 5\), Tanh\."),
    "no relu": (model(FIRST, node("Gemm", "h W B", "y", transB=1)), r"Linear\(3, 5\), Linear\(5, 2\)"),
    "softmax": (model(FIRST, RELU, node("Gemm", "r W B", "s", transB=1), node("Softmax", "s", "y")), "Softmax"),
    "last relu": (
        model(FIRST, RELU, node("Gemm", "r W B", "s", transB=1), node("Relu", "s", "y")),
        "ReLU, Linear.*ReLU",
    ),
    "residual": (
        model(FIRST, RELU, node("Add", "r h", "k"), node("Gemm", "k W B", "y", transB=1)),
        "Add of 2 computed",
    ),
    "standardised": (model(node("Sub", "x one", "s"), node("Gemm", "s H A", "h", transB=1), RELU, LAST), "found Sub"),
    "shifted": (
        model(node("Add", "x one", "s"), node("Gemm", "s H A", "h", transB=1), RELU, LAST),
        "found Add",
    ),
    "shapes": (model(FIRST, RELU, node("Gemm", "r S", "y", transB=1)), "5 neurons, but the output layer takes 6"),
    "nan": (model(FIRST, RELU, node("Gemm", "r nan", "y", transB=1)), "output holds NaN"),
    "ints": (model(node("Gemm", "x ints A", "h", transB=1), RELU, LAST), "no floating point numbers"),
    "vector": (model(FIRST, RELU, node("MatMul", "r vector", "y")), r"weights of shape \(5,\)"),
    "bias per sample": (
        model(node("MatMul", "x HT", "p"), node("Add", "p tall", "h"), RELU, LAST),
        r"bias of shape \(4, 5\)",
    ),
    "integer cast": (
        model(node("Cast", "x", "i", to=TensorProto.INT64), node("MatMul", "i HT", "h"), RELU, LAST),
        "found Cast",
    ),
    "columns": (model(node("Gemm", "x HT A", "h", transA=1), RELU, LAST), "the samples as columns"),
    "left": (model(node("MatMul", "H x", "h"), RELU, LAST), "the samples as columns"),
    "per position": (model(FIRST, RELU, LAST, shape=("n", 7, 3)), "samples have 21 numbers each"),
    "mixed": (
        model(FIRST, RELU, node("Gemm", "r W B", "o", transB=1), node("Reshape", "o flat", "y")),
        "ends with Reshape",
    ),
    "outputs": (model(FIRST, RELU, LAST, outputs="y r"), "must have one output, got y, r"),
    "inputs": (model(FIRST, RELU, LAST, inputs=2), "must have one input, got x, x2"),
    "constant output": (model(FIRST, node("Identity", "H", "y")), "does not depend on the input"),
    "lost output": (model(FIRST, outputs="lost"), "does not depend on the input"),
    "cycle": (model(node("Relu", "y", "r"), LAST), "does not depend on the input|computed values"),
    "old": (model(FIRST, RELU, LAST, opset=6), "opset 6, before 7"),
    "foreign domain": (model(node("Gemm", "x H A", "h", transB=1, domain="com.x"), RELU, LAST), "found com.x.Gemm"),
    "training": (model(FIRST, RELU, node("Dropout", "r one one", "d"), node("MatMul", "d WT", "y")), "Dropout"),
    "empty": (ModelProto(), "holds no ONNX graph"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, tmp_path: Path) -> None:
    graph, message = REFUSED[name]
    with pytest.raises(UnreadableFileError, match=message) as caught:
        from_file(write(tmp_path, graph))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("keep", [5, 100, -1, -300])
def test_truncated_files(keep: int, tmp_path: Path) -> None:
    path = write(tmp_path, ACCEPTED["gemm"])
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(UnreadableFileError, match=r"cut off|no ONNX graph|opset"):
        from_file(path)


def test_names_that_are_no_text(tmp_path: Path) -> None:
    path = write(tmp_path, model(FIRST, node("Tanh", "h", "r"), LAST))
    path.write_bytes(path.read_bytes().replace(b"Tanh", b"\xff\xfeaa"))
    with pytest.raises(UnreadableFileError, match="ONNX"):
        from_file(path)


def test_short_tensors(tmp_path: Path) -> None:
    graph = model(FIRST, RELU, LAST)
    graph.graph.initializer[0].raw_data = b"1234"
    with pytest.raises(UnreadableFileError, match="is damaged; export the network again"):
        from_file(write(tmp_path, graph))


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A model in a folder, with its weights in a file beside it."""
    folder = tmp_path / "folder"
    folder.mkdir()
    onnx.save(
        model(FIRST, RELU, LAST), folder / "m.onnx", save_as_external_data=True, location="w.data", size_threshold=0
    )
    return folder / "m.onnx"


def test_weights_beside_the_file(outside: Path) -> None:
    assert agrees(from_file(outside), network())
    data = outside.parent / "w.data"
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(UnreadableFileError, match=r"'w.data', which is cut off"):
        from_file(outside)
    data.unlink()
    with pytest.raises(UnreadableFileError, match="is not there; copy that file"):
        from_file(outside)


@pytest.mark.parametrize("location", ["../w.data", "{absolute}", "link.data", "sub/../../w.data", ""])
def test_nothing_is_read_outside_the_folder(location: str, outside: Path) -> None:
    moved = (outside.parent / "w.data").rename(outside.parent.parent / "w.data")
    (outside.parent / "link.data").symlink_to(moved)
    graph = onnx.load(outside, load_external_data=False)
    for tensor in graph.graph.initializer:
        entry = next(item for item in tensor.external_data if item.key == "location")
        entry.value = location.format(absolute=moved)
    with pytest.raises(UnreadableFileError, match="outside its folder, where nothing is read"):
        from_file(write(outside.parent, graph))


def test_what_torch_exports(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Flatten(), *network(), nn.Identity()).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shapes = ({0: torch.export.Dim("n")},)
        torch.onnx.export(module, (X[:3],), tmp_path / "m.onnx", dynamo=True, verbose=False, dynamic_shapes=shapes)
    assert agrees(from_file(tmp_path / "m.onnx"), network())


@pytest.mark.parametrize("kind", ["flat", "two", pytest.param("three", marks=pytest.mark.slow)])
def test_what_this_package_exports(kind: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"n_gates": 4, "tol": 1e-1, "activation": "gated_relu"}
    if kind == "flat":
        estimator: Any = ConvexMLPRegressor(**settings).fit(X.numpy(), X[:, 0].numpy())
    else:
        labels = np.arange(len(X)) % (2 if kind == "two" else 3)
        loss = "softmax" if kind == "two" else "squared"
        estimator = ConvexMLPClassifier(loss=loss, **settings).fit(X.numpy(), labels)
    if kind == "flat":
        estimator.to_onnx(tmp_path / "gated.onnx")
        with pytest.raises(UnreadableFileError, match="not a two-layer ReLU network"):
            from_file(tmp_path / "gated.onnx")
    estimator.module_ = own(outputs={"flat": 1, "two": 2, "three": 3}[kind])
    estimator.to_onnx(tmp_path / "m.onnx")
    assert agrees(from_file(tmp_path / "m.onnx"), estimator.module_)
