"""The processes of one run and their communication."""

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from bidual.runtime.rank_errors import FailedTogetherError, LostRankError, Pulse, by_engine, lost_rank_errors

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Ranks:
    """One process among ``size`` that work together; rank 0 leads.

    Whole arrays are given to and returned by rank 0 only; on other ranks they are None. Every method is called by all
    ranks, in the same order. With one rank nothing is sent. Objects travel as JSON, so lists come back for tuples;
    nothing is ever unpickled.

    Attributes:
        device: where this rank's part of a problem lives.
        orders: the group in which rank 0's orders are sent; its tensors are on the CPU.
        gpus: the group of tensors on GPUs; None where there are none. Tensors on the CPU have torch's default group.
        pulse: keeps ranks waiting for each other for as long as it takes.
        here: how many ranks are on this machine, and share its memory.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    orders: Any = None
    gpus: Any = None
    pulse: Pulse | None = None
    here: int = 1

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def part(self, count: int) -> slice:
        """A rank's share of so many things, as even as it can be; it may be empty."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def leave(self, lost: bool = False) -> None:
        """End the connections; the process may go on alone. Those to a rank that is ``lost`` may wait for its answer,
        and are left to the end of the process, which reports the loss first."""
        if self.pulse is not None:
            self.pulse.stop(wait=not lost)
        if self.size > 1 and not lost and dist.is_initialized():
            with suppress(RuntimeError):
                dist.destroy_process_group()

    def order(self, words: Tensor) -> Tensor:
        """Rank 0's next order, which it sends in time: see :class:`bidual.operators.sharded.OrderChannel`."""
        if self.size > 1:
            with lost_rank_errors(self.rank, self.size, "waiting for rank 0"):
                dist.broadcast(words, 0, group=self.orders)
        return words

    def share(self, whole: Tensor | None, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Rank 0's tensor, on every rank."""
        tensor = like.new_empty(shape) if whole is None else whole.to(like).contiguous()
        if self.size > 1:
            with lost_rank_errors(self.rank, self.size, "sending a point"):
                dist.broadcast(tensor, 0, group=self._group(tensor))
        return tensor

    def gather_rows(self, part: Tensor, sizes: Sequence[int]) -> Tensor | None:
        """The rows of all ranks below each other, on rank 0."""
        if self.size == 1:
            return part
        padded = _padded(part, max(sizes))
        parts = [torch.empty_like(padded) for _ in sizes] if self.leads else None
        with lost_rank_errors(self.rank, self.size, "gathering rows"):
            dist.gather(padded, parts, 0, group=self._group(padded))
        return None if parts is None else torch.cat([part[:k] for part, k in zip(parts, sizes, strict=True)])

    def scatter_rows(self, whole: Tensor | None, sizes: Sequence[int], width: int, like: Tensor) -> Tensor:
        """Every rank's own rows of rank 0's matrix, which is of the type and on the device of ``like``."""
        if whole is not None and self.size == 1:
            return whole
        part = like.new_empty(max(sizes), width)
        pieces = None if whole is None else [_padded(piece, max(sizes)) for piece in whole.split(list(sizes))]
        with lost_rank_errors(self.rank, self.size, "scattering rows"):
            dist.scatter(part, pieces, 0, group=self._group(part))
        return part[: sizes[self.rank]]

    def sum_to_leader(self, part: Tensor) -> Tensor | None:
        """The sum over ranks in float64, on rank 0."""
        total = part.to(torch.float64).contiguous()
        if self.size > 1:
            total = total.clone() if total is part else total
            with lost_rank_errors(self.rank, self.size, "adding gradients"):
                dist.reduce(total, 0, group=self._group(total))
        return total if self.leads else None

    def total(self, part: Tensor) -> Tensor:
        """The sum over ranks, on every rank."""
        return self._reduced(part, dist.ReduceOp.SUM)

    def largest(self, part: Tensor) -> Tensor:
        """The largest over ranks, entry by entry, on every rank."""
        return self._reduced(part, dist.ReduceOp.MAX)

    def parallel(self, module: nn.Module) -> nn.Module:
        """The module with rank 0's weights, whose gradients are means over ranks: torch's data parallelism.

        Ranks meet here, so all wait for the slowest. Forward and backward passes belong into :meth:`communicating`.
        Buffers are constants, and are not sent.
        """
        if self.size == 1:
            return module
        self._meet()
        like = next(module.parameters())
        own = [like.device] if like.is_cuda else None
        with lost_rank_errors(self.rank, self.size, "sending weights"), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # the new name of the option is not in every torch
            return DistributedDataParallel(
                module, device_ids=own, broadcast_buffers=False, process_group=self._group(like)
            )

    @contextmanager
    def communicating(self, doing: str) -> Iterator[None]:
        """A block in which ranks communicate: losing a rank is a LostRankError, other errors pass."""
        try:
            yield
        except RuntimeError as error:
            if self.size == 1 or not by_engine(error):
                raise
            with lost_rank_errors(self.rank, self.size, doing):
                raise

    def collect(self, value: Any) -> list[Any]:
        """Every rank's small object of lists, mappings, numbers and texts, on every rank."""
        text = json.dumps(value).encode()
        if self.size == 1:
            return [json.loads(text)]
        self._meet()
        mine = _bytes_tensor(text)
        with lost_rank_errors(self.rank, self.size, "exchanging objects"):
            lengths = [torch.zeros(1, dtype=torch.long) for _ in range(self.size)]
            dist.all_gather(lengths, torch.tensor([len(mine)]))
            sizes = [int(length) for length in lengths]
            parts = [torch.empty(max(sizes), dtype=torch.uint8) for _ in sizes]
            dist.all_gather(parts, _padded(mine, max(sizes)))
        return [json.loads(part[:size].numpy().tobytes()) for part, size in zip(parts, sizes, strict=True)]

    def broadcast_json(self, value: Any) -> Any:
        """Rank 0's small object of lists, mappings, numbers and texts, on every rank."""
        return json.loads(self.broadcast_bytes(json.dumps(value).encode() if self.leads else None))

    def broadcast_bytes(self, data: bytes | None) -> bytes:
        """Rank 0's bytes, on every rank; the others give None."""
        if self.size == 1:
            return data or b""
        self._meet()
        mine = _bytes_tensor(data or b"")
        with lost_rank_errors(self.rank, self.size, "exchanging objects"):
            length = torch.tensor([len(mine)])
            dist.broadcast(length, 0)
            data_tensor = mine if self.leads else torch.empty(int(length), dtype=torch.uint8)
            if len(data_tensor):  # engines refuse tensors without entries
                dist.broadcast(data_tensor, 0)
        return data_tensor.numpy().tobytes()

    def together(self, work: Callable[[], T]) -> T:
        """Run ``work`` on every rank; where one of them fails, all raise the same message."""
        if self.size == 1:
            return work()
        try:
            done, failure = work(), None
        except (ValueError, OSError, MemoryError) as error:
            if isinstance(error, LostRankError):
                raise
            failure = str(error) or type(error).__name__
        failures = [text for text in self.collect(failure) if text is not None]
        if failures:
            raise FailedTogetherError(failures[0], self.leads)
        return done

    def _reduced(self, part: Tensor, how: Any) -> Tensor:
        total = part.clone()
        if self.size > 1:
            self._meet()
            with lost_rank_errors(self.rank, self.size, "adding statistics"):
                dist.all_reduce(total, how, group=self._group(total))
        return total

    def _meet(self) -> None:
        if self.pulse is not None:
            self.pulse.meet()

    def _group(self, tensor: Tensor) -> Any:
        return self.gpus if tensor.is_cuda else None


ALONE = Ranks()


def _bytes_tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


def _padded(part: Tensor, count: int) -> Tensor:
    if len(part) == count:
        return part.contiguous()
    return torch.cat([part, part.new_zeros(count - len(part), *part.shape[1:])])
