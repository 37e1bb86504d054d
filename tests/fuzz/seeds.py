"""One valid file, or a few, of every format that is read; made when they are asked for, never kept."""

import gzip
import io
import json
import struct
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import pandas as pd
import safetensors.torch
import torch
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from torch import nn

from bidual import (
    ConvexAttentionClassifier,
    ConvexCNNClassifier,
    ConvexMLPClassifier,
    ConvexMLPRegressorCV,
    ConvexParallelRegressor,
    LayerwiseCNNClassifier,
)
from bidual.distributed.fitting import Checkpoint
from bidual.estimators.base import ConvexEstimator
from bidual.estimators.saving import save
from bidual.io.tables import TableEncoder

Write = Callable[[Path], object]
X = np.random.default_rng(0).standard_normal((8, 4))
y = np.arange(8) % 2
IMAGES = np.random.default_rng(1).integers(0, 255, (8, 1, 4, 4), dtype=np.uint8)
LAYERWISE: dict[str, Any] = {"stages": 1, "n_gates": 2, "pooling": 1, "epochs": 2, "downsample": (), "crop": 0}
LAYERWISE |= {"learning_rate": 0.1, "certificate_samples": 4, "batch_size": 4}
ABOUT = {"beta": 1.0, "shape": [2, 3]}  # of the distributed checkpoint


def written(write: Write, name: str = "file") -> bytes:
    """What a function writes to a file."""
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write(Path(folder) / name)
        return (Path(folder) / name).read_bytes()


@cache
def models() -> tuple[bytes, ...]:
    gated: dict[str, Any] = {"activation": "gated_relu", "n_gates": 2, "tol": 0.1}
    table = pd.DataFrame({"a": X[:, 0], "b": list("xyxyxyxy")})
    encoder = TableEncoder().fit(table)
    plain: tuple[tuple[ConvexEstimator | LayerwiseCNNClassifier, np.ndarray], ...] = (
        (ConvexMLPClassifier(oracle="search", n_starts=4, tol=0.1, loss="log_loss"), X[:, :2]),
        (ConvexCNNClassifier(image_shape=(1, 2, 2), kernel_size=2, **gated), X),
        (ConvexAttentionClassifier(token_shape=(2, 2), **gated), X),
        (ConvexParallelRegressor(widths=2, activation="gated_relu", n_subnetworks=2, tol=0.1), X[:, :2]),
        (LayerwiseCNNClassifier(**LAYERWISE), IMAGES),
    )
    cv = ConvexMLPRegressorCV(**gated, n_betas=2, cv=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [written(lambda path, e=e, s=s: save(e.fit(s, y), path)) for e, s in plain]  # type: ignore[misc]
        return (*found, written(lambda path: save(cv.fit(encoder.transform(table), X[:, 1]), path, encoder)))


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).eval()


@cache
def foreign_safetensors() -> tuple[bytes, ...]:
    return (safetensors.torch.save(network().state_dict()), models()[0])


@cache
def pt2() -> tuple[bytes, ...]:
    program = torch.export.export(network(), (torch.zeros(4, 2),))
    return (written(lambda path: torch.export.save(program, path), "n.pt2"),)


@cache
def onnx_files() -> tuple[bytes, ...]:
    own = ConvexMLPClassifier(oracle="search", n_starts=4, tol=0.1).fit(X[:, :2], y)
    return _gemm().SerializeToString(), _external().SerializeToString(), written(own.to_onnx, "own.onnx")


def _gemm() -> onnx.ModelProto:
    weights = {name: tensor.numpy() for name, tensor in network().state_dict().items()}
    held = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    nodes = [
        helper.make_node("Gemm", ["x", "0.weight", "0.bias"], ["h"], transB=1),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Transpose", ["2.weight"], ["w"], perm=[1, 0]),
        helper.make_node("MatMul", ["r", "w"], ["m"]),
        helper.make_node("Add", ["m", "2.bias"], ["o"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, k]) for name, k in (("x", 2), ("o", 1))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def _external() -> onnx.ModelProto:
    model = _gemm()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "weights.bin"), ("offset", "0"), ("length", "24")):
        tensor.external_data.add(key=key, value=value)
    return model


@cache
def layerwise_checkpoint() -> tuple[bytes, ...]:
    def train(path: Path) -> None:
        LayerwiseCNNClassifier(**LAYERWISE | {"epochs": 1}, checkpoint=path.parent).fit(IMAGES, y)

    return (written(train, "checkpoint.safetensors"),)


@cache
def distributed_checkpoint() -> tuple[bytes, ...]:
    point = Checkpoint(ABOUT, torch.zeros(2, 3, 1).double(), torch.zeros(8, 1).double(), 0.5)
    return (written(point.write),)


@cache
def idx_files() -> tuple[bytes, ...]:
    plain = bytes([0, 0, 8, 3]) + struct.pack(">3I", 2, 3, 3) + bytes(range(18))
    return plain, gzip.compress(plain), bytes([0, 0, 8, 1]) + struct.pack(">I", 4) + b"\0\1\2\3"


def cifar_files() -> tuple[bytes, ...]:
    return (bytes([3]) + bytes(3072),)


@cache
def pictures() -> tuple[bytes, ...]:
    image = Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3))
    kinds: tuple[tuple[str, Image.Image], ...] = (
        *(("PNG", image), ("JPEG", image), ("BMP", image), ("GIF", image.convert("P")), ("PPM", image)),
        *(("WEBP", image), ("PNG", image.convert("RGBA")), ("PNG", image.convert("1"))),
    )
    return tuple(_saved(image, kind) for kind, image in kinds)


def _saved(image: Image.Image, kind: str) -> bytes:
    sink = io.BytesIO()
    image.save(sink, kind)
    return sink.getvalue()


def tables() -> tuple[bytes, ...]:
    return (
        *(b"a,b,y\n1,x,0\n2.5,,1\n-3e5,z,0\n", b'\xef\xbb\xbfa,"b,\nc",y\n1,"q""",2.5\n', b"y;a\n1;2\n"),
        *(b"a,y\n1,18446744073709551615\nTrue,nan\n", "é,y\n😀,1e400\n".encode("utf-16")),
    )


@cache
def parquets() -> tuple[bytes, ...]:
    frame = pd.DataFrame({"a": [1.0, None, 2.0], "b": list("xyz"), "c": pd.Categorical(list("ppq")), "y": [1, 2, 3]})
    return (written(lambda path: frame.to_parquet(path)),)


@cache
def arrays() -> tuple[bytes, ...]:
    return tuple(written(lambda path, kind=kind: _array(path, kind)) for kind in ("f8", "f4", "i4"))  # type: ignore[misc]


def _array(path: Path, kind: str) -> None:
    with path.open("wb") as file:
        np.save(file, X.astype(kind))


def reports() -> tuple[bytes, ...]:
    row = {"beta": 1.0, "fraction": 0.5, "loss": 0.1, "neurons": 3, "relative_gap": 1e-4, "seconds": 0.1}
    path = {"task": "regression", "beta_max": 2.0, "seconds": 1.0, "path": [row, row | {"beta": 0.5}]}
    fit = {"task": "regression", "rows": 8, "features": 2, "beta": 0.1, "beta_max": 1.0, "primal": 1.0, "dual": 0.9}
    fit |= {"relative_gap": 0.1, "scope": "BLOCKS", "neurons": 3, "solver": "fista", "train_r2": 0.5, "seconds": 0.1}
    fit |= {"cv": {"betas": [0.1, 0.2], "score": "loss", "values": [[0.1, 0.2], [0.3, None]]}}
    judged = {"task": "regression", "loss": "squared", "rows": 8, "features": 2, "neurons": 3, "outputs": 1}
    judged |= {"beta": 0.1, "objective": 1.0, "lower_bound": 0.9, "relative_gap": 0.1, "status": "done"}
    judged |= {"better_objective": 0.95, "seconds": 0.1, "out": None}
    return tuple(json.dumps(value).encode() for value in (path, fit, judged, reproduction()))


def reproduction() -> dict[str, Any]:
    claim = {"paper": "p", "ours": "o", "holds": True, "why": "w"}
    facts: dict[str, Any] = {"format": 1, "kind": "bidual reproduction", "row": "R1", "name": "cp_figure_1"}
    facts |= {"title": "t", "source": "s", "seed": 0, "scale": "smoke", "seconds": 1.0, "started": "2026-01-01"}
    facts |= {
        "machine": {"cpu": "x"},
        "version": "0.1.0",
        "commit": None,
        "fingerprint": "f",
        "configuration": {"n": 1},
    }
    return facts | {"claims": [claim], "table": "| a | b |\n|---|---|\n| 1 | 2 |\n", "data": [1.0]}


def reproductions() -> tuple[bytes, ...]:
    return (json.dumps(reproduction()).encode(),)


def races() -> tuple[bytes, ...]:
    rung = {"tolerance": 1e-3, "cpu": 0.5, "wall": 0.6, "gap": 1e-4, "claimed": None}
    runs = [
        {"system": name, "rungs": [rung], "ending": ending, "message": "m"}
        for name, ending in (("bidual", "done"), ("celer", "limit"), ("scs", "crash"))
    ]
    case = {"name": "c", "label": "l", "spec": {"n": 1}, "target": 1e-3, "needs": {"celer": 2.0, "scs": None}}
    case |= {"at_most": 10.0, "limit": 60.0, "measured": "today", "runs": runs}
    return (json.dumps({"cases": [case], "when": "today"}).encode(),)
