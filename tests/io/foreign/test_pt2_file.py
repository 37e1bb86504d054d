import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from bidual.io.foreign import from_file
from bidual.runtime.container import UnreadableFileError
from helpers.foreign_tools import Functional, X, agrees, network, own


def export(module: nn.Module, path: Path, core: bool = False, example: Tensor = X[:4]) -> Path:
    program = torch.export.export(module, (example,), dynamic_shapes=({0: torch.export.Dim("n")},))
    torch.export.save(program.run_decompositions() if core else program, path)
    return path


class Plain(nn.Module):
    """Weights without layers."""

    def __init__(self) -> None:
        super().__init__()
        first, _, last = network(output_bias=False)
        self.H, self.A, self.W = (nn.Parameter(value.detach()) for value in (first.weight.T, first.bias, last.weight))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x @ self.H + self.A) @ self.W.t()


class Tampering(Functional):
    """What the nodes' names say is not what is computed."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.fc1(x).relu()
        hidden.mul_(2)
        return self.fc2(hidden)


class Pair(Functional):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x), x


ACCEPTED: dict[str, tuple[nn.Module, Tensor]] = {
    "sequential": (network(), X[:4]),
    "no biases": (network(bias=False, output_bias=False), X[:4]),
    "harmless": (nn.Sequential(nn.Flatten(), *network()[:2], nn.Dropout(0.5), network()[2]).eval(), X[:4, None]),
    "in place": (nn.Sequential(network()[0], nn.ReLU(inplace=True), network()[2]), X[:4]),
    "flat": (nn.Sequential(*network(outputs=1), nn.Flatten(0)), X[:4]),
    "own": (own(), X[:4].float()),
    "plain": (Plain(), X[:4]),
}


@pytest.mark.parametrize(
    ("name", "core"), [*((name, False) for name in ACCEPTED), ("harmless", True), ("own", True), ("plain", True)]
)
def test_archives_agree(name: str, core: bool, tmp_path: Path) -> None:
    module, example = ACCEPTED[name]
    if name == "own":
        module.forward = lambda x: type(module).forward(module, x.to(torch.float64))
    weights = from_file(export(module, tmp_path / "m.pt2", core, example))
    assert agrees(weights, lambda x: module(x[:, None] if name == "harmless" else x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_precisions_and_content(dtype: torch.dtype, tmp_path: Path) -> None:
    module = network(dtype=dtype)
    path = export(module, tmp_path / "m.pt2", example=X[:4].to(dtype)).rename(tmp_path / "model")
    assert agrees(from_file(path), module.double())


REFUSED: dict[str, tuple[nn.Module, str]] = {
    "tanh": (Functional(torch.tanh), r"found Linear\(3, 5\), tanh\."),
    "deep": (
        nn.Sequential(*network()[:2], nn.Linear(5, 5).double(), nn.ReLU(), network()[2]),
        "ReLU, Linear.*ReLU, Lin",
    ),
    "softmax": (nn.Sequential(*network(), nn.Softmax(1)), r"Linear\(5, 2\), softmax"),
    "in place": (Tampering(), r"changes values in place \(mul_\)"),
    "residual": (Functional(lambda h: h + h.relu()), "Add of 2 computed values"),
    "two outputs": (Pair(), "must have one output tensor"),
    "training": (nn.Sequential(*network()[:2], nn.Dropout(0.5), network()[2]).train(), "dropout"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, tmp_path: Path) -> None:
    module, message = REFUSED[name]
    with pytest.raises(UnreadableFileError, match=message) as caught:
        from_file(export(module, tmp_path / "m.pt2"))
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(network(), tmp_path_factory.mktemp("pt2") / "m.pt2")


def rewrite(source: Path, target: Path, change: Callable[[str, bytes], bytes | None], **settings: Any) -> Path:
    """A copy of an archive with other members; None leaves one out."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", **settings) as new:
        for name in old.namelist():
            data = change(name.partition("/")[2], old.read(name))
            if data is not None:
                new.writestr(name, data)
    return target


class Payload:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_the_payload_works(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Payload(tmp_path / "ran")))
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("marked", [True, False])
def test_pickles_in_an_archive_never_run(marked: bool, archive: Path, tmp_path: Path) -> None:
    """Every member that torch would unpickle is one that creates a file, and the weights say they are pickled too."""
    ran = tmp_path / "ran"
    evil = pickle.dumps(Payload(ran))

    def poison(name: str, data: bytes) -> bytes:
        if name.endswith("weights_config.json"):
            return data.replace(b'"use_pickle": false', b'"use_pickle": true') if marked else data
        poisoned = name.startswith("data/sample_inputs") or (marked and name.startswith("data/weights/"))
        return evil if poisoned else data

    path = rewrite(archive, tmp_path / "m.pt2", poison)
    if marked:
        with pytest.raises(UnreadableFileError, match="is pickled, and pickle can run code"):
            from_file(path)
    else:
        assert agrees(from_file(path), network())
    assert not ran.exists()


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".pkl", ".joblib", ".pickle", ".ckpt", ".PT", "", ".model"])
def test_pickled_files_are_refused_unopened(suffix: str, tmp_path: Path) -> None:
    path, ran = tmp_path / f"m{suffix}", tmp_path / "ran"
    path.write_bytes(pickle.dumps(Payload(ran)))
    with pytest.raises(UnreadableFileError, match=r"pickle can run code; save it with safetensors.torch.save_file"):
        from_file(path)
    assert not ran.exists()


@pytest.mark.parametrize("name", ["m.pt2", "m"])
def test_torch_save_by_another_name(name: str, tmp_path: Path) -> None:
    torch.save(Payload(tmp_path / "ran"), tmp_path / name)
    with pytest.raises(UnreadableFileError, match=r"0 torch\.export graphs instead of one"):
        from_file(tmp_path / name)
    assert not (tmp_path / "ran").exists()


def in_json(**changes: Any) -> Callable[[str, bytes], bytes]:
    """Change the meta data of the first weight."""

    def change(name: str, data: bytes) -> bytes:
        if not name.endswith("weights_config.json"):
            return data
        config = json.loads(data)
        config["config"]["0.weight"]["tensor_meta"] |= changes
        return json.dumps(config).encode()

    return change


def on(part: str, data: bytes | None) -> Callable[[str, bytes], bytes | None]:
    return lambda name, old: data if part in name else old


DAMAGE: dict[str, tuple[Callable[[str, bytes], bytes | None], str]] = {
    "old weights": (on("weights_config", None), "its weights are pickled"),
    "no graph": (on("models/", None), "0 torch.export graphs"),
    "no weight": (on("weights/weight_0", None), "is damaged"),
    "short weight": (on("weights/weight_0", b"12345678"), "has 8 bytes"),
    "odd weight": (on("weights/weight_0", bytes(121)), "has 121 bytes"),
    "graph": (on("models/", b"{"), "is damaged"),
    "graph form": (on("models/", b"[]"), "is damaged"),
    "graph text": (on("models/", b"\xff\xfe"), "is damaged"),
    "deep graph": (on("models/", b"[" * 100_000), "is damaged"),
    "config": (on("weights_config", b'{"config": []}'), "is damaged"),
    "huge": (in_json(sizes=[{"as_int": 10**12}] * 2, strides=[{"as_int": 0}] * 2), "has 120 bytes"),
    "beyond": (in_json(storage_offset={"as_int": 5}), "has 120 bytes"),
    "overflow": (in_json(storage_offset={"as_int": 10**30}), "has 120 bytes"),
    "backwards": (in_json(strides=[{"as_int": -3}, {"as_int": 1}]), "has 120 bytes"),
    "one stride": (in_json(strides=[{"as_int": 1}]), "has 120 bytes"),
    "negative": (in_json(sizes=[{"as_int": -5}, {"as_int": 3}]), "has 120 bytes"),
    "wrong shapes": (in_json(sizes=[{"as_int": 4}, {"as_int": 3}]), r"bias of shape \(5,\)"),
    "integers": (in_json(dtype=5), "no floating point numbers"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_archives(name: str, archive: Path, tmp_path: Path) -> None:
    change, message = DAMAGE[name]
    with pytest.raises(UnreadableFileError, match=message) as caught:
        from_file(rewrite(archive, tmp_path / "m.pt2", change))
    assert "\n" not in str(caught.value)


def test_compressed_archives_are_refused(archive: Path, tmp_path: Path) -> None:
    path = rewrite(archive, tmp_path / "m.pt2", lambda _, data: data, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(UnreadableFileError, match="is compressed"):
        from_file(path)


@pytest.mark.parametrize("keep", [0, 10, 500, -1, -100])
def test_truncated_archives(keep: int, archive: Path, tmp_path: Path) -> None:
    (tmp_path / "m.pt2").write_bytes(archive.read_bytes()[:keep])
    with pytest.raises(UnreadableFileError, match=r"not a torch\.export archive, or is damaged|0 torch\.export graphs"):
        from_file(tmp_path / "m.pt2")


def test_flipped_bytes_are_noticed(archive: Path, tmp_path: Path) -> None:
    data = archive.read_bytes()
    place = data.index(network()[0].weight.detach().numpy().tobytes())
    (tmp_path / "m.pt2").write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    with pytest.raises(UnreadableFileError, match="Bad CRC"):
        from_file(tmp_path / "m.pt2")


def test_other_files(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a,b\n1,2\n" * 9)
    for path, message in [
        (tmp_path / "none.pt2", "there is no such file"),
        (tmp_path, "it is a folder"),
        (tmp_path / "text", "of no known kind"),
    ]:
        with pytest.raises(UnreadableFileError, match=message):
            from_file(path)
    save_file({"a": torch.ones(1)}, tmp_path / "m.onnx")  # the suffix decides
    with pytest.raises(UnreadableFileError, match="ONNX"):
        from_file(str(tmp_path / "m.onnx"))
