"""Many experiments: independent ones as tasks of a sweep, those that measure time one by one."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from joblib import effective_n_jobs

from bidual.papers.reproduction.catalogue import DIVIDED, TIMED
from bidual.papers.reproduction.context import silent
from bidual.papers.reproduction.experiment import Experiment
from bidual.papers.reproduction.run import Reproduction, place, read, reproduce
from bidual.runtime.files import write_atomically
from bidual.runtime.jobs import Task, run_all

Say = Callable[[str], None]
_FILES = ("figure.png", "figure.svg", "result.json")  # the last stands for all


class Results(NamedTuple):
    """What came out, in the order of the experiments, and why others could not run, by name."""

    done: list[Reproduction]
    failed: dict[str, str]


@dataclass(frozen=True)
class Attempt:
    """A task's end: the files it wrote, for a caller on another machine, or what it lacked."""

    seconds: float
    files: dict[str, bytes]
    failure: str | None = None


def reproduce_all(
    experiments: Sequence[Experiment],
    scale: str,
    out: Path,
    settings: dict[str, Any],
    say: Say = silent,
) -> Results:
    """Run experiments; those that cannot run, for lack of data or otherwise, are left out and named.

    With several workers, or within :func:`bidual.runtime.jobs.scheduler`, experiments are tasks of a sweep first.
    Then come, one after another and in this process, those that divide their own work among the workers, and those
    whose claims or budgets are seconds, which other work on the machine would lengthen.

    Args:
        settings: of :func:`bidual.papers.reproduction.reproduce`: data_dir, download, device, workers, force.
        say: called in this process with a line of progress whenever an experiment ends.
    """
    out, settings = Path(out).absolute(), _absolute(settings)
    attempts: dict[str, Attempt] = {}
    several = effective_n_jobs(settings["workers"]) > 1
    if several:
        attempts |= _as_tasks([e for e in experiments if _is_task(e, scale, out, settings)], scale, out, settings, say)
    for experiment in sorted(
        (e for e in experiments if e.name not in attempts), key=lambda e: several and e.row in TIMED
    ):
        attempts[experiment.name] = attempt(experiment.name, scale, out, settings, say)
        _tell(experiment, attempts[experiment.name], say)
    ran = [e for e in experiments if attempts[e.name].failure is None]
    done = [kept for e in ran if (kept := read(place(out, e.name, scale))) is not None]
    failures = {e.name: attempts[e.name].failure for e in experiments}
    return Results(done, {name: f"{name}: {text}" for name, text in failures.items() if text is not None})


def attempt(name: str, scale: str, out: Path, settings: dict[str, Any], say: Say = silent) -> Attempt:
    """Run one experiment, wherever this is called."""
    began = time.perf_counter()
    try:
        folder = reproduce(name, scale, out, say=say, **settings).folder  # type: ignore[arg-type]
    except (ValueError, OSError, MemoryError, FloatingPointError) as error:
        return Attempt(time.perf_counter() - began, {}, str(error) or type(error).__name__)
    return Attempt(time.perf_counter() - began, {file: (folder / file).read_bytes() for file in _FILES})


def _absolute(settings: dict[str, Any]) -> dict[str, Any]:
    """Folders as workers elsewhere must be given them."""
    folder = settings.get("data_dir")
    return settings | {"data_dir": None if folder is None else Path(folder).absolute()}


def _is_task(experiment: Experiment, scale: str, out: Path, settings: dict[str, Any]) -> bool:
    kept = not settings.get("force") and (place(out, experiment.name, scale) / "result.json").is_file()
    return not kept and experiment.row not in TIMED | DIVIDED


def _as_tasks(
    chosen: list[Experiment], scale: str, out: Path, settings: dict[str, Any], say: Say
) -> dict[str, Attempt]:
    """As many at a time as there are workers; their own lines of progress are not heard here."""
    tasks = [Task(attempt, (e.name, scale, out, settings | {"workers": 1})) for e in chosen]

    def ended(number: int, found: Attempt) -> None:
        _bring_home(found, place(out, chosen[number].name, scale))
        _tell(chosen[number], found, say)

    if chosen:
        say(f"{', '.join(e.row for e in chosen)} run as tasks; what measures time, or divides itself, follows alone")
    found = run_all(tasks, settings["workers"], ended)
    return {e.name: each for e, each in zip(chosen, found, strict=True)}


def _bring_home(found: Attempt, folder: Path) -> None:
    """Write what a task has written, where that is not here already."""
    for name, data in found.files.items():
        if not (folder / name).is_file() or (folder / name).read_bytes() != data:
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / name, data)


def _tell(experiment: Experiment, found: Attempt, say: Say) -> None:
    if found.failure is None:
        say(f"{experiment.row} {experiment.name}: {found.seconds:.0f} s")
