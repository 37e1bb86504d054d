"""A lifted operator whose samples are spread over ranks."""

from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import Self, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.operators import HasKernel, LiftedOperator
from bidual.operators.base import Depth, kernel_by_blocks
from bidual.operators.row_parts import Order, OrderChannel, Part, dtype_number, serve
from bidual.runtime.rank_errors import LostRankError
from bidual.runtime.ranks import Ranks
from bidual.types import as_protocol

T = TypeVar("T")
_KERNEL = 2**27  # numbers that a kernel or a design may have on rank 0
_AT_ONCE = 2**24  # numbers of the design that are gathered at a time


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
            self._kept_conversions[dtype] = self._like_this(Order.CONVERT, dtype_number(dtype), self.part.to, dtype)
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
