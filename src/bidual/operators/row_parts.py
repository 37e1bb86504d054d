"""One rank's rows of an operator, and the orders that rank 0 sends to the others."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from threading import Event, Lock, Thread
from weakref import finalize

import torch
from torch import Tensor

from bidual.operators import HasKernel, LiftedOperator
from bidual.runtime.rank_errors import LeaderEndedError, LostRankError
from bidual.runtime.ranks import Ranks
from bidual.types import as_protocol

_DTYPES = (torch.float32, torch.float64)


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


def dtype_number(dtype: torch.dtype) -> int:
    return _DTYPES.index(dtype)
