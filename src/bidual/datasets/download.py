"""Downloading official files once, by pooch, with their checksums; the only part of Bidual that uses the network."""

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bidual.datasets.folders import check_md5, md5_of
from bidual.datasets.sources import Archive, ImageSource


def download(source: ImageSource, names: Sequence[str], target: Path) -> None:
    """Put those of the files into ``target`` that it lacks or holds damaged."""
    lost = [name for name in names if not _is_good(target / name, source.md5[name])]
    if not lost:
        return
    _make_writable(target)
    if isinstance(source.origin, Archive):
        _unpack(source, source.origin, lost, target)
    else:
        for name in lost:
            _retrieve(source.origin + name, source.md5[name], target, name)


def _is_good(path: Path, md5: str) -> bool:
    return path.is_file() and md5_of(path) == md5


def _make_writable(target: Path) -> None:
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PermissionError(f"cannot download into {target}: {error.strerror}; give another data_dir.") from error
    if not os.access(target, os.W_OK):
        raise PermissionError(f"cannot download into {target}: it is read-only; give another data_dir.")


def _unpack(source: ImageSource, archive: Archive, names: Sequence[str], target: Path) -> None:
    """The named files out of the archive, which is then deleted: it is as large as what it holds."""
    import pooch

    packed, scratch = f".{archive.url.rsplit('/', 1)[-1]}", f".unpacked-{os.getpid()}"
    members = [f"{source.folder}/{name}" for name in names]
    try:
        _retrieve(archive.url, archive.md5, target, packed, pooch.Untar(members=members, extract_dir=scratch))
        for name in names:
            unpacked = check_md5(target / scratch / source.folder / name, source.md5[name])
            os.replace(unpacked, target / name)
        (target / packed).unlink(missing_ok=True)
    finally:
        shutil.rmtree(target / scratch, ignore_errors=True)


def _retrieve(url: str, md5: str, target: Path, name: str, processor: Any = None) -> None:
    """One file by pooch, which writes it elsewhere first and keeps it only if its checksum is right."""
    import pooch

    try:
        pooch.retrieve(url, f"md5:{md5}", fname=name, path=target, processor=processor)
    except OSError as error:  # the exceptions of requests are among these
        why = " ".join(str(error).split()).rstrip(".")
        raise ConnectionError(
            f"could not download {url}: {why}; check the connection, or put the files of the data set into {target}."
        ) from error
    except ValueError as error:
        got = re.search(r"but got (\w+)", str(error))
        raise ValueError(
            f"{url} did not give the official file: its MD5 is {got[1] if got else 'wrong'}, not {md5}; nothing was "
            "kept, try again later."
        ) from error
