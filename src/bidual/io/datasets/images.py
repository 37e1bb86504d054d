"""Fashion-MNIST, MNIST and CIFAR-10 from their official files: IDX, and the binary version of CIFAR-10."""

import gzip
import math
import os
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from jaxtyping import Int64, UInt8
from numpy import ndarray

from bidual.io.datasets import official_files as files
from bidual.io.datasets.official_files import DataDir
from bidual.io.datasets.sources import IMAGE_SOURCES, ImageSource, known_name

Part = Literal["all", "train", "test"]
Images = UInt8[ndarray, "n channels h w"]
Labels = Int64[ndarray, " n"]
Bytes = UInt8[ndarray, "..."]
_GZIP = b"\x1f\x8b"
_UNSIGNED_BYTE = 8  # the code of this type in the magic number of IDX
_MOST_AXES = 4
_SIDE, _CHANNELS, _CLASSES = 32, 3, 10  # of CIFAR-10
_RECORD = 1 + _CHANNELS * _SIDE**2
_LARGEST = 2**29  # bytes


@dataclass(frozen=True, eq=False)
class ImageData:
    """Images of one size, with labels 0, 1, ....

    Attributes:
        name: of the data set or folder.
        train_images, test_images: (n, channels, height, width), bytes; a part that was not read has n = 0.
        train_labels, test_labels: (n,).
        classes: the names of the labels.
        note: the missing parts of the data set; empty if it is complete.
    """

    name: str
    train_images: Images
    train_labels: Labels
    test_images: Images
    test_labels: Labels
    classes: tuple[str, ...]
    note: str = ""

    def __post_init__(self) -> None:
        if self.train_images.shape[1:] != self.test_images.shape[1:]:
            shapes = f"{self.train_images.shape[1:]} and {self.test_images.shape[1:]}"
            raise ValueError(f"training and test images of {self.name} must be of one size, got {shapes}.")
        _check(self.name, self.train_images, self.train_labels, len(self.classes))
        _check(self.name, self.test_images, self.test_labels, len(self.classes))

    @property
    def size(self) -> tuple[int, ...]:
        """Channels, height and width."""
        return self.train_images.shape[1:]


def _check(name: str, images: Images, labels: Labels, classes: int) -> None:
    if images.ndim != 4 or images.dtype != np.uint8:
        raise ValueError(f"images of {name} must be bytes (n, channels, h, w), got {images.dtype} {images.shape}.")
    if labels.shape != images.shape[:1]:
        raise ValueError(f"{name} must have one label per image, got {len(images)} images, labels {labels.shape}.")
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        raise ValueError(f"labels of {name} must be 0 to {classes - 1}, got {labels.min()} to {labels.max()}.")


def load_images(name: str, data_dir: DataDir = None, *, part: Part = "all", download: bool = False) -> ImageData:
    """A data set of :data:`IMAGE_SOURCES`; every file is checked against its MD5 before it is read.

    Training batches of CIFAR-10 may be missing; ``note`` names them. All other files must exist.

    Args:
        name: "fashion-mnist", "mnist" or "cifar-10"; case and punctuation do not matter.
        data_dir: the folder above the data set's own, where nothing else is then looked for; by default the one
            in the environment variable BIDUAL_DATA, then the cache of downloads.
        part: "train" or "test" reads these images only, and needs no other files.
        download: whether missing or damaged files are downloaded, into ``data_dir`` or else the cache.
    """
    source = IMAGE_SOURCES[known_name(name, IMAGE_SOURCES, "folders of images are read by load_folder")]
    if part not in get_args(Part):
        raise ValueError(f"part must be one of {', '.join(get_args(Part))}, got {part!r}.")
    train, test = (() if part == "test" else source.train), (() if part == "train" else source.test)
    place = _found(source, (*train, *test), data_dir, download)
    there = [name for name in train if (place / name).is_file()]
    images = (*_read(source, place, there), *_read(source, place, test))
    return ImageData(source.name, *images, source.classes, _note(source, train, there))


def _found(source: ImageSource, names: Sequence[str], data_dir: DataDir, download: bool) -> Path:
    """The folder to read from; it has all files that must exist."""
    found = files.places(source.folder, data_dir)
    place = files.best_place(found, names)
    if download and files.damaged(source, names, place):
        place = files.download_place(source.folder, data_dir)
        files.download(source, names, place)
    lost = files.missing(place, names)
    if lost and not (source.per_batch and set(lost) < set(source.train) & set(names)):
        raise FileNotFoundError(_nowhere(source, names, lost, found))
    return place


def _nowhere(source: ImageSource, names: Sequence[str], lost: Sequence[str], found: Sequence[Path]) -> str:
    more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
    parts = {"train": source.train, "test": source.test}
    rest = [part for part, held in parts.items() if set(held) < set(names) and not set(held) & set(lost)]
    alone = "".join(f", or read what is there by part={part!r}" for part in rest)
    return (
        f"{source.title} lacks {lost[0]}{more}, looked for in {', '.join(map(str, found))}; download by download=True "
        f"or from {source.url}, or say by data_dir or {files.VARIABLE} which folder holds {source.folder}{alone}."
    )


def _read(source: ImageSource, place: Path, names: Sequence[str]) -> tuple[Images, Labels]:
    paths = [files.check_md5(place / name, source.md5[name]) for name in names]
    if not paths:
        return np.empty((0, *source.size), np.uint8), np.empty(0, np.int64)
    if source.per_batch:
        batches, targets = zip(*map(read_cifar10, paths), strict=True)
        images, labels = np.concatenate(batches), np.concatenate(targets)
    else:
        images, labels = map(read_idx, paths)
        images = images[:, None]
    if images.shape[1:] != source.size:
        raise ValueError(f"{paths[0]} holds images {images.shape[1:]}, and those of {source.title} are {source.size}.")
    return images, labels.astype(np.int64)


def _note(source: ImageSource, train: Sequence[str], there: Sequence[str]) -> str:
    lost = [Path(name).stem for name in train if name not in there]
    if not lost:
        return ""
    numbers = [name.rsplit("_", 1)[-1] for name in lost[1:]]
    count, total = len(there) * source.per_batch, len(train) * source.per_batch
    return f"{source.title} without {', '.join([lost[0], *numbers])}: {count:,} of {total:,} training images"


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
        raise ValueError(f"{path} has {len(raw)} bytes, not a multiple of {_RECORD}; only binary CIFAR-10 is read.")
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
