"""A worker as a process that is asked for one rung after another, and killed when one takes too long."""

import json
import selectors
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from systems import System, one_thread

_WARM_UP = 300.0  # seconds to import, compile and solve a tiny problem; not timed


class TooLong(Exception):
    """A rung took longer than its limit."""


class Crash(Exception):
    """The worker ended, with the last line it said."""


@dataclass
class Worker:
    """A context that starts a system on the task in ``folder``, and leaves no process behind."""

    system: System
    environments: Path
    folder: Path

    def __enter__(self) -> Self:
        python = self.system.python(self.environments)
        if not python.exists():
            raise Crash("there is no environment for it; run environments.py")
        self._said = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [str(python), str(self.system.script), str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env=one_thread(),
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._said.close()

    def warm_up(self) -> None:
        try:
            self._event(_WARM_UP)
        except TooLong:
            raise Crash(f"a tiny problem took longer than {_WARM_UP:g} s") from None

    def rung(self, tolerance: float, limit: float) -> tuple[dict[str, Any], dict[str, Any]]:
        """Times and arrays of one solve; ``TooLong`` or ``Crash`` otherwise. Short solves are repeated."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{tolerance!r}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Crash(self._last_words()) from None
        event = self._event(limit)
        with np.load(self.folder / event["file"]) as stored:
            return event, dict(stored)

    def _event(self, limit: float) -> dict[str, Any]:
        stream = self._process.stdout
        assert stream is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            if not selector.select(limit):
                raise TooLong
        line = stream.readline()
        if not line:
            raise Crash(self._last_words())
        return json.loads(line)

    def _last_words(self) -> str:
        """The last line of standard error, or how the process ended."""
        code = self._process.wait()
        self._said.seek(0)
        lines = [line.strip() for line in self._said if line.strip()]
        return lines[-1] if lines and code > 0 else f"ended with code {code}"
