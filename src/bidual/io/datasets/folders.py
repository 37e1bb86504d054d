"""Finds the files of a data set and checks that they are the official ones."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from bidual.runtime.extras import extra

VARIABLE = "BIDUAL_DATA"
DataDir = str | os.PathLike[str] | None


def places(folder: str, data_dir: DataDir = None) -> tuple[Path, ...]:
    """Folders that may hold a data set: the one of its name below each data folder, or the data folder itself."""
    return tuple(place for root in _roots(data_dir) for place in (root / folder, root))


def _roots(data_dir: DataDir) -> tuple[Path, ...]:
    """``data_dir`` if it is given, and no other; else the folder in BIDUAL_DATA, then the cache of downloads."""
    if data_dir is not None:
        return (_existing(data_dir, "data_dir"),)
    given = os.environ.get(VARIABLE)
    return (*((_existing(given, VARIABLE),) if given else ()), user_cache_path("bidual"))


def user_cache_path(name: str) -> Path:
    """The cache folder of a program, by the rules of the operating system."""
    with extra("platformdirs"):
        from platformdirs import user_cache_path as system_path
    return system_path(name)


def _existing(path: str | os.PathLike[str], origin: str) -> Path:
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"{origin} is {str(path)!r}, which is no folder; create it, or name the one with data.")
    return folder


def download_place(folder: str, data_dir: DataDir = None) -> Path:
    """Where downloads of a data set go: into ``data_dir`` if it is given, else into the cache."""
    root = user_cache_path("bidual") if data_dir is None else _existing(data_dir, "data_dir")
    return root if root.name == folder else root / folder


def best_place(found: Sequence[Path], names: Iterable[str]) -> Path:
    """The folder that holds most of the files, the first of several."""
    wanted = tuple(names)
    return min(found, key=lambda place: len(missing(place, wanted)))


def missing(place: Path, names: Iterable[str]) -> list[str]:
    """The files that a folder lacks."""
    return [name for name in names if not (place / name).is_file()]


def md5_of(path: Path) -> str:
    """The MD5 of a file; it finds damage, not attacks."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def check_md5(path: Path, expected: str) -> Path:
    """The path, if its file is the official one."""
    found = md5_of(path)
    if found != expected:
        raise ValueError(
            f"{path} is damaged or not the official file: its MD5 is {found}, not {expected}; delete it and download "
            "it again, by download=True or by hand."
        )
    return path
