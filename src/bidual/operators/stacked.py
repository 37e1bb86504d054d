from math import sqrt
from typing import Self

import torch
from torch import Tensor

from bidual.operators.base import Depth, LiftedOperator


class StackedOperator(LiftedOperator):
    """Blocks of another operator, ``count`` at a time, one above the other: (P, a, b) becomes (P / count, count a, b).

    A group of blocks is then priced as one, as the units of a sub-network are (PR eq. 8).
    """

    def __init__(self, inner: LiftedOperator, count: int) -> None:
        if count < 1 or inner.block_shape[0] % count:
            raise ValueError(f"{inner.block_shape[0]} blocks cannot be stacked by {count}.")
        self.inner, self.count = inner, count

    @property
    def block_shape(self) -> tuple[int, int, int]:
        p, a, b = self.inner.block_shape
        return p // self.count, self.count * a, b

    @property
    def output_shape(self) -> tuple[int, int]:
        return self.inner.output_shape

    @property
    def like(self) -> Tensor:
        return self.inner.like

    @property
    def magnitude(self) -> float:
        return sqrt(self.count) * self.inner.magnitude

    @property
    def depth(self) -> Depth:
        return self.inner.depth

    @property
    def unit(self) -> str:
        return "sub-networks"

    def to(self, dtype: torch.dtype) -> Self:
        return type(self)(self.inner.to(dtype), self.count)

    def _forward(self, Z: Tensor) -> Tensor:
        return self.inner.forward(Z.reshape(self.inner.block_shape))

    def _adjoint(self, V: Tensor) -> Tensor:
        return self.inner.adjoint(V).reshape(self.block_shape)

    def _select(self, blocks: Tensor) -> Self:
        each = torch.arange(self.count, device=blocks.device)
        return type(self)(self.inner.select((blocks[:, None] * self.count + each).flatten()), self.count)
