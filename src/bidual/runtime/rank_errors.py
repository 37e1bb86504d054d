"""Errors between ranks, in one sentence each."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist

AGAIN = "start again, from the checkpoint if there is one."


class LostRankError(ConnectionError):
    """Another rank has died, or does not answer."""


class LeaderEndedError(LostRankError):
    """Rank 0 has ended with an error, which it has reported itself."""


class FailedTogetherError(ValueError):
    """An error of one rank, raised on all of them.

    Attributes:
        leads: whether this is rank 0, which reports it to the user.
    """

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
