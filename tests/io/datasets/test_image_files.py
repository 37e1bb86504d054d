import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from bidual.io.datasets.image_files import read_cifar10, read_idx


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
