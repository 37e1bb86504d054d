"""No file that is read can run code, be it named or made so that something would open it."""

import io
import json
import os
import pickle
import shutil
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper

from bidual import certify, load
from bidual.io.foreign import from_file
from bidual.operators.tiled import MappedRows
from fuzz import seeds
from fuzz.judging import check_command, check_refusal


class Payload:
    """Touches a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.marker}",)


def refused(path: Path, marker: Path, message: str | None = None) -> None:
    """Every reader of networks refuses the file, and nothing has run."""
    for reader in (from_file, load, lambda p: certify(p, np.zeros((2, 2)), [0.0, 1.0], 0.1)):
        with pytest.raises((ValueError, OSError), match=message if reader is from_file else None) as caught:
            reader(path)
        check_refusal(caught.value)
    assert not marker.exists()


def test_the_payload_would_run(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Payload(tmp_path / "ran")))
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".pkl", ".pickle", ".joblib", ".ckpt", ".bin", "", ".safetensors"])
def test_a_pickle_by_any_name(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"network{suffix}"
    path.write_bytes(pickle.dumps(Payload(tmp_path / "ran")))
    refused(path, tmp_path / "ran")
    path.with_suffix(".onnx").write_bytes(path.read_bytes())
    refused(path.with_suffix(".onnx"), tmp_path / "ran")


def test_what_torch_saves_is_a_pickle(tmp_path: Path) -> None:
    for name in ("network.pt", "network.pt2", "network"):
        torch.save(Payload(tmp_path / "ran"), tmp_path / name)
        refused(tmp_path / name, tmp_path / "ran")


def _replaced(archive: bytes, change: dict[str, bytes]) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as source, zipfile.ZipFile(sink, "w") as target:
        for info in source.infolist():
            key = next((key for key in change if key in info.filename), None)
            target.writestr(info.filename, source.read(info) if key is None else change[key])
    return sink.getvalue()


def test_pickles_within_an_exported_program_are_not_opened(tmp_path: Path) -> None:
    (archive,) = seeds.pt2()
    path, payload = tmp_path / "n.pt2", pickle.dumps(Payload(tmp_path / "ran"))
    path.write_bytes(_replaced(archive, {"sample_inputs": payload, "constants": payload}))
    try:
        from_file(path)
    except ValueError as error:
        check_refusal(error)
    assert not (tmp_path / "ran").exists()
    with zipfile.ZipFile(io.BytesIO(archive)) as source:
        config = next(name for name in source.namelist() if name.endswith("weights_config.json"))
        pickled = source.read(config).replace(b'"use_pickle": false', b'"use_pickle": true')
    path.write_bytes(_replaced(archive, {"weights_config.json": pickled, "data/weights/weight_": payload}))
    refused(path, tmp_path / "ran", "pickle")


def test_arrays_of_objects_are_not_opened(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", np.array([Payload(tmp_path / "ran")], dtype=object))
    with pytest.raises(ValueError, match=r"not a \.npy file of numbers"):
        MappedRows.open(tmp_path / "t.npy")
    arguments = ("t.npy", "--target", "0", "--out", "m", "--activation", "gated_relu", "--beta", "auto")
    assert check_command(tmp_path, "fit", "--distributed", *arguments).code == 2
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "location", ["../secret.bin", "/etc/hostname", "sub/secret.bin", "link.bin", "a/../../secret.bin"]
)
def test_onnx_weights_are_read_from_the_folder_of_the_model_only(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "models"
    (folder / "sub").mkdir(parents=True)
    for place in (tmp_path, folder / "sub"):
        (place / "secret.bin").write_bytes(np.ones(6, np.float32).tobytes())
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    model = onnx.load_model_from_string(seeds.onnx_files()[1])
    entry = model.graph.initializer[0].external_data[0]
    entry.value = location
    (folder / "n.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ValueError, match="outside its folder"):
        from_file(folder / "n.onnx")
    entry.value = "weights.bin"
    shutil.copy(tmp_path / "secret.bin", folder / "weights.bin")
    (folder / "n.onnx").write_bytes(model.SerializeToString())
    assert float(from_file(folder / "n.onnx").hidden.sum()) == 6.0


def test_custom_operations_are_refused(tmp_path: Path) -> None:
    model = onnx.load_model_from_string(seeds.onnx_files()[0])
    model.graph.node[1].CopyFrom(helper.make_node("Relu", ["h"], ["r"], domain="evil.ops"))
    (tmp_path / "n.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ValueError, match=r"evil\.ops\.Relu"):
        from_file(tmp_path / "n.onnx")


def test_metadata_names_no_code(tmp_path: Path) -> None:
    data = seeds.models()[0]
    size = 8 + int.from_bytes(data[:8], "little")
    about = json.loads(data[8:size])
    model = json.loads(about["__metadata__"]["bidual"])
    model["header"]["estimator"] = "os.system"
    about["__metadata__"]["bidual"] = json.dumps(model)
    head = json.dumps(about).encode()
    (tmp_path / "m.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + data[size:])
    with pytest.raises(ValueError, match=r"os\.system"):
        load(tmp_path / "m.safetensors")
