"""Run an experiment and keep what it found: ``OUT/SCALE/NAME/`` holds result.json, figure.png and figure.svg."""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bidual.datasets.folders import DataDir
from bidual.files import write_atomically
from bidual.reproduction.catalogue import find
from bidual.reproduction.experiment import SCALES, Claim, Experiment, Finding, Scale
from bidual.reproduction.machine import commit, machine
from bidual.reproduction.means import Means, silent
from bidual.reproduction.plain_data import plain_data

FORMAT = 1
KIND = "bidual reproduction"
_FIELDS = ("row", "name", "title", "source", "scale", "seed", "seconds", "started", "machine", "version", "commit")


@dataclass(frozen=True)
class Reproduction:
    """A finished experiment as it is kept.

    Attributes:
        row, name, title, source: which one.
        scale: "paper", "cpu" or "smoke".
        configuration: what ran.
        seed, seconds, started, machine, version, commit: how, when and where.
        claims: of the paper, checked.
        table: Markdown.
        data: everything measured.
        folder: where the files are.
    """

    row: str
    name: str
    title: str
    source: str
    scale: str
    seed: int
    seconds: float
    started: str
    machine: dict[str, Any]
    version: str
    commit: str | None
    configuration: Any
    claims: tuple[Claim, ...]
    table: str
    data: Any
    folder: Path

    @property
    def holds(self) -> int:
        """How many of the claims hold."""
        return sum(claim.holds for claim in self.claims)


def reproduce(
    name: str,
    scale: Scale = "cpu",
    out: str | os.PathLike[str] = "reproduction",
    *,
    data_dir: DataDir = None,
    download: bool = False,
    device: str = "cpu",
    workers: int = 1,
    force: bool = False,
    say: Callable[[str], None] = silent,
) -> Reproduction:
    """Run one experiment, or read what an earlier run kept.

    Args:
        name: such as "cp_figure_1", or its row, "R4".
        scale: "paper" has the printed sizes, most of them for a GPU; "cpu" takes at most an hour on two cores; "smoke"
            takes seconds, needs no data, and shows only that everything runs.
        out: the folder for results.
        data_dir, download: of :func:`bidual.datasets.load_images`.
        device: of torch.
        workers: processes of studies that have many independent parts.
        force: whether to run again what has been run.
        say: is told of progress.
    """
    experiment, folder = find(name), place(out, name, scale)
    if not force and (kept := read(folder)) is not None:
        return kept
    started, began = datetime.now(UTC).isoformat(timespec="seconds"), time.perf_counter()
    with _workplace(folder, force) as work:
        finding = experiment.study(scale, Means(work, data_dir, download, device, workers, scale == "smoke", say))
    return _keep(experiment, scale, finding, folder, started, time.perf_counter() - began, device)


def place(out: str | os.PathLike[str], name: str, scale: str) -> Path:
    """The folder of an experiment's results."""
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)}, got {scale!r}.")
    if Path(out).exists() and not Path(out).is_dir():
        raise NotADirectoryError(f"results go to a folder, but {os.fspath(out)!r} is a file; give another name.")
    return Path(out) / scale / find(name).name


@contextmanager
def _workplace(folder: Path, fresh: bool) -> Iterator[Path]:
    """The folder for work half done; where a study fails before there is any, no empty folders stay."""
    work = folder / "parts"
    if fresh:
        shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)
    try:
        yield work
    except BaseException:
        with suppress(OSError):
            for empty in (work, folder, folder.parent, folder.parent.parent):
                empty.rmdir()
        raise


def _keep(
    experiment: Experiment, scale: str, finding: Finding, folder: Path, started: str, seconds: float, device: str
) -> Reproduction:
    """Figures first: a result.json stands for a whole result."""
    for suffix in (".png", ".svg"):
        write_atomically(folder / f"figure{suffix}", finding.draw(suffix))
    facts = {
        "format": FORMAT,
        "kind": KIND,
        **{name: getattr(experiment, name) for name in ("row", "name", "title", "source", "seed")},
        "scale": scale,
        "seconds": seconds,
        "started": started,
        "machine": machine(device),
        "version": version("bidual"),
        "commit": commit(),
        "configuration": plain_data(finding.configuration),
        "claims": [asdict(claim) for claim in finding.claims],
        "table": finding.table,
        "data": plain_data(finding.data),
    }
    write_atomically(folder / "result.json", (json.dumps(facts, indent=1, allow_nan=False) + "\n").encode())
    return _from_json(facts, folder)


def read(folder: str | os.PathLike[str]) -> Reproduction | None:
    """What a folder holds; None if nothing is finished there."""
    path = Path(folder) / "result.json"
    if not path.is_file():
        return None
    try:
        facts = json.loads(path.read_text())
        if facts["format"] != FORMAT or facts["kind"] != KIND:
            raise ValueError("another format")
        return _from_json(facts, Path(folder))
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{path} does not hold a result of bidual reproduce; delete it, or use --force.") from error


def _from_json(facts: dict[str, Any], folder: Path) -> Reproduction:
    claims = tuple(Claim(**claim) for claim in facts["claims"])
    rest = {name: facts[name] for name in _FIELDS}
    return Reproduction(
        **rest,
        configuration=facts["configuration"],
        claims=claims,
        table=facts["table"],
        data=facts["data"],
        folder=folder,
    )
