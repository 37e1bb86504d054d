"""Writing files so that a failure leaves the old file, or none."""

import os
import secrets
from pathlib import Path


def check_target(path: str | os.PathLike[str], *inputs: str | os.PathLike[str]) -> Path:
    """The path as a Path, if a file can be put there and it is none of the inputs; said before any work is done."""
    path = Path(path)
    if any(path.resolve() == Path(other).resolve() for other in inputs):
        raise ValueError(f"cannot write {path}: it is also read; give the output another name.")
    if path.is_dir():
        raise IsADirectoryError(f"cannot write {path}: it is a folder; give the name of a file.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: the folder {path.parent} does not exist; create it first.")
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"cannot write {path}: the folder {path.parent} is read-only; choose another one.")
    return path


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write to a new file in the same folder, then rename it: readers see the old content or the new, never a part."""
    target = Path(os.path.realpath(check_target(path)))
    scratch = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(scratch, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, target)
    finally:
        scratch.unlink(missing_ok=True)
