"""A folder of images with one subfolder per class."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from bidual.io.datasets.images import ImageData, Images, Labels
from bidual.runtime.extras import need
from bidual.runtime.json_text import one_line
from bidual.runtime.memory import available_bytes, human_bytes

if TYPE_CHECKING:
    from PIL import Image

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".pgm", ".ppm")
_GREY = ("1", "L", "LA")
_COLOUR = ("RGB", "RGBA", "P", "PA", "CMYK", "YCbCr")
_MOST_PIXELS = 2**26
Files = dict[str, list[Path]]


def load_folder(
    path: str | os.PathLike[str],
    *,
    size: tuple[int, int] | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
) -> ImageData:
    """Images of a folder; its subfolders, sorted by name, are the classes.

    Subfolders ``train`` and ``test`` that hold such folders are the two parts. Otherwise a random part of every class
    is the test part. Images are grey if all of them are, else RGB, and turned as their EXIF data say. Hidden files are
    ignored; everything else that is no image is refused.

    Args:
        size: height and width to resize all images to, bilinearly; by default they must be of one size.
        test_fraction: of each class, rounded, and at least one image; 0 leaves the test part empty.
        seed: of the split.
    """
    need("PIL")
    root = Path(path).expanduser()
    if size is not None and (len(size) != 2 or any(side != int(side) or side < 1 for side in size)):
        raise ValueError(f"size must be height and width in pixels, got {size}.")
    if not (math.isfinite(test_fraction) and 0 <= test_fraction < 1):
        raise ValueError(f"test_fraction must be at least 0 and below 1, got {test_fraction}.")
    if not root.is_dir():
        raise FileNotFoundError(f"there is no folder {root}; give one that has a subfolder of images for each class.")
    names = {one.name for one in _visible(root) if one.is_dir()}
    if {"train", "test"} <= names and all(_subfolders(root / part) for part in ("train", "test")):
        train, test = _given_parts(root, names)
    else:
        train, test = _split(_files(root), test_fraction, seed)
    files = [file for part in (train, test) for held in part.values() for file in held]
    _check_memory(len(files), size)
    pictures, cut = _pictures(files, size), sum(map(len, train.values()))
    return ImageData(root.resolve().name, pictures[:cut], _labels(train), pictures[cut:], _labels(test), tuple(train))


def _check_memory(count: int, size: tuple[int, int] | None) -> None:
    """Whether so many images of a size fit, before any is opened."""
    need = 0 if size is None else 6 * count * size[0] * size[1]
    if need > (there := available_bytes(torch.device("cpu"))):
        raise ValueError(
            f"{count} images of {size} would need {human_bytes(need)}, and {human_bytes(there)} are free; "
            "use a smaller size."
        )


def _visible(folder: Path) -> list[Path]:
    return sorted(one for one in folder.iterdir() if not one.name.startswith("."))


def _subfolders(folder: Path) -> list[Path]:
    return [one for one in _visible(folder) if one.is_dir()]


def _given_parts(root: Path, names: set[str]) -> tuple[Files, Files]:
    if more := sorted(names - {"train", "test"}):
        raise ValueError(f"{root} holds train and test, and {more[0]} beside them; move {more[0]} elsewhere.")
    train, test = _files(root / "train"), _files(root / "test")
    if odd := sorted(train.keys() ^ test.keys()):
        where, other = ("train", "test") if odd[0] in train else ("test", "train")
        raise ValueError(f"the class {odd[0]!r} of {root} is in {where} and not in {other}; both need every class.")
    return train, test


def _files(root: Path) -> Files:
    """The image files of every class, by name; nothing is opened."""
    if stray := [one for one in _visible(root) if not one.is_dir()]:
        raise ValueError(f"{stray[0]} lies beside the folders of the classes; move it into one of them, or elsewhere.")
    classes = {folder.name: [_checked(one) for one in _visible(folder)] for folder in _subfolders(root)}
    if not classes:
        raise ValueError(f"{root} has no subfolders; put the images of each class into a subfolder of its own.")
    if empty := [name for name, files in classes.items() if not files]:
        raise ValueError(f"the class {empty[0]!r} of {root} has no images; add some, or remove the folder.")
    return classes


def _checked(path: Path) -> Path:
    if path.is_dir():
        raise ValueError(f"{path} is a folder within that of a class; only images may be there.")
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{path} is no image that is read ({', '.join(SUFFIXES)}); convert it, or move it elsewhere.")
    return path


def _split(classes: Files, fraction: float, seed: int) -> tuple[Files, Files]:
    """A part of every class by one generator; both parts keep the order of the names."""
    rng = np.random.default_rng(seed)
    train: Files = {}
    test: Files = {}
    for name, files in classes.items():
        if fraction and len(files) < 2:
            raise ValueError(f"the class {name!r} has one image, and a test part needs another; use test_fraction=0.")
        count = min(max(round(fraction * len(files)), 1), len(files) - 1) if fraction else 0
        chosen = set(rng.permutation(len(files))[:count].tolist())
        train[name] = [file for k, file in enumerate(files) if k not in chosen]
        test[name] = [file for k, file in enumerate(files) if k in chosen]
    return train, test


def _labels(classes: Files) -> Labels:
    return np.repeat(np.arange(len(classes), dtype=np.int64), [len(files) for files in classes.values()])


def _pictures(files: Sequence[Path], size: tuple[int, int] | None) -> Images:
    pictures = [_picture(file, size) for file in files]
    (w0, h0) = pictures[0].size
    for file, (w, h) in ((file, picture.size) for file, picture in zip(files, pictures, strict=True)):
        if (w, h) != (w0, h0):
            raise ValueError(
                f"images must be of one size: {files[0]} is {h0} x {w0} and {file} is {h} x {w} (height x width); "
                "resize them all by size=(h, w)."
            )
    mode = "L" if all(picture.mode == "L" for picture in pictures) else "RGB"
    stacked = np.stack([np.asarray(picture.convert(mode)) for picture in pictures])
    return stacked[:, None] if mode == "L" else np.ascontiguousarray(stacked.transpose(0, 3, 1, 2))


def _picture(path: Path, size: tuple[int, int] | None) -> "Image.Image":
    """One image, grey ("L") or RGB."""
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as opened:
            width, height = opened.size
            if width * height > _MOST_PIXELS:
                raise ValueError(f"it has {width} x {height} pixels, more than {_MOST_PIXELS}")
            mode, frames = opened.mode, getattr(opened, "n_frames", 1)
            image = ImageOps.exif_transpose(opened)
            image.load()
    except Exception as error:  # Pillow raises many kinds for damaged or malicious files
        raise ValueError(f"{path} is no image that can be read: {one_line(error)}; repair it, or move it.") from error
    if frames > 1:
        raise ValueError(f"{path} has {frames} frames; keep one of them.")
    if mode not in _GREY + _COLOUR:
        raise ValueError(f"{path} is of mode {mode}, and only images of 8 bits a channel are read; convert it.")
    maybe = "A" in image.getbands() or "transparency" in image.info
    if maybe and int(np.asarray(image.convert("RGBA"))[..., 3].min()) < 255:
        raise ValueError(f"{path} has transparent pixels; put it on a background first.")
    plain = image.convert("L" if mode in _GREY else "RGB")
    return plain if size is None else plain.resize((size[1], size[0]), Image.Resampling.BILINEAR)
