"""Arrays in memory that a child process sees too.

They lie in a file without a name, so nothing is left behind however the processes end: JSON that describes the arrays,
then their numbers.
"""

import json
import mmap
import os
import tempfile
from collections.abc import Mapping
from itertools import accumulate
from math import prod
from typing import IO, Any

import numpy as np

Arrays = dict[str, np.ndarray]
_ALIGNED = 64  # bytes


def anonymous_file() -> IO[bytes]:
    """A file without a name, in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("bidual"), "r+b", buffering=0)
    return tempfile.TemporaryFile()


def write_arrays(file: int, arrays: Mapping[str, np.ndarray]) -> Arrays:
    """Copy arrays to a file; what is returned lies in it. Arrays that were written before are invalid."""
    sizes = [_rounded(array.nbytes) for array in arrays.values()]
    starts = [0, *accumulate(sizes)]
    entries = zip(arrays.items(), starts, strict=False)
    header = json.dumps({name: [array.dtype.str, array.shape, start] for (name, array), start in entries}).encode()
    whole = _mapped(file, _ALIGNED + _rounded(len(header)) + starts[-1])
    whole[:_ALIGNED] = str(len(header)).encode().ljust(_ALIGNED)
    whole[_ALIGNED : _ALIGNED + len(header)] = header
    found = read_arrays(file)
    for name, array in arrays.items():
        found[name][...] = array
    return found


def read_arrays(file: int) -> Arrays:
    """The arrays in a file, not copied."""
    whole = mmap.mmap(file, 0)
    size = int(whole[:_ALIGNED])
    entries: dict[str, Any] = json.loads(whole[_ALIGNED : _ALIGNED + size])
    first = _ALIGNED + _rounded(size)
    return {name: _at(whole, kind, shape, first + start) for name, (kind, shape, start) in entries.items()}


def _at(whole: mmap.mmap, kind: str, shape: list[int], start: int) -> np.ndarray:
    return np.frombuffer(whole, kind, prod(shape), start).reshape(shape) if prod(shape) else np.zeros(shape, kind)


def _mapped(file: int, size: int) -> mmap.mmap:
    """The file with at least this size. It never shrinks: who reads beyond its end is killed."""
    if size > os.fstat(file).st_size:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file, 0, size)  # an error here, not on the first use of a page
        else:
            os.ftruncate(file, size)
    return mmap.mmap(file, 0)


def _rounded(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED
