"""Writing files so that a failure leaves the old file, or none.

What is incomplete lives in hidden scratch files and folders, locked while their process lives. A process that is killed
leaves its scratch behind, and the next one that writes the same name removes it. Nothing ever reads scratch.
"""

import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows, where an open file cannot be renamed or removed
    fcntl = None  # type: ignore[assignment]

_LONGEST = 200  # bytes of a name that its scratch repeats; file systems take 255
_OLD = 86_400.0  # seconds after which scratch counts as left behind on systems without locks


def check_target(path: str | os.PathLike[str], *inputs: str | os.PathLike[str]) -> Path:
    """The path as a Path; an error, before any work is done, if no file can be written there or it is an input."""
    path = Path(path)
    if any(path.resolve() == Path(other).resolve() for other in inputs):
        raise ValueError(f"cannot write {path}: it is also read; give the output another name.")
    if path.is_dir():
        raise IsADirectoryError(f"cannot write {path}: it is a folder; give the name of a file.")
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise FileNotFoundError(f"cannot write {path}: the folder {path.parent} does not exist; create it first.")
    if path.exists() and not path.is_file():
        raise ValueError(f"cannot write {path}: it is a device or a pipe; give the name of a file.")
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"cannot write {path}: the folder {folder} is read-only; choose another one.")
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(f"cannot write {path}: the file is there and read-only; choose another name.")
    return path


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write to a new file in the same folder, then rename it: readers see the old content or the new, never a part.

    Of two processes that write one file at a time, the later one wins. A file that is replaced keeps its permissions.
    """
    target = Path(os.path.realpath(check_target(path)))
    try:
        with scratch_file(target.parent, target.name) as scratch:
            with open(scratch, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if target.exists():
                shutil.copymode(target, scratch)
            os.replace(scratch, target)
            _sync(target.parent)
    except OSError as error:
        raise refused(path, error) from error


def refused(path: str | os.PathLike[str], error: OSError) -> OSError:
    """The same error in a sentence, of the same kind and number."""
    reason = (error.strerror or str(error)).lower().rstrip(".")
    sentence = type(error)(
        f"cannot write {os.fspath(path)}: {reason}; the existing file was left unchanged. Free some space, or choose "
        "another folder."
    )
    sentence.errno = error.errno
    return sentence


def _sync(folder: Path) -> None:
    """Make the new name survive a power failure, on file systems that can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def scratch_file(folder: Path, name: str) -> AbstractContextManager[Path]:
    """An empty file in a folder, removed at the end if it was not renamed."""
    return _scratch(folder, name, partial(Path.touch, exist_ok=False))


def scratch_folder(folder: Path, name: str) -> AbstractContextManager[Path]:
    """An empty folder in a folder, removed at the end with its content."""
    return _scratch(folder, name, Path.mkdir)


@contextmanager
def _scratch(folder: Path, name: str, make: Callable[[Path], None]) -> Iterator[Path]:
    short = os.fsencode(name)[:_LONGEST].decode(errors="ignore")
    _remove_dead(folder, short)
    path, lock = _claimed(folder, short, make)
    try:
        yield path
    finally:
        with suppress(OSError):
            _remove(path)
        if lock is not None:
            os.close(lock)


def _claimed(folder: Path, name: str, make: Callable[[Path], None]) -> tuple[Path, int | None]:
    """New scratch and the lock on it; made again if another process removed it before it was locked."""
    while True:
        path = folder / f".{name}.{secrets.token_hex(4)}.tmp"
        make(path)
        if fcntl is None:
            return path, None
        with suppress(FileNotFoundError):
            lock = _open(path)
            with suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            if path.exists():
                return path, lock
            os.close(lock)


def _open(path: Path) -> int:
    """Open for writing where possible: some file systems lock nothing else."""
    return os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)


def _remove_dead(folder: Path, name: str) -> None:
    ours = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]{{8}}\.tmp")
    with suppress(OSError):  # a folder that can be written to but not listed
        for path in [folder / entry for entry in os.listdir(folder) if ours.fullmatch(entry)]:
            _remove_if_dead(path)


def _remove_if_dead(path: Path) -> None:
    with suppress(OSError):  # another process removed it, or holds it
        if fcntl is None:
            if time.time() - path.stat().st_mtime > _OLD:
                _remove(path)
            return
        lock = _open(path)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path)
        finally:
            os.close(lock)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink()
