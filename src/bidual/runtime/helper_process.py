"""A child process that computes beside this one: requests and answers of one line each, numbers in shared memory.

It is a new interpreter: ``fork`` breaks threads of torch, and multiprocessing's ``spawn`` runs the user's script again.
It ends with this process, however that ends: its input is closed then, or its parent is another one.
"""

import json
import os
import select
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import IO

from bidual.runtime.shared_arrays import anonymous_file

_START = "import json, sys; sys.path[:] = json.loads(sys.argv[3]); from {module} import serve; serve()"
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_READY = "ready"
_LOOK = 2.0  # seconds between looks at whether the parent lives


class HelperLostError(Exception):
    """The child does not answer any more."""


def helpers_possible() -> bool:
    """Whether this system and this interpreter can start a helper; a frozen program would start itself."""
    return os.name == "posix" and bool(sys.executable) and not getattr(sys, "frozen", False)


class HelperProcess:
    """The parent's side.

    Args:
        module: its function ``serve`` runs in the child.
    """

    def __init__(self, module: str) -> None:
        self._file, self._ready, self._rest = anonymous_file(), False, b""
        self.user: object = None  # whose numbers are in the shared file
        path = json.dumps([str(folder) or os.getcwd() for folder in sys.path])
        arguments = [str(self.file), str(os.getpid()), path]
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", _START.format(module=module), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(self.file,),
            process_group=0,  # an interrupt from the keyboard is for the parent
            env=os.environ | _ONE_THREAD,
        )
        self._ending = weakref.finalize(self, _end, os.getpid(), self.process, self._file)

    @property
    def file(self) -> int:
        """The descriptor of the shared file, the same in the child."""
        return self._file.fileno()

    @property
    def pid(self) -> int:
        return self.process.pid

    def ready(self) -> bool:
        """Whether it has imported what it needs; does not wait."""
        if not self._ready and self._readable(0.0):
            self._ready = self.answer(0.0) == _READY
        return self._ready

    def ask(self, request: str) -> None:
        """Send one line; the last request must have been answered, so that there is room in the pipe."""
        assert self.process.stdin is not None
        try:
            os.write(self.process.stdin.fileno(), f"{request}\n".encode())
        except (OSError, ValueError) as error:
            raise HelperLostError("the helper process has ended") from error

    def answer(self, seconds: float) -> str:
        """The next line, waited for no longer than so many seconds."""
        assert self.process.stdout is not None
        ends = time.monotonic() + seconds
        while b"\n" not in self._rest:
            if not self._readable(max(ends - time.monotonic(), 0.0)):
                raise HelperLostError(f"the helper process did not answer within {seconds:.0f} seconds")
            more = os.read(self.process.stdout.fileno(), 4096)
            if not more:
                raise HelperLostError("the helper process has ended")
            self._rest += more
        line, self._rest = self._rest.split(b"\n", 1)
        return line.decode()

    def _readable(self, seconds: float) -> bool:
        assert self.process.stdout is not None
        if self.process.stdout.closed:
            raise HelperLostError("the helper process was closed")
        poll = select.poll()
        poll.register(self.process.stdout, select.POLLIN)
        return bool(poll.poll(1000 * seconds))

    def close(self) -> None:
        """End the child; more than once does no harm. Who forgets the helper ends it too."""
        self._ending()


def _end(owner: int, process: subprocess.Popen[bytes], file: IO[bytes]) -> None:
    if os.getpid() != owner:  # a fork, which ends before the owner does
        return
    for end in (file, process.stdin, process.stdout):
        with suppress(OSError):
            end.close()  # type: ignore[union-attr]
    process.kill()  # it has nothing to save, and an interpreter with torch takes a second to end
    process.wait()


def requests() -> Iterator[tuple[list[str], int]]:
    """In the child: the words of every request and the shared file, until the parent closes the pipe or dies.

    A request is answered with :func:`reply` before the next one is read.
    """
    file, parent = (int(word) for word in sys.argv[1:3])
    rest, sys.stdout = b"", sys.stderr  # answers are all that goes to the pipe
    reply(_READY)
    while True:
        while b"\n" not in rest:
            if not select.select([0], [], [], _LOOK)[0]:
                if os.getppid() != parent:  # the pipe may be held open by another child of it
                    return
                continue
            more = os.read(0, 4096)
            if not more:
                return
            rest += more
        line, rest = rest.split(b"\n", 1)
        yield line.decode().split(), file


def reply(answer: str) -> None:
    """In the child: one line for the parent."""
    os.write(1, f"{answer}\n".encode())
