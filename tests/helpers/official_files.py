"""Tiny files in the official formats, with sources that know their checksums."""

import gzip
import hashlib
import io
import struct
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from bidual.io.datasets.sources import CIFAR_10, MNIST, Archive, ImageSource

PER_BATCH = 4


def idx(array: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(head + array.tobytes(), mtime=0)


def mnist_files(side: int = 28) -> dict[str, bytes]:
    """Six training and three test images."""
    rng, files = np.random.default_rng(0), {}
    for n, (images, labels) in ((6, MNIST.train), (3, MNIST.test)):
        files[images] = idx(rng.integers(0, 256, (n, side, side), dtype=np.uint8))
        files[labels] = idx(np.arange(n, dtype=np.uint8))
    return files


def cifar_files() -> dict[str, bytes]:
    """Batches of four images."""
    rng = np.random.default_rng(1)
    records = rng.integers(0, 10, (6, PER_BATCH, 3073), dtype=np.uint8)
    return dict(zip((*CIFAR_10.train, *CIFAR_10.test), (batch.tobytes() for batch in records), strict=True))


def tar(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, raw in files.items():
            info = tarfile.TarInfo(f"{CIFAR_10.folder}/{name}")
            info.size = len(raw)
            archive.addfile(info, io.BytesIO(raw))
    return packed.getvalue()


def md5(raw: bytes) -> str:
    return hashlib.md5(raw).hexdigest()


def mnist_source(files: Mapping[str, bytes], url: str = "http://nowhere.invalid/") -> ImageSource:
    return replace(MNIST, md5={name: md5(raw) for name, raw in files.items()}, origin=url)


def cifar_source(
    files: Mapping[str, bytes], url: str = "http://nowhere.invalid/c.tar.gz", packed: bytes = b""
) -> ImageSource:
    sums = {name: md5(raw) for name, raw in files.items()}
    return replace(CIFAR_10, md5=sums, origin=Archive(url, md5(packed)), per_batch=PER_BATCH)


def write(folder: Path, files: Mapping[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, raw in files.items():
        (folder / name).write_bytes(raw)
    return folder
