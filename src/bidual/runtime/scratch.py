"""Hidden files and folders for what is not complete yet, held by a lock while their process lives.

Whoever is killed leaves them behind. The next process that makes scratch for the same name finds them without a lock
and removes them. Where a file system has no locks, they stay; nothing ever reads them.
"""

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LONGEST = 200  # bytes of a name that its scratch repeats; file systems take 255


@contextmanager
def scratch_file(folder: Path, name: str) -> Iterator[Path]:
    """An empty file in a folder, gone at the end if it was not renamed."""
    with _scratch(folder, name, lambda path: path.touch(exist_ok=False)) as path:
        yield path


@contextmanager
def scratch_folder(folder: Path, name: str) -> Iterator[Path]:
    """An empty folder in a folder, gone at the end with all that it holds."""
    with _scratch(folder, name, Path.mkdir) as path:
        yield path


@contextmanager
def _scratch(folder: Path, name: str, make: Callable[[Path], None]) -> Iterator[Path]:
    short = os.fsdecode(os.fsencode(name)[:_LONGEST])
    _remove_dead(folder, short)
    path, lock = _claimed(folder, short, make)
    try:
        yield path
    finally:
        with suppress(OSError):
            _remove(path)
        os.close(lock)


def _claimed(folder: Path, name: str, make: Callable[[Path], None]) -> tuple[Path, int]:
    """New scratch and the lock on it; made again if another process took it for dead before it was locked."""
    while True:
        path = folder / f".{name}.{secrets.token_hex(4)}.tmp"
        make(path)
        with suppress(FileNotFoundError):
            lock = _open(path)
            with suppress(OSError):  # no locks here
                fcntl.flock(lock, fcntl.LOCK_EX)
            if path.exists():
                return path, lock
            os.close(lock)


def _open(path: Path) -> int:
    """Open for writing where that can be: some file systems lock nothing else."""
    return os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)


def _remove_dead(folder: Path, name: str) -> None:
    ours = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]{{8}}\.tmp")
    with suppress(OSError):  # a folder that may be written to but not listed
        for path in [folder / entry for entry in os.listdir(folder) if ours.fullmatch(entry)]:
            _remove_if_dead(path)


def _remove_if_dead(path: Path) -> None:
    with suppress(OSError):  # another process removed it
        lock = _open(path)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # an OSError where its process lives
            _remove(path)
        finally:
            os.close(lock)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink()
