"""Processes that are made by a fork, so that they have imported everything, and can be killed in the middle of it."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bidual.cli.app import main

_TICKS = os.sysconf("SC_CLK_TCK")
_PATIENCE = 60.0  # seconds; what a slow machine may take


class End(NamedTuple):
    """How a process ended: its exit code, or minus the signal that killed it, and what it wrote."""

    code: int
    out: str
    err: str


class Child:
    """A function in a process of its own, with outputs that go to files."""

    def __init__(self, folder: Path, work: Callable[[], object]) -> None:
        self.outputs = [folder / f"standard-{name}-{time.monotonic_ns()}" for name in ("output", "error")]
        for path in self.outputs:
            path.touch()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if not self.pid:
            self._become(work)

    def _become(self, work: Callable[[], object]) -> None:
        """Never returns: whatever happens, pytest must not go on in here."""
        code = 1
        try:
            for number, path in zip((1, 2), self.outputs, strict=True):
                os.dup2(os.open(path, os.O_WRONLY), number)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for number in (signal.SIGTERM, signal.SIGHUP):  # which nohup, around the tests, would have them ignore
                signal.signal(number, signal.SIG_DFL)
            work()
            code = 0
        except SystemExit as leave:
            code = leave.code if isinstance(leave.code, int) else 1
        except BaseException as error:
            print(f"died of {error!r}", file=sys.stderr)
        finally:
            sys.stdout.flush()
            os._exit(code)

    def seconds(self) -> float:
        """Of processor time so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def wait_until(self, reached: Callable[[], bool]) -> None:
        """Until something has happened in it; it may not end before."""
        end = time.monotonic() + _PATIENCE
        while not reached():
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            assert ended is None, self.outputs[1].read_text()
            assert time.monotonic() < end
            time.sleep(0.02)

    def tell(self, number: int) -> End:
        """Send a signal and wait for the end."""
        os.kill(self.pid, number)
        return self.end()

    def end(self) -> End:
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return End(code, *(path.read_text() for path in self.outputs))


def command(folder: Path, *arguments: object) -> Child:
    """The command line in a child."""
    return Child(folder, lambda: main([str(argument) for argument in arguments]))


def visible(folder: Path) -> list[str]:
    """Names in a folder and below, without what children wrote; hidden ones too."""
    names = (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in names if not name.startswith("standard-"))
