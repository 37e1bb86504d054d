"""Images and labels from the official files of MNIST and its kin (IDX) and of CIFAR-10 (binary version)."""

import gzip
import math
import os
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_GZIP = b"\x1f\x8b"
_UNSIGNED_BYTE = 8  # the code of this type in the magic number
_SIDE, _CHANNELS, _CLASSES = 32, 3, 10
_RECORD = 1 + _CHANNELS * _SIDE**2

_MOST_AXES = 4
_LARGEST = 2**29  # bytes

Bytes = NDArray[np.uint8]


def read_idx(path: str | os.PathLike[str]) -> Bytes:
    """The array of an IDX file of unsigned bytes, packed by gzip or not: images (N, rows, columns) or labels (N,)."""
    raw = _unpacked(Path(path))
    if len(raw) < 4 or raw[:2] != b"\0\0" or not raw[3]:
        raise ValueError(f"{path} is no IDX file: its magic number is {raw[:4].hex() or 'missing'}, not 0000tt0k.")
    kind, dimensions = raw[2], raw[3]
    if kind != _UNSIGNED_BYTE:
        raise ValueError(f"{path} holds IDX type {kind:#04x}; only unsigned bytes, 0x08, are read.")
    if dimensions > _MOST_AXES:
        raise ValueError(f"{path} announces {dimensions} axes; images have 3 and labels 1.")
    head = 4 + 4 * dimensions
    if len(raw) < head:
        raise ValueError(f"{path} ends within its header: {len(raw)} bytes, and {dimensions} sizes need {head}.")
    shape = struct.unpack(f">{dimensions}I", raw[4:head])
    if len(raw) - head != math.prod(shape):
        raise ValueError(
            f"{path} announces {' x '.join(map(str, shape))} = {math.prod(shape)} bytes and holds {len(raw) - head}."
        )
    return np.frombuffer(raw, np.uint8, offset=head).reshape(shape).copy()


def read_cifar10(path: str | os.PathLike[str]) -> tuple[Bytes, Bytes]:
    """Images (N, 3, 32, 32) and labels (N,) of a batch of the binary version: 3073 bytes a record, the label first."""
    raw = np.frombuffer(Path(path).read_bytes(), np.uint8)
    if not len(raw) or len(raw) % _RECORD:
        raise ValueError(
            f"{path} has {len(raw)} bytes, not a multiple of {_RECORD}; only the binary version of CIFAR-10 is read."
        )
    records = raw.reshape(-1, _RECORD)
    labels, images = records[:, 0].copy(), records[:, 1:].reshape(-1, _CHANNELS, _SIDE, _SIDE).copy()
    if int(labels.max()) >= _CLASSES:
        raise ValueError(f"{path} has a label {int(labels.max())}, and CIFAR-10 has 0 to {_CLASSES - 1}.")
    return images, labels


def _unpacked(path: Path) -> bytes:
    raw = path.read_bytes()
    if not raw.startswith(_GZIP):
        return raw
    try:
        with gzip.open(path) as file:
            unpacked = file.read(_LARGEST + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is a damaged gzip file: {error}.") from error
    if len(unpacked) > _LARGEST:
        raise ValueError(f"{path} unpacks to more than {_LARGEST} bytes; the official files have far less.")
    return unpacked
