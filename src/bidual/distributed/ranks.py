"""The processes of one run, and what they say to each other."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from types import FrameType
from typing import Any, Self, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")
_TIMEOUT = 40.0  # seconds that a rank may be later than another with the same work
_IDLE = 1800.0  # seconds that a rank may read, or rank 0 decide, while the others wait


class LostRankError(ConnectionError):
    """Another rank has died, or does not answer."""


class LeaderEndedError(LostRankError):
    """Rank 0 has ended with an error, and has said so itself."""


class FailedTogetherError(ValueError):
    """What one rank refused, said to all of them."""


@dataclass(frozen=True, eq=False)
class Ranks:
    """One process among ``size`` that work together; rank 0 leads.

    Whole arrays are given to and returned by rank 0 only; on other ranks they are None. Every method is called by all
    ranks, in the same order. With one rank nothing is sent.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    patient: Any = None  # the group in which ranks wait for each other for as long as it takes

    @classmethod
    def from_torchrun(cls, timeout: float | None = None) -> Self:
        """The rank that torchrun has given to this process: gloo, and NCCL beside it where there are GPUs.

        A rank that dies closes its connections, which the others notice at once. ``timeout`` is for one that hangs:
        seconds that it may be late, BIDUAL_TIMEOUT in the environment if None, 40 if that is not set.
        """
        if timeout is None:
            timeout = float(os.environ.get("BIDUAL_TIMEOUT", _TIMEOUT))
        missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
        if missing:
            raise ValueError(
                "a distributed run is started by torchrun, which sets RANK and WORLD_SIZE; use "
                "torchrun --nproc-per-node 2 -m bidual fit ... --distributed."
            )
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        gpu = torch.cuda.is_available() and dist.is_nccl_available()
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if gpu else torch.device("cpu")
        if size == 1:
            return cls(0, 1, device)
        if gpu:
            torch.cuda.set_device(device)
        with _heard(rank, size, "meeting the others"):
            backend, limit = "cpu:gloo,cuda:nccl" if gpu else "gloo", timedelta(seconds=timeout)
            dist.init_process_group(
                backend, store=_meeting_place(rank, size), rank=rank, world_size=size, timeout=limit
            )
            patient = dist.new_group(backend="gloo", timeout=timedelta(seconds=_IDLE))
        return cls(rank, size, device, patient)

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def leave(self) -> None:
        """End the connections; the process may go on alone."""
        if self.size > 1 and dist.is_initialized():
            with suppress(RuntimeError):
                dist.destroy_process_group()

    def order(self, words: Tensor) -> Tensor:
        """Rank 0's next order, which the others wait for as long as it takes."""
        if self.size > 1:
            with _heard(self.rank, self.size, "waiting for rank 0"):
                dist.broadcast(words, 0, group=self.patient)
        return words

    def share(self, whole: Tensor | None, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Rank 0's tensor, on every rank."""
        tensor = like.new_empty(shape) if whole is None else whole.to(like).contiguous()
        if self.size > 1:
            with _heard(self.rank, self.size, "sending a point"):
                dist.broadcast(tensor, 0)
        return tensor

    def gather_rows(self, part: Tensor, sizes: Sequence[int]) -> Tensor | None:
        """The rows of all ranks below each other, on rank 0."""
        if self.size == 1:
            return part
        padded = _padded(part, max(sizes))
        parts = [torch.empty_like(padded) for _ in sizes] if self.leads else None
        with _heard(self.rank, self.size, "gathering rows"):
            dist.gather(padded, parts, 0)
        return None if parts is None else torch.cat([part[:k] for part, k in zip(parts, sizes, strict=True)])

    def scatter_rows(self, whole: Tensor | None, sizes: Sequence[int], width: int, like: Tensor) -> Tensor:
        """Every rank's own rows of rank 0's matrix."""
        if whole is not None and self.size == 1:
            return whole
        part = like.new_empty(max(sizes), width)
        pieces = None if whole is None else [_padded(piece, max(sizes)) for piece in whole.split(list(sizes))]
        with _heard(self.rank, self.size, "scattering rows"):
            dist.scatter(part, pieces, 0)
        return part[: sizes[self.rank]]

    def sum_to_leader(self, part: Tensor) -> Tensor | None:
        """The sum over ranks in float64, on rank 0."""
        total = part.to(torch.float64).contiguous()
        if self.size > 1:
            total = total.clone() if total is part else total
            with _heard(self.rank, self.size, "adding gradients"):
                dist.reduce(total, 0)
        return total if self.leads else None

    def total(self, part: Tensor) -> Tensor:
        """The sum over ranks, on every rank."""
        total = part.clone()
        if self.size > 1:
            with _heard(self.rank, self.size, "adding statistics"):
                dist.all_reduce(total)
        return total

    def collect(self, value: T) -> list[T]:
        """Every rank's small Python object, on every rank."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        with _heard(self.rank, self.size, "comparing notes"):
            dist.all_gather_object(values, value, group=self.patient)
        return values

    def bring(self, value: T) -> list[T] | None:
        """Every rank's Python object, on rank 0."""
        if self.size == 1:
            return [value]
        values: list[Any] | None = [None] * self.size if self.leads else None
        with _heard(self.rank, self.size, "comparing notes"):
            dist.gather_object(value, values, 0, group=self.patient)
        return values

    def tell(self, value: T | None) -> T:
        """Rank 0's small Python object, on every rank."""
        box = [value]
        if self.size > 1:
            with _heard(self.rank, self.size, "comparing notes"):
                dist.broadcast_object_list(box, 0, group=self.patient)
        return box[0]  # type: ignore[return-value]

    def together(self, work: Callable[[], T]) -> T:
        """Do something that may be refused, on every rank; what one of them refuses, all do, in the same words."""
        try:
            done, failure = work(), None
        except (ValueError, OSError, MemoryError) as error:
            if isinstance(error, LostRankError):
                raise
            failure = str(error) or type(error).__name__
        failures = [text for text in self.collect(failure) if text is not None]
        if failures:
            raise FailedTogetherError(failures[0])
        return done


@contextmanager
def torchrun_ranks(timeout: float | None = None) -> Iterator[Ranks]:
    """The ranks of a torchrun, which end with one sentence when torchrun ends them."""
    ranks = Ranks.from_torchrun(timeout)

    def ended(number: int, frame: FrameType | None) -> None:
        raise LostRankError(
            f"rank {ranks.rank} of {ranks.size} was told to end, most likely because another rank has died; "
            "start again, from the checkpoint if there is one."
        )

    before = signal.signal(signal.SIGTERM, ended)
    try:
        yield ranks
    finally:
        signal.signal(signal.SIGTERM, before)
        ranks.leave()


def _meeting_place(rank: int, size: int) -> dist.Store:
    """Where ranks leave their addresses, anew after every restart: torchrun keeps those of ranks that have died."""
    environment = os.environ
    hosts = rank == 0 and environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    store = dist.TCPStore(environment["MASTER_ADDR"], int(environment["MASTER_PORT"]), size, hosts)
    return dist.PrefixStore(f"bidual/{environment.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


@contextmanager
def _heard(rank: int, size: int, doing: str) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, dist.DistBackendError) as error:
        raise LostRankError(
            f"rank {rank} of {size} lost another rank while {doing} ({_reason(error)}); start again, from the "
            "checkpoint if there is one."
        ) from error


def _reason(error: Exception) -> str:
    """The engine's message in a few words."""
    text = str(error).strip().lower()
    if "closed" in text or "reset" in text or "broken pipe" in text:
        return "its connection closed"
    if "timed out" in text or "timeout" in text:
        return "it did not answer in time"
    return (text.splitlines() or [type(error).__name__])[0][:160].rstrip(".")


def _padded(part: Tensor, count: int) -> Tensor:
    if len(part) == count:
        return part.contiguous()
    return torch.cat([part, part.new_zeros(count - len(part), *part.shape[1:])])
