"""Starting torchrun, and the tables that its ranks read."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest


def torchrun(ranks: int, *arguments: object) -> subprocess.Popen[str]:
    """Ranks on this machine, one thread each; ``arguments`` begin with a script, or with -m and a module."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    return subprocess.Popen(
        [*command, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def wait_for(path: Path, seconds: float = 90) -> None:
    """Until a file is there."""
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"{path} was not written"
        time.sleep(0.05)


def wait_for_end(process: int, seconds: float) -> None:
    """Until it is gone, or a zombie."""
    end = time.monotonic() + seconds
    while (lines := Path(f"/proc/{process}/cmdline")).exists() and lines.read_bytes():
        assert time.monotonic() < end, "it still waits"
        time.sleep(0.1)


def rank_of(parent: int, rank: int) -> int:
    """The process that torchrun has started as a rank."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return next(int(pid) for pid in children if f"\0RANK={rank}\0" in Path(f"/proc/{pid}/environ").read_text())


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], str]) -> Path:
    """A folder that ``make`` fills, once for all processes that share the tests; what it returns is in ``done``."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    try:
        folder.mkdir()
    except FileExistsError:
        wait_for(folder / "done", 300)
        return folder
    (folder / "making").write_text(make(folder))
    return (folder / "making").rename(folder / "done").parent


def write_tables(folder: Path) -> pd.DataFrame:
    """The same rows as CSV and Parquet, and numbers as an array.

    There are line breaks within quotes, missing values, a category that only the second half has, and in CSV a column
    that looks like numbers in the first half and a last line without a break.
    """
    rng = np.random.default_rng(0)
    n = 83
    a, b, c = rng.standard_normal((3, n))
    frame = pd.DataFrame({"a": a, "b": np.where(c > 1, np.nan, b), "one": 1.0})
    frame["shade"] = np.where(a > 0, 'a "dark"\none', "light, or not")
    frame["late"] = np.where(np.arange(n) > 60, "new", "old")
    frame["code"] = [str(k % 5) if k < 50 else f"x{k % 3}" for k in range(n)]
    frame["empty at first"] = [None if k < 55 else "there" for k in range(n)]
    frame["label"] = np.where(a * b + 0.3 * c > 0, "yes", "no")
    frame["level"] = a - np.maximum(b, 0) + 0.1 * c
    frame.to_parquet(folder / "table.parquet", row_group_size=9)
    (folder / "table.csv").write_text(frame.to_csv(index=False).rstrip("\n"))
    np.save(folder / "array.npy", np.column_stack([a, b, c]))
    return frame
