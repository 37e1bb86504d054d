"""Run an experiment and keep what it found: ``OUT/SCALE/NAME/`` holds result.json, figure.png and figure.svg."""

import hashlib
import inspect
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bidual.io.datasets.official_files import DataDir
from bidual.papers.reproduction.catalogue import find
from bidual.papers.reproduction.clock import forget_if_idle, read_spent, timed
from bidual.papers.reproduction.context import Context, silent
from bidual.papers.reproduction.experiment import SCALES, Experiment, Finding, Scale
from bidual.papers.reproduction.machine import machine
from bidual.papers.reproduction.plain_data import plain_data
from bidual.reporting.written import FORMAT, KIND, RESULT, Written, read_result
from bidual.runtime.files import write_atomically


class Reproduction(Written):
    """A finished experiment with everything that was measured.

    Attributes:
        data: of numbers, texts, lists and mappings.
    """

    data: Any


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
        data_dir, download: of :func:`bidual.io.datasets.load_images`.
        device: of torch.
        workers: processes of studies that have many independent parts.
        force: whether to run again what has been run.
        say: called with lines of progress.
    """
    experiment, folder = find(name), place(out, name, scale)
    if force:
        _set_aside(folder)
    elif (kept := read(folder)) is not None:
        if kept.fingerprint != fingerprint(experiment):
            say(f"{experiment.name} was made by another version of the experiment; --force runs it again")
        return kept
    with _workplace(folder) as work, timed(work):
        finding = experiment.study(scale, Context(work, data_dir, download, device, workers, scale == "smoke", say))
    return _keep(experiment, scale, finding, folder, device)


def fingerprint(experiment: Experiment) -> str:
    """Of the experiment's own file: another one may have other sizes or claims."""
    source = inspect.getsource(sys.modules[experiment.study.__module__])
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def place(out: str | os.PathLike[str], name: str, scale: str) -> Path:
    """The folder of an experiment's results."""
    check_scale(scale)
    if Path(out).exists() and not Path(out).is_dir():
        raise NotADirectoryError(f"results go to a folder, but {os.fspath(out)!r} is a file; give another name.")
    return Path(out) / scale / find(name).name


def check_scale(scale: str) -> None:
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)}, got {scale!r}.")


def _set_aside(folder: Path) -> None:
    """Forget work half done, and keep the finished result under another name."""
    shutil.rmtree(folder / "parts", ignore_errors=True)
    with suppress(FileNotFoundError):
        os.replace(folder / RESULT, folder / "result.old.json")


@contextmanager
def _workplace(folder: Path) -> Iterator[Path]:
    """The folder for work half done; where a study fails before there is any, no empty folders stay."""
    work = folder / "parts"
    made = [path for path in (work, folder, folder.parent, folder.parent.parent) if not path.exists()]
    work.mkdir(parents=True, exist_ok=True)
    try:
        yield work
    except BaseException:
        forget_if_idle(work)
        with suppress(OSError):
            for empty in made:
                empty.rmdir()
        raise


def _keep(experiment: Experiment, scale: str, finding: Finding, folder: Path, device: str) -> Reproduction:
    """Numbers first, then figures; a result.json stands for a whole result."""
    spent = read_spent(folder / "parts")
    facts = {
        "format": FORMAT,
        "kind": KIND,
        **{name: getattr(experiment, name) for name in ("row", "name", "title", "source", "seed")},
        "scale": scale,
        "seconds": spent.seconds,
        "started": spent.started,
        "machine": machine(device),
        "version": version("bidual"),
        "commit": ", ".join(spent.commits) or None,
        "fingerprint": fingerprint(experiment),
        "configuration": plain_data(finding.configuration),
        "claims": [asdict(claim) for claim in finding.claims],
        "table": finding.table,
        "data": plain_data(finding.data),
    }
    written = (json.dumps(facts, indent=1, allow_nan=False) + "\n").encode()
    write_atomically(folder / "parts" / "finding.json", written)
    for suffix in (".png", ".svg"):
        write_atomically(folder / f"figure{suffix}", finding.draw(suffix))
    write_atomically(folder / RESULT, written)
    return Reproduction.model_validate(facts | {"folder": folder})


def read(folder: str | os.PathLike[str]) -> Reproduction | None:
    """The result in a folder; None if nothing is finished there."""
    path = Path(folder) / RESULT
    if not path.is_file():
        return None
    try:
        return read_result(path, Reproduction)
    except ValueError as error:
        raise ValueError(f"{path} does not hold a result of bidual reproduce; delete it, or use --force.") from error
