"""How much memory there is, and how to say how much is needed."""

import os
import resource
from collections.abc import Iterator
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch

_ROOT = Path("/")
_SAID = ("can't allocate memory", "out of memory", "bad_alloc", "cannot allocate memory")  # by torch, cuda, C++, BLAS


def available_bytes(device: "torch.device") -> int:
    """Memory of a device that this process may still take: of the machine, its control group and its own limits."""
    if device.type == "cuda":
        import torch  # a command that is refused asks this module without having needed torch

        return torch.cuda.mem_get_info(device)[0]
    return max(int(min(_machine_bytes(), group_bytes(), _limited_bytes())), 0)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error is about memory; torch raises a RuntimeError."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and any(said in text for said in _SAID))


def human_bytes(count: int | float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def _machine_bytes() -> float:
    try:
        return _numbers(_ROOT / "proc/meminfo")["MemAvailable:"] * 1024
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _limited_bytes() -> float:
    """What ``ulimit -v`` leaves."""
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY:
        return inf
    try:
        pages = int((_ROOT / "proc/self/statm").read_text().split()[0])
    except (OSError, ValueError):
        pages = 0
    return most - pages * os.sysconf("SC_PAGE_SIZE")


def group_bytes(root: Path = _ROOT) -> float:
    """What the control groups of this process leave, as those of containers and batch systems do; infinity if none."""
    return min((_left(*group) for group in _limited_groups(root)), default=inf)


class _Names(NamedTuple):
    """What a version of control groups calls its files, and the page cache in its statistics."""

    limit: str
    used: str
    cache: str


_VERSIONS = (
    _Names("memory.max", "memory.current", "inactive_file"),
    _Names("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


@lru_cache(maxsize=8)
def _limited_groups(root: Path) -> tuple[tuple[Path, _Names], ...]:
    """The groups that limit this process, of either version; looked for once, because it is asked often."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return tuple(
        (folder, names) for folder in _groups(root) for names in _VERSIONS if _number(folder / names.limit) < there
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


def _left(folder: Path, names: _Names) -> float:
    """The limit of one group without what it uses; the page cache can be had back."""
    try:
        cache = _numbers(folder / "memory.stat").get(names.cache, 0)
    except (OSError, ValueError):
        cache = 0
    used = _number(folder / names.used)
    return _number(folder / names.limit) - (0 if used == inf else used) + cache


def _number(file: Path) -> float:
    """What a file holds; infinity for "max", and for files that are not there."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return inf


def _numbers(file: Path) -> dict[str, int]:
    """Names and whole numbers, a pair per line."""
    pairs = (line.split()[:2] for line in file.read_text().splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}
