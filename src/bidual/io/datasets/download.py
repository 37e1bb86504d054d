"""Downloads official files by pooch and checks them; only this module uses the network."""

import errno
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bidual.io.datasets.folders import check_md5, md5_of
from bidual.io.datasets.sources import Archive, ImageSource
from bidual.runtime.extras import extra, need
from bidual.runtime.files import refused, scratch_folder

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def download(source: ImageSource, names: Sequence[str], target: Path) -> None:
    """Put the files that ``target`` lacks, or that are damaged there, into it, each once it is complete."""
    lost = [name for name in names if not _is_good(target / name, source.md5[name])]
    if not lost:
        return
    need("pooch")
    _make_writable(target)
    with scratch_folder(target, "download") as scratch:
        if isinstance(source.origin, Archive):
            _unpack(source, source.origin, lost, target, scratch)
            return
        for name in lost:
            _retrieve(source.origin + name, source.md5[name], target, scratch / name)
            os.replace(scratch / name, target / name)


def _is_good(path: Path, md5: str) -> bool:
    return path.is_file() and md5_of(path) == md5


def _make_writable(target: Path) -> None:
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PermissionError(f"cannot download into {target}: {error.strerror}; give another data_dir.") from error
    if not os.access(target, os.W_OK):
        raise PermissionError(f"cannot download into {target}: it is read-only; give another data_dir.")


def _unpack(source: ImageSource, archive: Archive, names: Sequence[str], target: Path, scratch: Path) -> None:
    """Extract the named files; the archive, which is as large as its contents, is deleted."""
    with extra("pooch"):
        import pooch
    members = [f"{source.folder}/{name}" for name in names]
    processor = pooch.Untar(members=members, extract_dir="unpacked")
    _retrieve(archive.url, archive.md5, target, scratch / archive.url.rsplit("/", 1)[-1], processor)
    for name in names:
        unpacked = check_md5(scratch / "unpacked" / source.folder / name, source.md5[name])
        os.replace(unpacked, target / name)


def _retrieve(url: str, md5: str, target: Path, file: Path, processor: Any = None) -> None:
    """One file by pooch, which keeps it only if its checksum is right."""
    with extra("pooch"):
        import pooch
    try:
        pooch.retrieve(url, f"md5:{md5}", fname=file.name, path=file.parent, processor=processor)
    except OSError as error:  # the exceptions of requests are among these
        if error.errno in _NO_ROOM:
            raise refused(target / file.name, error) from error
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
