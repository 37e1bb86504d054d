"""Errors between ranks, in one sentence each, and the heartbeat by which ranks notice that another is lost."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import torch.distributed as dist

AGAIN = "start again, from the checkpoint if there is one."
_BEATS = 8  # within the time after which a rank without any is given up
_SOON, _LATE = 1e-3, 0.05  # seconds between two looks


class LostRankError(ConnectionError):
    """Another rank has died, or does not answer."""


class LeaderEndedError(LostRankError):
    """Rank 0 has ended with an error, which it has reported itself."""


class FailedTogetherError(ValueError):
    """An error of one rank, raised on all of them; the rank that ``leads``, rank 0, reports it to the user."""

    def __init__(self, text: str, leads: bool) -> None:
        super().__init__(text)
        self.leads = leads


@contextmanager
def lost_rank_errors(rank: int, size: int, doing: str) -> Iterator[None]:
    """Turn the engine's error about a lost rank into a :class:`LostRankError`."""
    try:
        yield
    except (RuntimeError, dist.DistBackendError) as error:
        raise LostRankError(
            f"rank {rank} of {size} lost another rank while {doing} ({_reason(error)}); {AGAIN}"
        ) from error


def by_engine(error: RuntimeError) -> bool:
    """Whether gloo or NCCL has raised it."""
    text = str(error).lower()
    return isinstance(error, dist.DistError) or any(word in text for word in ("gloo", "nccl", "connection"))


def _reason(error: Exception) -> str:
    """The engine's message in a few words."""
    text = str(error).strip().lower()
    if "closed" in text or "reset" in text or "broken pipe" in text:
        return "its connection closed"
    if "timed out" in text or "timeout" in text:
        return "it did not answer in time"
    return (text.splitlines() or [type(error).__name__])[0][:160].rstrip(".")


class Pulse:
    """A heartbeat of every rank through the store in which they met: ranks wait for each other while all of them beat.

    A process that works beats from a thread of its own; one that was stopped, or lost its network, does not. Clocks of
    different machines are never compared: a rank counts as lost when its count has not changed for ``patience``
    seconds on the clock of the waiting rank.
    """

    def __init__(self, store: dist.Store, rank: int, size: int, patience: float) -> None:
        self.store, self.rank, self.size, self.patience = store, rank, size, patience
        self._meetings, self._ended = 0, Event()
        self._thread = Thread(target=self._beat, name="pulse", daemon=True)
        self._thread.start()

    def stop(self, wait: bool = True) -> None:
        self._ended.set()
        self._thread.join(self.patience if wait else 0)

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
            if (beats := self.store.add(f"beat/{other}", 0)) != seen:
                seen, since = beats, time.monotonic()
            elif time.monotonic() - since > self.patience:
                raise LostRankError(
                    f"rank {self.rank} of {self.size} had no heartbeat of rank {other} for {self.patience:g} seconds; "
                    f"it is stopped, or cut off; {AGAIN}"
                )
            time.sleep(pause)
            pause = min(2 * pause, _LATE)

    def _beat(self) -> None:
        while not self._ended.wait(self.patience / _BEATS):
            try:
                self.store.add(f"beat/{self.rank}", 1)
            except RuntimeError:  # the store is gone, which waiting ranks will notice
                return
