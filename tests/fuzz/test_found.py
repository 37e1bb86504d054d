"""What fuzzing has found, each once and small."""

import gzip
import io
import json
import os
import subprocess
import sys
import zipfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pytest
import safetensors.torch
import torch
from onnx import helper

from bidual import ConvexMLPRegressor, LayerwiseCNNClassifier, certify, load, regularization_path, regularization_paths
from bidual.io.datasets.images import read_idx
from bidual.io.foreign import from_file
from bidual.io.tables import TableEncoder, split_target, target_values
from bidual.operators.parallel import as_widths
from fuzz import seeds
from fuzz.judging import check_command
from fuzz.targets import TARGETS

X, y = np.arange(12.0).reshape(6, 2), np.arange(6.0)
DEEP = "[" * 20_000


def test_names_of_columns_are_no_markup(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,[/y]\n1,2.5\n2,3.5\n3,1.5\n")
    arguments = ("--target", "[/y]", "--n-betas", "2", "--activation", "linear")
    assert "regression of [/y]" in check_command(tmp_path, "path", "t.csv", *arguments).out


@pytest.mark.parametrize("name", ["model", "checkpoint", "distributed_checkpoint"])
def test_headers_that_are_nested_too_deeply(name: str) -> None:
    TARGETS[name].run(safetensors.torch.save({"x": torch.zeros(1)}, metadata={"bidual": DEEP}))


def test_json_that_is_nested_too_deeply_or_of_another_kind() -> None:
    for name in ("race", "reproduction"):
        TARGETS[name].run(DEEP.encode())
    for field, value in (("needs", "x"), ("label", 3), ("target", []), ("limit", 10**400), ("needs", {"celer": []})):
        race = json.loads(seeds.races()[0])
        race["cases"][0][field] = value
        TARGETS["race"].run(json.dumps(race).encode())


@pytest.mark.parametrize("shape", ["(8, 4999999999999999999999999)", "a\x10\xe5x4)", "((((", "(-1, 2)"])
def test_headers_of_arrays(shape: str) -> None:
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode("latin-1")
    TARGETS["npy"].run(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64))


def test_columns_of_lists_and_labels_beyond_64_bits() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0], "y": [{"k": 1}, {"k": 2}]})
    with pytest.raises(ValueError, match="one number or text per row"):
        split_target(frame, "y")
    with pytest.raises(ValueError, match="one number or text per row"):
        TableEncoder().fit(frame)
    large = pd.Series([2**64 - 1, 3], dtype="uint64")
    assert target_values(large, "classification").tolist() == [2**64 - 1, 3]


@pytest.mark.parametrize("scale", [1e101, 1e300])
def test_numbers_whose_products_overflow(scale: float) -> None:
    for samples, targets in ((scale * X, y), (X, scale * y)):
        with pytest.raises(ValueError, match="use larger units, or standardise"):
            ConvexMLPRegressor().fit(samples, targets)
        with pytest.raises(ValueError, match="use larger units, or standardise"):
            regularization_path(ConvexMLPRegressor(), samples, targets)


@pytest.mark.parametrize(
    "changes",
    [
        *({"n_gates": 10**12}, {"stages": 10**9}, {"factors": 10**20}, {"batch_size": 10**20}, {"crop": 10**9}),
        *({"learning_rate": 1e300}, {"learning_rate": object()}, {"weight_decay": 1e300}, {"device": "cpu:²"}),
        {"n_gates": 10**6, "factors": 10**6},
    ],
)
def test_layerwise_settings_that_no_machine_can_hold(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be|would need"):
        LayerwiseCNNClassifier(**seeds.LAYERWISE | changes).fit(seeds.IMAGES, seeds.y)


@pytest.mark.parametrize("change", [{"n_features_in_": 10**12}, {"n_features_in_": "x"}])
def test_a_header_does_not_make_a_sample_of_any_size(tmp_path: Path, change: dict[str, Any]) -> None:
    data = seeds.models()[0]
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    about = json.loads(header["__metadata__"]["bidual"])
    about["header"]["fitted"] |= change
    header["__metadata__"]["bidual"] = json.dumps(about)
    text = json.dumps(header).encode()
    (tmp_path / "m").write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    with pytest.raises(ValueError, match="cannot be"):
        load(tmp_path / "m")


def test_graphs_of_very_many_operations(tmp_path: Path) -> None:
    for op, first in (("Transpose", "2.weight"), ("Relu", "x")):
        model = onnx.load_model_from_string(seeds.onnx_files()[0])
        names = [first, *(f"v{k}" for k in range(3000))]
        chain = [helper.make_node(op, [a], [b]) for a, b in pairwise(names)]
        model.graph.node.extend(chain)
        (tmp_path / "n.onnx").write_bytes(model.SerializeToString())
        with pytest.raises(ValueError, match="3005 operations"):
            from_file(tmp_path / "n.onnx")


def test_what_an_archive_says_of_itself_is_cut_short(tmp_path: Path) -> None:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr(f"n/models/{'m' * 9000}.json", "{}")
    (tmp_path / "n.pt2").write_bytes(sink.getvalue().replace(b"n/models", b"x/models", 1))
    with pytest.raises(ValueError, match="damaged") as caught:
        from_file(tmp_path / "n.pt2")
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "change",
    [{"beta": "x"}, {"beta": (2,)}, {"tol": None}, {"oracle": np.eye(3)}, {"n_starts": np.eye(3)}, {"loss": [1]}],
)
def test_settings_of_certify(change: dict[str, Any]) -> None:
    network = seeds.network()
    with pytest.raises(ValueError, match="must be"):
        certify(network, X, y, **{"beta": 0.1} | change)


def test_widths_in_an_array_without_axes() -> None:
    assert as_widths(np.array(2)) == (2,)
    with pytest.raises(ValueError, match="widths must be"):
        as_widths(np.array(2.5))


def test_settings_of_paths() -> None:
    for seeds_given in (None, ["x"], [-1], [0.5]):
        with pytest.raises(ValueError, match="seeds must be whole numbers"):
            regularization_paths(ConvexMLPRegressor(), X, y, seeds=seeds_given)
    for change in ({"n_betas": 10**9}, {"n_betas": "x"}, {"ratio": None}):
        with pytest.raises(ValueError, match="a path needs"):
            regularization_path(ConvexMLPRegressor(), X, y, **change)


def test_a_name_that_is_no_text_is_still_shown(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,é\n1,2.5\n2,3.5\n")
    call = [sys.executable, "-m", "bidual", "predict", b"\xff.safetensors", "t.csv"]
    env = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(call, capture_output=True, cwd=tmp_path, env=env)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.count(b"\n") == 1


def test_idx_files_that_announce_or_unpack_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "many").write_bytes(bytes([0, 0, 8, 255]) + b"[" * 2000)
    with pytest.raises(ValueError, match="announces 255 axes"):
        read_idx(tmp_path / "many")
    monkeypatch.setattr("bidual.io.datasets.images._LARGEST", 1000)
    (tmp_path / "bomb").write_bytes(gzip.compress(bytes(5000)))
    with pytest.raises(ValueError, match="unpacks to more than 1000 bytes"):
        read_idx(tmp_path / "bomb")
