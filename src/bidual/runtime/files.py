"""Writing files so that a failure leaves the old file, or none."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from bidual.runtime.scratch import scratch_file


def check_target(path: str | os.PathLike[str], *inputs: str | os.PathLike[str]) -> Path:
    """The path as a Path, if a file can be put there and it is none of the inputs; said before any work is done."""
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

    Of two processes that write one file at a time, the later one wins. The permissions of a file that is replaced are
    kept. Whoever is killed meanwhile leaves scratch that the next write of the same file removes.
    """
    target = Path(os.path.realpath(check_target(path)))
    try:
        with scratch_file(target.parent, target.name) as scratch:
            _fill(scratch, data)
            if target.exists():
                shutil.copymode(target, scratch)
            os.replace(scratch, target)
            _sync(target.parent)
    except OSError as error:
        raise refused(path, error) from error


def refused(path: str | os.PathLike[str], error: OSError) -> OSError:
    """The same error in a sentence, of the same kind and number."""
    reason = (error.strerror or str(error)).lower().rstrip(".")
    said = type(error)(
        f"cannot write {os.fspath(path)}: {reason}; what was there before is as it was. Free some space, or choose "
        "another folder."
    )
    said.errno = error.errno
    return said


def _fill(scratch: Path, data: bytes) -> None:
    with open(scratch, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """So that the new name is there also after a power failure; not every file system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
