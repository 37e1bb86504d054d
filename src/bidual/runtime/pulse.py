"""Whether the other processes still run: a heartbeat of every rank, through the store in which they met."""

import time
from threading import Event, Thread

import torch.distributed as dist

from bidual.runtime.rank_errors import AGAIN, LostRankError, lost_rank_errors

_BEATS = 8  # within the time after which a rank without any is given up
_SOON, _LATE = 1e-3, 0.05  # seconds between two looks


class Pulse:
    """Ranks wait for each other for as long as it takes, while all of them beat.

    A process that works beats from a thread of its own; one that was stopped, or lost its network, does not. Clocks of
    different machines are never compared: a rank counts as lost when its count has not changed for ``patience``
    seconds on the clock of the waiting rank.
    """

    def __init__(self, store: dist.Store, rank: int, size: int, patience: float) -> None:
        self.store, self.rank, self.size, self.patience = store, rank, size, patience
        self._meetings, self._ended = 0, Event()
        self._thread = Thread(target=self._beat, name="pulse", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(self.patience)

    def meet(self) -> None:
        """Wait until every rank has come here as often as this one."""
        self._meetings += 1
        with lost_rank_errors(self.rank, self.size, "waiting for the others"):
            self.store.set(self._place(self.rank), "")
            for other in range(self.size):
                self._await(other)

    def _place(self, rank: int) -> str:
        return f"meeting/{self._meetings}/{rank}"

    def _await(self, other: int) -> None:
        pause, place, seen, since = _SOON, self._place(other), -1, time.monotonic()
        while not self.store.check([place]):
            if (beats := self._beats_of(other)) != seen:
                seen, since = beats, time.monotonic()
            elif time.monotonic() - since > self.patience:
                raise LostRankError(
                    f"rank {self.rank} of {self.size} had no heartbeat of rank {other} for {self.patience:g} seconds; "
                    f"it is stopped, or cut off; {AGAIN}"
                )
            time.sleep(pause)
            pause = min(2 * pause, _LATE)

    def _beats_of(self, other: int) -> int:
        return self.store.add(f"beat/{other}", 0)

    def _beat(self) -> None:
        while not self._ended.wait(self.patience / _BEATS):
            try:
                self.store.add(f"beat/{self.rank}", 1)
            except RuntimeError:  # the store is gone, which waiting ranks will notice
                return
