from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from bidual.estimators.certifying import read_network
from bidual.estimators.mlp import ConvexMLPRegressor
from bidual.estimators.saving import read_saved, save
from bidual.io.foreign import from_file
from bidual.io.tables import TableEncoder
from bidual.runtime.container import UnreadableFileError
from helpers.foreign_tools import X, agrees, network, own

STATE = dict(zip(("hidden", "hidden_bias", "output", "output_bias"), network().state_dict().values(), strict=True))


def write(path: Path, tensors: dict[str, Tensor], **metadata: str) -> Path:
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata or None)
    return path


def named(first: str, second: str) -> dict[str, Tensor]:
    names = (f"{first}weight", f"{first}bias", f"{second}weight", f"{second}bias")
    return dict(zip(names, STATE.values(), strict=True))


@pytest.mark.parametrize(("first", "second"), [("0.", "2."), ("net.fc1.", "net.fc2."), ("z.", "a."), ("l1_", "l2_")])
def test_names_do_not_matter_where_shapes_tell(first: str, second: str, tmp_path: Path) -> None:
    assert agrees(from_file(write(tmp_path / "m.safetensors", named(first, second))), network())


def test_missing_biases_suffixes_and_precisions(tmp_path: Path) -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        module = network(bias=False, dtype=dtype)
        weights = from_file(write(tmp_path / "model", module.state_dict(), format="pt"))
        assert weights.hidden_bias is None
        assert agrees(weights, module.double())


def square(first: str, second: str) -> dict[str, Tensor]:
    """Both orders of the layers fit."""
    return {f"{first}.weight": torch.ones(4, 3), f"{second}.weight": -torch.ones(3, 4), f"{second}.bias": torch.ones(3)}


@pytest.mark.parametrize(
    ("first", "second"), [("encoder", "decoder"), ("hidden", "output"), ("fc2", "fc10"), ("a.0", "a.2"), ("x", "head")]
)
def test_names_tell_where_shapes_do_not(first: str, second: str, tmp_path: Path) -> None:
    weights = from_file(write(tmp_path / "m.safetensors", square(first, second)))
    assert weights.hidden.shape == (4, 3)
    assert weights.output_bias is not None


REFUSED: dict[str, tuple[dict[str, Tensor], str]] = {
    "no order": (square("left", "right"), "fit together in both orders"),
    "wrong shapes": ({"a.weight": torch.ones(5, 3), "b.weight": torch.ones(2, 6)}, "do not follow each other"),
    "three layers": (named("0.", "2.") | {"4.weight": torch.ones(2, 2)}, "weight matrices of two linear layers"),
    "one layer": ({"0.weight": torch.ones(5, 3)}, r"it holds 0.weight \(5, 3\)"),
    "empty": ({}, "it holds nothing"),
    "batch norm": (named("0.", "3.") | {"1.weight": torch.ones(5), "1.bias": torch.ones(5)}, "and nothing else"),
    "buffer": (named("0.", "3.") | {"1.running_mean": torch.ones(5)}, "and nothing else"),
    "conv": ({"0.weight": torch.ones(5, 3, 1, 1), "1.weight": torch.ones(2, 5)}, "two linear layers"),
    "flax": ({"a.kernel": torch.ones(3, 5), "b.kernel": torch.ones(5, 2)}, "named like 'fc1.weight'"),
    "bias": (named("0.", "2.") | {"0.bias": torch.ones(4)}, r"hidden_bias must have shape \(5,\)"),
    "integers": ({k: v.to(torch.int8) for k, v in named("0.", "2.").items()}, "must be floating point numbers"),
    "diverged": (named("0.", "2.") | {"2.weight": torch.full((2, 5), torch.nan)}, "output holds NaN"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, tmp_path: Path) -> None:
    tensors, message = REFUSED[name]
    path = write(tmp_path / "m.safetensors", tensors)
    with pytest.raises(UnreadableFileError, match=message) as caught:
        from_file(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("keep", [0, 4, 60, -1])
def test_truncated_files(keep: int, tmp_path: Path) -> None:
    path = write(tmp_path / "m.safetensors", named("0.", "2."))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(UnreadableFileError, match="not a safetensors file, or is cut off"):
        from_file(path)


@pytest.fixture
def fitted() -> Any:
    return ConvexMLPRegressor(n_gates=4, tol=1e-1, activation="gated_relu").fit(X.numpy(), X[:, :2].numpy())


def test_models_of_this_package(fitted: Any, tmp_path: Path) -> None:
    fitted.module_ = own()
    save(fitted, tmp_path / "m", TableEncoder())
    assert agrees(read_network(tmp_path / "m"), own())
    saved = read_saved(tmp_path / "m")
    assert saved is not None
    assert saved.encoder is not None
    assert read_saved(write(tmp_path / "other", named("0.", "2."))) is None
    assert read_saved(tmp_path / "none") is None


def test_gated_models_of_this_package_are_refused(fitted: Any, tmp_path: Path) -> None:
    save(fitted, tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match="a network of kind 'gated_mlp'"):
        read_network(tmp_path / "m.safetensors")
    with pytest.raises(UnreadableFileError, match="two linear layers"):
        from_file(tmp_path / "m.safetensors")
