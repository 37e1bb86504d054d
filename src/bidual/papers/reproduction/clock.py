"""How long an experiment took, over all the sessions that it needed."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from bidual.papers.reproduction.machine import commit
from bidual.runtime.files import write_atomically


@dataclass(frozen=True)
class Spent:
    """What an experiment has taken so far.

    Attributes:
        started: when its first session began, as ISO 8601 in UTC.
        seconds: of all sessions.
        commits: of the checkouts that they ran, in order.
    """

    started: str
    seconds: float = 0.0
    commits: tuple[str, ...] = ()


def read_spent(folder: Path) -> Spent:
    """From the folder of work half done; a new one where there is none."""
    path = folder / "clock.json"
    if not path.is_file():
        return Spent(datetime.now(UTC).isoformat(timespec="seconds"))
    kept = json.loads(path.read_text(encoding="utf-8"))
    return Spent(kept["started"], kept["seconds"], tuple(kept["commits"]))


@contextmanager
def timed(folder: Path) -> Iterator[None]:
    """Add a session to the clock, however it ends; one that left nothing else behind is not kept."""
    before, mine, began = read_spent(folder), commit(), time.perf_counter()
    commits = before.commits if mine is None or mine in before.commits[-1:] else (*before.commits, mine)
    try:
        yield
    finally:
        spent = replace(before, seconds=before.seconds + time.perf_counter() - began, commits=commits)
        if folder.is_dir():
            write_atomically(folder / "clock.json", json.dumps(asdict(spent)).encode())


def forget_if_idle(folder: Path) -> None:
    """Remove a clock that stands alone in its folder."""
    if folder.is_dir() and os.listdir(folder) == ["clock.json"]:
        (folder / "clock.json").unlink()
