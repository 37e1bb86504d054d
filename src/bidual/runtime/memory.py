"""How much memory is available, and sizes in words.

psutil 7 reports the memory of the machine, also inside of a container, so the limits of control groups are read here.
"""

from collections.abc import Iterator
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    import torch

_MESSAGES = ("can't allocate memory", "out of memory", "bad_alloc", "cannot allocate memory")  # torch, CUDA, C++, BLAS
_GROUP_FILES = (  # limit, use and the page cache in memory.stat, of version 2 and of version 1
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def available_bytes(device: "torch.device") -> int:
    """Memory of a device that this process may still take: of the machine, its control groups and its own limit."""
    if device.type == "cuda":
        import torch  # commands that end early use this module without torch

        return torch.cuda.mem_get_info(device)[0]
    return max(int(min(_machine_bytes(), group_bytes(), _limited_bytes())), 0)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error is about memory; torch raises a RuntimeError."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and any(m in text for m in _MESSAGES))


def human_bytes(count: int | float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def _machine_bytes() -> float:
    return psutil.virtual_memory().available


def _limited_bytes() -> float:
    """What ``ulimit -v`` leaves, on systems that have it."""
    if not hasattr(psutil, "RLIMIT_AS"):
        return inf
    process = psutil.Process()
    limit, _ = process.rlimit(psutil.RLIMIT_AS)
    return inf if limit in (-1, psutil.RLIM_INFINITY) else limit - process.memory_info().vms


def group_bytes(root: Path = Path("/")) -> float:
    """What the control groups of this process leave, those of containers and batch systems; infinity without any."""
    return min((_left(*group) for group in _limited_groups(root)), default=inf)


@lru_cache(maxsize=8)
def _limited_groups(root: Path) -> tuple[tuple[Path, str, str, str], ...]:
    """The folders of the groups that limit this process, with the names of their files."""
    total = psutil.virtual_memory().total
    return tuple(
        (folder, *names) for folder in _groups(root) for names in _GROUP_FILES if _number(folder / names[0]) < total
    )


def _groups(root: Path) -> Iterator[Path]:
    """The folders of this process's groups, up to the root of each."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for _, kinds, path in (line.split(":", 2) for line in lines):
        if kinds and "memory" not in kinds.split(","):
            continue
        top = root / "sys/fs/cgroup" / ("memory" if kinds else "")
        folder = top / path.lstrip("/")
        yield from (one for one in (folder, *folder.parents) if one.is_relative_to(top))


def _left(folder: Path, limit: str, used: str, cache: str) -> float:
    """The limit of a group without what it uses; the page cache counts as free."""
    try:
        pairs = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        free = int(pairs.get(cache, 0))
    except (OSError, ValueError):
        free = 0
    return _number(folder / limit) - _number(folder / used, 0.0) + free


def _number(file: Path, default: float = inf) -> float:
    """What a file holds; the default for "max" and for files that are missing."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return default
