import gzip
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bidual.io.datasets import IMAGE_SOURCES, ImageData, load_images
from bidual.io.datasets.images import read_cifar10, read_idx
from helpers.official_files import cifar_files, cifar_source, mnist_files, mnist_source, write
from helpers.places import SHARED

MNIST_FILES, CIFAR_FILES = mnist_files(), cifar_files()
TEST_FILES = {name: raw for name, raw in MNIST_FILES.items() if name.startswith("t10k")}


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Made-up checksums, no data folder in the environment, and an empty cache."""
    sources = {one.name: one for one in (mnist_source(MNIST_FILES), cifar_source(CIFAR_FILES))}
    monkeypatch.setattr("bidual.io.datasets.images.IMAGE_SOURCES", {**IMAGE_SOURCES, **sources})
    monkeypatch.setattr("bidual.io.datasets.official_files.user_cache_path", lambda name: tmp_path / "cache" / name)
    monkeypatch.delenv("BIDUAL_DATA", raising=False)


def test_idx_files_come_as_channels_first(tmp_path: Path) -> None:
    write(tmp_path / "mnist", MNIST_FILES)
    data = load_images("MNIST", tmp_path)
    assert data.train_images.shape == (6, 1, 28, 28)
    assert data.test_images.shape == (3, 1, 28, 28)
    assert data.train_labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert (data.train_images.dtype, data.train_labels.dtype, data.note) == (np.uint8, np.int64, "")
    assert data.classes[3] == "3"


@pytest.mark.parametrize("name", ["cifar10", "CIFAR-10", "Cifar_10"])
def test_names_are_forgiving(tmp_path: Path, name: str) -> None:
    write(tmp_path / "cifar-10-batches-bin", CIFAR_FILES)
    data = load_images(name, tmp_path)
    assert (data.name, data.size, data.note) == ("cifar-10", (3, 32, 32), "")
    assert (len(data.train_images), len(data.test_images)) == (20, 4)
    assert data.test_images[0, 0, 0].tolist() == list(CIFAR_FILES["test_batch.bin"][1:33])


def test_a_partial_cifar10_says_so(tmp_path: Path) -> None:
    lost = {"data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"}
    write(tmp_path / "cifar-10-batches-bin", {name: raw for name, raw in CIFAR_FILES.items() if name not in lost})
    data = load_images("cifar-10", tmp_path)
    assert len(data.train_images) == 8
    assert data.note == "CIFAR-10 without data_batch_3, 4, 5: 8 of 20 training images"
    assert load_images("cifar-10", tmp_path, part="test").note == ""


@pytest.mark.parametrize("kept", [["test_batch.bin"], ["data_batch_1.bin"], []])
def test_cifar10_needs_a_batch_and_the_test_images(tmp_path: Path, kept: list[str]) -> None:
    write(tmp_path / "cifar-10-batches-bin", {name: CIFAR_FILES[name] for name in kept})
    with pytest.raises(FileNotFoundError, match=r"CIFAR-10 lacks \w+\.bin"):
        load_images("cifar-10", tmp_path)


def test_test_images_alone(tmp_path: Path) -> None:
    write(tmp_path / "mnist", TEST_FILES)
    data = load_images("mnist", tmp_path, part="test")
    assert data.train_images.shape == (0, 1, 28, 28)
    assert data.test_labels.tolist() == [0, 1, 2]
    with pytest.raises(FileNotFoundError, match=r"lacks train-images-idx3-ubyte\.gz and 1 more.*by part='test'\."):
        load_images("mnist", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"lacks train-images.* which folder holds mnist\.$"):
        load_images("mnist", tmp_path, part="train")


def test_a_missing_set_says_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "env").mkdir()
    monkeypatch.setenv("BIDUAL_DATA", str(tmp_path / "env"))
    with pytest.raises(FileNotFoundError, match="download=True or from http") as caught:
        load_images("mnist")
    for place in (tmp_path / "env/mnist", tmp_path / "env", tmp_path / "cache/bidual/mnist"):
        assert str(place) in str(caught.value)
    assert str(caught.value).count(". ") == 0


def test_folders_are_searched_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "cache/bidual/mnist", MNIST_FILES)
    assert len(load_images("mnist").train_images) == 6
    write(tmp_path / "env/mnist", TEST_FILES)
    monkeypatch.setenv("BIDUAL_DATA", str(tmp_path / "env"))
    assert len(load_images("mnist").train_images) == 6  # the cache has more of what is needed
    (tmp_path / "given").mkdir()
    with pytest.raises(FileNotFoundError, match=re.escape(str(tmp_path / "given")) + r"; download"):
        load_images("mnist", tmp_path / "given")


def test_the_folder_of_the_set_itself_may_be_given(tmp_path: Path) -> None:
    assert len(load_images("mnist", write(tmp_path / "mine", MNIST_FILES)).train_images) == 6


@pytest.mark.parametrize("given", [True, False])
def test_a_data_folder_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: bool) -> None:
    monkeypatch.setenv("BIDUAL_DATA", str(tmp_path / "no"))
    origin = "data_dir" if given else "BIDUAL_DATA"
    with pytest.raises(FileNotFoundError, match=rf"{origin} is '.*no', which is no folder"):
        load_images("mnist", tmp_path / "no" if given else None)


@pytest.mark.parametrize(
    "damage", [lambda raw: raw[:-1], lambda raw: raw + b"\0", lambda raw: b"", lambda raw: raw[::-1]]
)
def test_damaged_files_are_refused_by_name(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    name = "t10k-images-idx3-ubyte.gz"
    write(tmp_path / "mnist", {**MNIST_FILES, name: damage(MNIST_FILES[name])})
    with pytest.raises(ValueError, match=rf"{name} is damaged .* MD5 is [0-9a-f]{{32}}, not [0-9a-f]{{32}}; delete it"):
        load_images("mnist", tmp_path)


def test_unknown_names_and_parts(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"'fashion' \(did you mean fashion-mnist\?\): known are cifar-10, fashion-mnist"
    ):
        load_images("fashion", tmp_path)
    with pytest.raises(ValueError, match=r"unknown data set 'xyz': known are"):
        load_images("xyz", tmp_path)
    with pytest.raises(ValueError, match="part must be one of all, train, test, got 'valid'"):
        load_images("mnist", tmp_path, part="valid")  # type: ignore[arg-type]


def test_files_of_another_size_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = mnist_files(side=5)
    monkeypatch.setattr("bidual.io.datasets.images.IMAGE_SOURCES", {"mnist": mnist_source(files)})
    with pytest.raises(ValueError, match=r"holds images \(1, 5, 5\), and those of MNIST are \(1, 28, 28\)"):
        load_images("mnist", write(tmp_path / "mnist", files))


def test_image_data_is_checked() -> None:
    images, labels = np.zeros((2, 1, 3, 3), np.uint8), np.zeros(2, np.int64)
    for bad, message in (
        ((images, labels, images[..., :2], labels), "one size"),
        ((images, labels[:1], images, labels), "one label per image"),
        ((images, labels + 2, images, labels), "must be 0 to 1"),
        ((images.astype(float), labels, images, labels), "must be bytes"),
    ):
        with pytest.raises(ValueError, match=message):
            ImageData("x", *bad, ("a", "b"))


def test_importing_touches_no_network_library() -> None:
    code = "import sys, bidual.io.datasets; sys.exit(any(name in sys.modules for name in ('pooch', 'requests')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.skipif(not SHARED.is_dir(), reason="the official files are not in ../shared/data")
@pytest.mark.parametrize(
    ("name", "part", "train", "test"),
    [("fashion-mnist", "all", 60_000, 10_000), ("mnist", "test", 0, 10_000), ("cifar-10", "all", 20_000, 10_000)],
)
def test_the_official_files(monkeypatch: pytest.MonkeyPatch, name: str, part: str, train: int, test: int) -> None:
    monkeypatch.setattr("bidual.io.datasets.images.IMAGE_SOURCES", IMAGE_SOURCES)
    data = load_images(name, SHARED, part=part)  # type: ignore[arg-type]
    assert len(data.train_images) >= train
    assert len(data.test_images) == test
    assert np.bincount(data.test_labels).min() >= 892
    assert len(data.classes) == 10


def idx(array: np.ndarray, kind: int = 8) -> bytes:
    return bytes([0, 0, kind, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


IMAGES = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("array", [IMAGES, np.array([7, 0, 9], dtype=np.uint8)])
def test_idx_comes_back(tmp_path: Path, pack: type[bytes], array: np.ndarray) -> None:
    (tmp_path / "file").write_bytes(pack(idx(array)))
    found = read_idx(tmp_path / "file")
    assert found.dtype == np.uint8
    assert found.flags.writeable
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "is no IDX file: its magic number is missing"),
        (b"\0\x01\x08\x01" + bytes(8), "is no IDX file: its magic number is 00010801"),
        (b"\0\0\x08\0", "is no IDX file"),
        (idx(IMAGES, kind=0x0D), "IDX type 0x0d; only unsigned bytes"),
        (idx(IMAGES)[:10], "ends within its header: 10 bytes, and 3 sizes need 16"),
        (idx(IMAGES)[:-1], "announces 3 x 4 x 5 = 60 bytes and holds 59"),
        (idx(IMAGES) + b"\0", "announces 3 x 4 x 5 = 60 bytes and holds 61"),
        (gzip.compress(idx(IMAGES), mtime=0)[:-9], "damaged gzip file"),
    ],
)
def test_broken_idx_is_refused(tmp_path: Path, raw: bytes, message: str) -> None:
    (tmp_path / "file").write_bytes(raw)
    with pytest.raises(ValueError, match=message):
        read_idx(tmp_path / "file")


def test_cifar10_comes_back(tmp_path: Path) -> None:
    records = np.random.default_rng(0).integers(0, 256, (4, 3073), dtype=np.uint8)
    records[:, 0] = [3, 9, 0, 3]
    (tmp_path / "batch.bin").write_bytes(records.tobytes())
    images, labels = read_cifar10(tmp_path / "batch.bin")
    assert images.shape == (4, 3, 32, 32)
    assert images.dtype == labels.dtype == np.uint8
    np.testing.assert_array_equal(labels, [3, 9, 0, 3])
    assert images[2, 1, 5, 7] == records[2, 1 + 1024 + 5 * 32 + 7]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "has 0 bytes, not a multiple of 3073"),
        (bytes(3074), "has 3074 bytes, not a multiple of 3073"),
        (b"\x0a" + bytes(3072), "has a label 10, and CIFAR-10 has 0 to 9"),
    ],
)
def test_broken_cifar10_is_refused(tmp_path: Path, raw: bytes, message: str) -> None:
    (tmp_path / "batch.bin").write_bytes(raw)
    with pytest.raises(ValueError, match=message):
        read_cifar10(tmp_path / "batch.bin")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing"):
        read_idx(tmp_path / "nothing")
