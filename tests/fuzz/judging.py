"""What counts as a finding: the promises that every example is held against."""

import io
import linecache
import os
import signal
import traceback
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from hashlib import sha256
from pathlib import Path
from types import FrameType
from typing import NamedTuple
from unittest.mock import patch

from bidual.cli import app as cli

REFUSALS = (ValueError, TypeError, OSError)
_SPEAKERS = ("/bidual/", "/sklearn/", "/pathlib.py", "/click/", "/typer/")  # whose sentences are made for users
_SCIKIT = ("/sklearn/utils/validation.py", "/sklearn/metrics/")
_LIMIT = 60.0  # seconds; an example takes milliseconds
_LONGEST = 4000  # characters of a message


class Finding(BaseException):
    """A broken promise; a BaseException, so that no handler of the package takes it for bad input."""


class Run(NamedTuple):
    """How a command ended."""

    code: object
    out: str
    err: str


def check_refusal(error: BaseException) -> None:
    """A refusal is one clear sentence that somebody wrote for the case, not an accident deep within."""
    if hasattr(error, "format_message") or (isinstance(error, OSError) and error.strerror):
        return  # wrong use in the words of the command line, or the system's own words with the file
    text = str(error)
    if not isinstance(error, REFUSALS) or not text.strip() or len(text) > _LONGEST or not _deliberate(error):
        raise Finding("".join(traceback.format_exception(error))) from error


def _deliberate(error: BaseException) -> bool:
    """Whether a ``raise`` statement of the package, or of scikit-learn's checks, made the error."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or any(name in frame.filename for frame in frames for name in _SCIKIT):
        return True  # the command line's own, or what scikit-learn says of arrays
    last = frames[-1]
    if str(error).startswith("expected str, bytes or os.PathLike object"):
        return True  # what Python says of anything that is no path
    line = linecache.getline(last.filename, last.lineno or 0).strip()
    return line.startswith("raise") and any(speaker in last.filename for speaker in _SPEAKERS)


@contextmanager
def judged() -> Iterator[None]:
    """Run Python code that may refuse its input, and nothing worse, in bounded time."""
    with in_time():
        try:
            yield
        except Exception as error:
            check_refusal(error)


@contextmanager
def in_time(limit: float = _LIMIT) -> Iterator[None]:
    """A finding if it takes too long; a call that never returns to Python is left to the runner's own limit."""

    def late(_signal: int, frame: FrameType | None) -> None:
        raise Finding(f"took more than {limit:g} s\n" + "".join(traceback.format_stack(frame)))

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def check_command(folder: Path, *arguments: object, outputs: tuple[str, ...] = ()) -> Run:
    """Run a command in ``folder`` and hold it against its promises; ``outputs`` are the files it may write."""
    before = _files(folder)
    run = _run(folder, [str(argument) for argument in arguments])
    told = f"bidual {' '.join(map(repr, arguments))}\nexit {run.code}\n{run.err}"
    if run.code not in (0, 2):
        raise Finding(told)
    if run.code == 2:
        lines = [line for line in run.err.split("\n") if line and not line.startswith("warning: ")]
        if len(lines) != 1 or not lines[0].startswith("error: ") or len(lines[0]) > _LONGEST:
            raise Finding(told)
    strange = {name for name, content in _files(folder).items() if before.get(name) != content} - set(outputs)
    if strange or before.keys() - _files(folder).keys():
        raise Finding(f"{told}\nwritten or lost: {sorted(strange) or before.keys() - _files(folder).keys()}")
    return run


def _run(folder: Path, arguments: list[str]) -> Run:
    """A command in this process; an unexpected error is raised as it is, and a refusal is looked at."""
    out, err, code = io.StringIO(), io.StringIO(), None

    def explained(error: Exception) -> str | None:
        message = explain(error)
        if message is not None and not isinstance(error, MemoryError):
            check_refusal(error)
        return message

    explain = cli._explain
    with chdir(folder), redirect_stdout(out), redirect_stderr(err), in_time():
        try:
            with patch.object(cli, "_explain", explained), patch.dict(os.environ, {"BIDUAL_DEBUG": "1"}):
                cli.main(arguments)
        except SystemExit as leave:
            code = leave.code
        except Exception as error:
            raise Finding(f"bidual {arguments}\n" + "".join(traceback.format_exception(error))) from error
    return Run(code, out.getvalue(), err.getvalue())


def _files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by what is in it."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): sha256(path.read_bytes()).digest() for path in found}
