"""A lifted operator whose samples are spread over ranks, and the orders that rank 0 sends to the others."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import IntEnum
from functools import cached_property
from threading import Event, Lock, Thread
from typing import Self, TypeVar
from weakref import finalize

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.operators.base import Depth, HasKernel, LiftedOperator, kernel_by_blocks
from bidual.runtime.rank_errors import LeaderEndedError, LostRankError
from bidual.runtime.ranks import Ranks
from bidual.types import as_protocol

T = TypeVar("T")
_DTYPES = (torch.float32, torch.float64)
_KERNEL = 2**27  # numbers that a kernel or a design may have on rank 0
_AT_ONCE = 2**24  # numbers of the design that are gathered at a time

# The next operation of all ranks: methods of Part of the same name, then those of the channel.
Order = IntEnum("Order", "FORWARD ADJOINT SELECT CONVERT MAGNITUDE DESIGN RESPONSES FORGET STOP GIVE_UP WAIT")


class Part:
    """One rank's rows of an operator. All ranks call a method together; whole arrays are rank 0's alone."""

    def __init__(self, local: LiftedOperator, ranks: Ranks, sizes: Sequence[int]) -> None:
        self.local, self.ranks, self.sizes = local, ranks, tuple(sizes)

    def forward(self, Z: Tensor | None = None) -> Tensor | None:
        Z = self.ranks.share(Z, self.local.block_shape, self.local.like)
        return self.ranks.gather_rows(self.local.forward(Z), self.sizes)

    def adjoint(self, V: Tensor | None = None) -> Tensor | None:
        V = self.ranks.scatter_rows(V, self.sizes, self.local.output_shape[1], self.local.like)
        return self.ranks.sum_to_leader(self.local.adjoint(V))

    def magnitude(self) -> float | None:
        """| |A_p|^T |V| | <= sum_r m_r |V_r| <= (sum_r m_r) |V|, r over ranks; no squares, which could vanish."""
        total = self.ranks.sum_to_leader(torch.tensor([self.local.magnitude], dtype=torch.float64))
        return None if total is None else float(total)

    def select(self, blocks: Tensor | None, count: int) -> "Part":
        blocks = self.ranks.share(blocks, (count,), self.local.like.new_empty(0, dtype=torch.long))
        return Part(self.local.select(blocks), self.ranks, self.sizes)

    def to(self, dtype: torch.dtype) -> "Part":
        return Part(self.local.to(dtype), self.ranks, self.sizes)

    def design(self) -> Tensor | None:
        return self.ranks.gather_rows(as_protocol(self.local, HasKernel).design(), self.sizes)

    def responses(self, G: Tensor | None, blocks: Tensor | None, count: int) -> Tensor | None:
        source = as_protocol(self.local, HasKernel)
        p = self.local.block_shape[0]
        G = self.ranks.share(G, (p, source.design_width // max(p, 1)), self.local.like)
        blocks = self.ranks.share(blocks, (count,), self.local.like.new_empty(0, dtype=torch.long))
        return self.ranks.gather_rows(source.responses(G, blocks), self.sizes)


class OrderChannel:
    """Sends the orders of rank 0 to the other ranks, which hold operators by number.

    Between orders a thread sends WAIT four times within the time after which the others would give up, so that only a
    rank 0 that was stopped is given up.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.ranks, self.last, self.ended = ranks, 0, False
        self.unused: list[int] = []
        self._lock, self._sent, self._closed = Lock(), time.monotonic(), Event()
        if ranks.pulse is not None:
            Thread(target=self._keep_alive, args=(ranks.pulse.patience / 4,), name="orders", daemon=True).start()

    @contextmanager
    def order(self, order: Order, number: int = 0, new: int = 0, detail: int = 0) -> Iterator[None]:
        """Send an order; all ranks execute it within the block."""
        if self.ended and self.ranks.size > 1:
            raise RuntimeError(
                "the other ranks have ended; use a sharded operator only within the work that run_on_leader() runs."
            )
        with self._lock:
            self.ended = order in (Order.STOP, Order.GIVE_UP)
            while self.unused:
                self._send(Order.FORGET, self.unused.pop())
            self._send(order, number, new, detail)
            yield

    def close(self, order: Order) -> None:
        """Send the last order."""
        self.end_keep_alive()
        with self.order(order):
            pass

    def end_keep_alive(self) -> None:
        """Send no more WAIT."""
        self._closed.set()

    def number_for(self, operator: LiftedOperator) -> int:
        """A new number, which is released with the operator."""
        self.last += 1
        finalize(operator, self.unused.append, self.last).atexit = False
        return self.last

    def _send(self, *words: int) -> None:
        self.ranks.order(torch.tensor([*words, 0, 0, 0][:4]))
        self._sent = time.monotonic()

    def _keep_alive(self, pause: float) -> None:
        while not self._closed.wait(pause / 2):
            with self._lock:
                if self._closed.is_set() or time.monotonic() - self._sent < pause / 2:
                    continue
                try:
                    self._send(Order.WAIT)
                except LostRankError:  # the next order raises it too
                    return


def serve(part: Part) -> None:
    """Execute the orders of rank 0 until STOP."""
    held = {0: part}
    while True:
        word, number, new, detail = part.ranks.order(torch.zeros(4, dtype=torch.long)).tolist()
        order, at = Order(word), held.get(number)
        if order is Order.STOP:
            return
        if order is Order.WAIT:
            continue
        if order is Order.GIVE_UP or at is None:
            raise LeaderEndedError("rank 0 has ended with an error of its own.")
        if order is Order.FORGET:
            del held[number]
        elif order is Order.SELECT:
            held[new] = at.select(None, detail)
        elif order is Order.CONVERT:
            held[new] = at.to(_DTYPES[detail])
        elif order is Order.RESPONSES:
            at.responses(None, None, detail)
        else:
            {Order.FORWARD: at.forward, Order.ADJOINT: at.adjoint, Order.DESIGN: at.design}.get(order, at.magnitude)()


def run_on_leader(ranks: Ranks, local: LiftedOperator, work: Callable[["ShardedOperator"], T]) -> T | None:
    """``work`` of the operator of all ranks' rows, run on rank 0; the others serve its products and return None.

    ``local`` is the operator of a rank's own rows, with the same blocks on all ranks. Only rank 0 takes decisions, so
    ranks cannot disagree, and ``work`` may be anything that takes a :class:`LiftedOperator`: solvers, certificates.
    """
    part = Part(local, ranks, ranks.collect(local.output_shape[0]))
    if not ranks.leads:
        serve(part)
        return None
    line = OrderChannel(ranks)
    try:
        result = work((ShardedKernelOperator if _has_kernel(part) else ShardedOperator)(part, line))
    except BaseException as error:
        if not isinstance(error, LostRankError):  # a lost rank receives nothing
            with suppress(LostRankError):
                line.close(Order.GIVE_UP)
        line.end_keep_alive()
        raise
    line.close(Order.STOP)
    return result


def _has_kernel(part: Part) -> bool:
    """Whether rank 0 may hold the kernel, or the design where that is narrower."""
    n = sum(part.sizes)
    return isinstance(part.local, HasKernel) and n * min(n, part.local.design_width) <= _KERNEL


class ShardedOperator(LiftedOperator):
    """An operator on samples that are spread over ranks, as rank 0 sees it (see :func:`run_on_leader`).

    Forward sends Z to all ranks and gathers their rows of A Z; the adjoint scatters the rows of V and adds up what
    comes back, in float64.
    """

    def __init__(self, part: Part, line: OrderChannel, number: int = 0) -> None:
        self.part, self.line, self.number = part, line, number

    @property
    def block_shape(self) -> tuple[int, int, int]:
        return self.part.local.block_shape

    @property
    def output_shape(self) -> tuple[int, int]:
        return sum(self.part.sizes), self.part.local.output_shape[1]

    @property
    def like(self) -> Tensor:
        return self.part.local.like

    @property
    def unit(self) -> str:
        return self.part.local.unit

    @cached_property
    def magnitude(self) -> float:
        with self.line.order(Order.MAGNITUDE, self.number):
            return _whole(self.part.magnitude())

    @property
    def depth(self) -> Depth:
        """Forward products are those of the ranks; an adjoint is a sum over all samples, in any order."""
        local, ranks = self.part.local.depth, self.part.ranks.size
        return Depth(local.forward, max(sum(self.part.sizes), local.adjoint) + ranks + 4)

    def to(self, dtype: torch.dtype) -> Self:
        if dtype == self.like.dtype:
            return self
        if dtype not in self._kept_conversions:
            self._kept_conversions[dtype] = self._like_this(Order.CONVERT, _DTYPES.index(dtype), self.part.to, dtype)
        return self._kept_conversions[dtype]

    @cached_property
    def _kept_conversions(self) -> dict[torch.dtype, Self]:
        return {}

    def _forward(self, Z: Tensor) -> Tensor:
        with self.line.order(Order.FORWARD, self.number):
            return _whole(self.part.forward(Z))

    def _adjoint(self, V: Tensor) -> Tensor:
        with self.line.order(Order.ADJOINT, self.number):
            return _whole(self.part.adjoint(V.to(self.like))).to(self.like)

    def select(self, blocks: Tensor) -> Self:
        return self._like_this(Order.SELECT, len(blocks), self.part.select, blocks, len(blocks))

    def _like_this(self, order: Order, detail: int, make: Callable[..., Part], *arguments: object) -> Self:
        """Another operator of this kind, under a number that the ranks agree on."""
        other = type(self)(self.part, self.line)
        other.number = self.line.number_for(other)
        with self.line.order(order, self.number, other.number, detail):
            other.part = make(*arguments)
        return other


class ShardedKernelOperator(ShardedOperator):
    """With a kernel, which rank 0 holds: for few samples and any number of patterns."""

    @property
    def design_width(self) -> int:
        return as_protocol(self.part.local, HasKernel).design_width

    def design(self) -> Float[Tensor, "n k"]:
        with self.line.order(Order.DESIGN, self.number):
            return _whole(self.part.design())

    def responses(self, G: Float[Tensor, "p k"], blocks: Tensor) -> Float[Tensor, "n q"]:
        with self.line.order(Order.RESPONSES, self.number, detail=len(blocks)):
            return _whole(self.part.responses(G, blocks, len(blocks)))

    def kernel(self, weights: Float[Tensor, " p"] | None = None) -> Float[Tensor, "n n"]:
        return kernel_by_blocks(self, weights, _AT_ONCE)


def _whole(value: T | None) -> T:
    assert value is not None
    return value
