"""How a command ends early: by a signal, a reader that has gone, or a full disk behind its output."""

import errno
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Timer
from types import FrameType

UNREAD = 128 + 13  # SIGPIPE: the reader of the output has gone, as in `bidual predict ... | head -1`
_SOON = 0.05  # seconds after which a lost signal is sent again
_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Interruption:
    """The signal that ended the process. All of them raise KeyboardInterrupt, so results kept on Ctrl-C are kept."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._timers: list[Timer] = []

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        raise KeyboardInterrupt

    @property
    def code(self) -> int:
        """128 and the number of the signal, as in shells: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + (signal.SIGINT if self.number is None else self.number)

    def again(self) -> None:
        """Send the signal again, soon: Python drops an exception raised in a finaliser or a callback of the garbage
        collector, and a signal during a collection is handled in such a place."""
        timer = Timer(_SOON, _send, (signal.SIGINT if self.number is None else self.number,))
        timer.daemon = True
        self._timers.append(timer)
        timer.start()

    def forget(self) -> None:
        """Send nothing again; for when the block has ended."""
        for timer in self._timers:
            timer.cancel()

    def say(self) -> None:
        """One line on standard error."""
        by = "" if self.number in (None, signal.SIGINT) else f" by {signal.Signals(self.number).name}"
        print(f"error: interrupted{by} before it was done; no half-written file was left.", file=sys.stderr)


def _send(number: int) -> None:
    """A signal to this process; on Windows ``os.kill`` would end it without a handler."""
    if os.name == "nt":
        signal.raise_signal(number)
    else:
        os.kill(os.getpid(), number)


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Handle Ctrl-C, SIGTERM and SIGHUP within the block; a signal that the caller ignores or handles stays as it is.

    So does one that the block itself ignores in the end: a rank that has lost the others ends in its own way. A block
    within another one yields the outer interruption.
    """
    outer = [handler for handler in map(signal.getsignal, _SIGNALS) if isinstance(handler, Interruption)]
    if outer:
        yield outer[0]
        return
    interruption, before, earlier_hook = Interruption(), {}, sys.unraisablehook

    def hook(lost: "sys.UnraisableHookArgs") -> None:
        if lost.exc_type is KeyboardInterrupt and interruption.number is not None:
            interruption.again()
        else:
            earlier_hook(lost)

    usual = (signal.SIG_DFL, signal.default_int_handler)
    with suppress(ValueError):  # only the main thread may handle signals
        before = {n: signal.signal(n, interruption) for n in _SIGNALS if signal.getsignal(n) in usual}
    sys.unraisablehook = hook
    try:
        yield interruption
    finally:
        sys.unraisablehook = earlier_hook
        interruption.forget()
        for number, handler in before.items():
            if signal.getsignal(number) is interruption:
                signal.signal(number, handler)


def open_streams() -> None:
    """Replace closed standard streams by ones that discard everything."""
    sys.stdout = open(os.devnull, "w") if sys.stdout is None else sys.stdout  # noqa: SIM115
    sys.stderr = open(os.devnull, "w") if sys.stderr is None else sys.stderr  # noqa: SIM115


def drop_output() -> None:
    """Discard unwritten standard output, which Python would otherwise try to write again at its end."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.__stdout__.fileno() if sys.__stdout__ is not None else 1)
        os.close(nowhere)


def is_full(error: OSError) -> bool:
    """Whether standard output cannot be written; errors of files carry their names."""
    full = (errno.ENOSPC, errno.EFBIG, errno.EIO, errno.EDQUOT)
    return error.errno in full and error.strerror is not None and error.filename is None
