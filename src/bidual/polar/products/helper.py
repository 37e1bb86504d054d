"""A second process for the cells of a proof: whether there is one, and since when."""

import logging
import math
import time
from typing import Self

import psutil
import torch
from joblib import cpu_count

from bidual.runtime.crossovers import PROOFS
from bidual.runtime.helper_process import HelperLostError, HelperProcess, helpers_possible
from bidual.runtime.memory import available_bytes
from bidual.runtime.threads import spare_threads

_WORKER = "bidual.polar.products.remote"
_FREE = 0.7  # of a core: how much must have been idle since the last look
_MEMORY = 1 << 30  # bytes; the process takes a quarter of it before it has cells
_AGAIN = 1.0  # seconds after which a busy machine is looked at again
_log = logging.getLogger(__name__)


class Helper:
    """Starts a process once it is worth it, and has it once it is ready; nothing waits for it.

    It is worth it where the caller allows a second thread, a second core is free, and the proof has run for
    ``PROOFS.helper_after`` seconds and may go on for ``PROOFS.helper_left``: a start takes the other core for seconds.

    Args:
        deadline: of the proof, by ``time.perf_counter``.
    """

    def __init__(self, deadline: float = math.inf) -> None:
        self.deadline, self.over = deadline, not _allowed()
        self._looked, self._idle = time.perf_counter(), 0.0 if self.over else _idle_seconds()
        self._next = self._looked + PROOFS.helper_after
        self.process: HelperProcess | None = None

    def ready(self) -> HelperProcess | None:
        """The process, None while there is none."""
        if self.over:
            return None
        if self.process is None:
            self._start_if_worthwhile()
            return None
        try:
            return self.process if self.process.ready() else None
        except HelperLostError as error:
            self.lost(error)
            return None

    def _start_if_worthwhile(self) -> None:
        now = time.perf_counter()
        if now < self._next:
            return
        self._next = now + _AGAIN
        if self.deadline - now < PROOFS.helper_left:
            self.over = True
        elif self._core_was_free(now) and available_bytes(torch.device("cpu")) > _MEMORY:
            self._start()

    def _core_was_free(self, now: float) -> bool:
        """Since the last look; the load average would tell of the last minute, which training may have filled."""
        idle = _idle_seconds()
        free = (idle - self._idle) / (now - self._looked)
        self._looked, self._idle = now, idle
        return free > _FREE

    def _start(self) -> None:
        try:
            self.process = HelperProcess(_WORKER)
        except OSError as error:
            self.lost(error)

    def lost(self, error: Exception) -> None:
        """Go on without it."""
        _log.info("The proof goes on in one process: %s.", error)
        self.close()

    def close(self) -> None:
        """End the process; there is no other one afterwards."""
        self.over = True
        if self.process is not None:
            self.process.close()
            self.process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _allowed() -> bool:
    return helpers_possible() and spare_threads() > 1 and cpu_count() > 1


def _idle_seconds() -> float:
    """Of all cores of the machine, since it was started."""
    times = psutil.cpu_times()
    return times.idle + getattr(times, "iowait", 0.0)
