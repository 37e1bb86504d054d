"""The official files of data sets: finds, downloads and checks them. Only this module uses the network."""

import errno
import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bidual.io.datasets.sources import Archive, ImageSource
from bidual.runtime.extras import extra, need
from bidual.runtime.files import refused, scratch_folder
from bidual.runtime.json_text import one_line

VARIABLE = "BIDUAL_DATA"
DataDir = str | os.PathLike[str] | None
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def places(folder: str, data_dir: DataDir = None) -> tuple[Path, ...]:
    """Folders that may hold a data set: the one of its name below each data folder, or the data folder itself.

    Data folders are ``data_dir`` alone if it is given, else the one in BIDUAL_DATA, then the cache of downloads.
    """
    if data_dir is not None:
        roots = [_existing(data_dir, "data_dir")]
    else:
        given = os.environ.get(VARIABLE)
        roots = [*([_existing(given, VARIABLE)] if given else []), user_cache_path("bidual")]
    return tuple(place for root in roots for place in (root / folder, root))


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


def best_place(found: Sequence[Path], names: Sequence[str]) -> Path:
    """The folder that holds most of the files, the first of several."""
    return min(found, key=lambda place: len(missing(place, names)))


def missing(place: Path, names: Iterable[str]) -> list[str]:
    """The files that a folder lacks."""
    return [name for name in names if not (place / name).is_file()]


def _md5_of(path: Path) -> str:
    """The MD5 of a file; it finds damage, not attacks."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def check_md5(path: Path, expected: str) -> Path:
    """The path, if its file is the official one."""
    found = _md5_of(path)
    if found != expected:
        raise ValueError(
            f"{path} is damaged or not the official file: its MD5 is {found}, not {expected}; delete it and download "
            "it again, by download=True or by hand."
        )
    return path


def download(source: ImageSource, names: Sequence[str], target: Path) -> None:
    """Put the files that ``target`` lacks, or that are damaged there, into it, each once it is complete."""
    lost = damaged(source, names, target)
    if not lost:
        return
    need("pooch")
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PermissionError(f"cannot download into {target}: {error.strerror}; give another data_dir.") from error
    if not os.access(target, os.W_OK):
        raise PermissionError(f"cannot download into {target}: it is read-only; give another data_dir.")
    with scratch_folder(target, "download") as scratch:
        if isinstance(source.origin, Archive):
            _unpack(source, source.origin, lost, target, scratch)
            return
        for name in lost:
            _retrieve(source.origin + name, source.md5[name], target, scratch / name)
            os.replace(scratch / name, target / name)


def damaged(source: ImageSource, names: Iterable[str], place: Path) -> list[str]:
    """The files that a folder lacks, or that are not the official ones there."""
    return [name for name in names if not (place / name).is_file() or _md5_of(place / name) != source.md5[name]]


def _unpack(source: ImageSource, archive: Archive, names: Sequence[str], target: Path, scratch: Path) -> None:
    """Extract the named files; the archive, which is as large as its contents, is deleted."""
    import pooch

    members = [f"{source.folder}/{name}" for name in names]
    processor = pooch.Untar(members=members, extract_dir="unpacked")
    _retrieve(archive.url, archive.md5, target, scratch / archive.url.rsplit("/", 1)[-1], processor)
    for name in names:
        unpacked = check_md5(scratch / "unpacked" / source.folder / name, source.md5[name])
        os.replace(unpacked, target / name)


def _retrieve(url: str, md5: str, target: Path, file: Path, processor: Any = None) -> None:
    """One file by pooch, which keeps it only if its checksum is right."""
    import pooch

    try:
        pooch.retrieve(url, f"md5:{md5}", fname=file.name, path=file.parent, processor=processor)
    except OSError as error:  # the exceptions of requests are among these
        if error.errno in _NO_ROOM:
            raise refused(target / file.name, error) from error
        raise ConnectionError(
            f"could not download {url}: {one_line(error)}; check the connection, or put the files of the data set into "
            f"{target}."
        ) from error
    except ValueError as error:
        got = re.search(r"but got (\w+)", str(error))
        raise ValueError(
            f"{url} did not give the official file: its MD5 is {got[1] if got else 'wrong'}, not {md5}; nothing was "
            "kept, try again later."
        ) from error
