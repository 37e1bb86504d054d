"""How a command ends that does not end by itself: a signal, a reader that has gone, a full disk behind its output."""

import errno
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Timer
from types import FrameType

UNREAD = 128 + signal.SIGPIPE  # nobody reads the output any more, as in `bidual predict ... | head -1`
_SOON = 0.05  # seconds, after which a signal that was lost is sent again
_ASKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """Which signal asked the process to end. All of them are a KeyboardInterrupt, so what Ctrl-C keeps they keep."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._later: list[Timer] = []

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        raise KeyboardInterrupt

    @property
    def code(self) -> int:
        """128 and the number of the signal, as shells have it: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + (signal.SIGINT if self.number is None else self.number)

    def again(self) -> None:
        """Ask once more, soon: Python drops what is raised where nothing can catch it, in a finaliser or a callback of
        the garbage collector, and a signal that came during a collection is handled in just such a place."""
        timer = Timer(_SOON, os.kill, (os.getpid(), signal.SIGINT if self.number is None else self.number))
        timer.daemon = True
        self._later.append(timer)
        timer.start()

    def forget(self) -> None:
        """What was to be asked once more is not; for when the block has ended."""
        for timer in self._later:
            timer.cancel()

    def say(self) -> None:
        """One line on standard error."""
        by = "" if self.number in (None, signal.SIGINT) else f" by {signal.Signals(self.number).name}"
        print(f"error: interrupted{by} before it was done; no half-written file was left.", file=sys.stderr)


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Ctrl-C, SIGTERM and SIGHUP within the block; a signal that the caller ignores or handles stays as it is.

    So does one that the block itself ignores in the end: a rank that has lost the others ends in its own way.

    Within another such block it is the same one.
    """
    outer = [handler for handler in map(signal.getsignal, _ASKED) if isinstance(handler, Interruption)]
    if outer:
        yield outer[0]
        return
    asked, before, dropped = Interruption(), {}, sys.unraisablehook

    def hook(lost: "sys.UnraisableHookArgs") -> None:
        if lost.exc_type is KeyboardInterrupt and asked.number is not None:
            asked.again()
        else:
            dropped(lost)

    usual = (signal.SIG_DFL, signal.default_int_handler)
    with suppress(ValueError):  # not in the main thread, which alone may handle signals
        before = {number: signal.signal(number, asked) for number in _ASKED if signal.getsignal(number) in usual}
    sys.unraisablehook = hook
    try:
        yield asked
    finally:
        sys.unraisablehook = dropped
        asked.forget()
        for number, handler in before.items():
            if signal.getsignal(number) is asked:
                signal.signal(number, handler)


def open_streams() -> None:
    """Outputs that the caller has closed go nowhere, instead of failing."""
    sys.stdout = open(os.devnull, "w") if sys.stdout is None else sys.stdout  # noqa: SIM115
    sys.stderr = open(os.devnull, "w") if sys.stderr is None else sys.stderr  # noqa: SIM115


def drop_output() -> None:
    """Forget what has not been written to standard output, or the end of the process would try it once more."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.__stdout__.fileno() if sys.__stdout__ is not None else 1)
        os.close(nowhere)


def is_full(error: OSError) -> bool:
    """Whether standard output cannot be written: files that cannot be are said with their names."""
    full = (errno.ENOSPC, errno.EFBIG, errno.EIO, errno.EDQUOT)
    return error.errno in full and error.strerror is not None and error.filename is None
