from collections.abc import Iterator
from functools import cached_property
from typing import Self

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bidual.numerics.gate_margin import is_on
from bidual.operators.base import Depth, LiftedOperator, kernel_by_blocks
from bidual.operators.patches import Patches
from bidual.runtime.memory import available_bytes

_AT_ONCE = 2**23  # numbers of the design that are made at a time
_SHARE = 8  # a design is kept if it takes at most 1/8 of the free memory
_FEW = 0.3  # of all blocks: copying their part of the design is then cheaper than a product with all of it


class PooledOperator(LiftedOperator):
    r"""A Z = sum_p L[D_p X Z_p]: a gated network on patches with a linear readout (BM eq. 130, 135).

    Z_p is (h, a c) with columns ordered by readout and output, so that A Z = B Z.reshape(-1, c) with the design
    B (N, P h a) made of L[D_p X]. B is kept if it takes little of the free memory, and otherwise made again, some
    samples at a time. Patterns are those of ``gates`` (h, P), or ``patterns``; with neither there is one block that is
    always active, the linear network (BM eq. 127, 104).
    """

    def __init__(
        self,
        patches: Patches,
        n_outputs: int,
        *,
        gates: Float[Tensor, "h p"] | None = None,
        patterns: Bool[Tensor, "p R"] | None = None,
        dtype: torch.dtype | None = None,
        n_blocks: int = 1,
    ) -> None:
        if gates is not None and len(gates) != patches.width:
            raise ValueError(f"gates must have one row per entry of a patch ({patches.width}), got {len(gates)}.")
        if patterns is not None and patterns.shape[1] != patches.n_rows:
            raise ValueError(f"patterns must have one column per patch ({patches.n_rows}), got {patterns.shape[1]}.")
        self.patches, self.n_outputs = patches, n_outputs
        self.gates, self.patterns = None if gates is None else gates.to(patches.like), patterns
        self.dtype = patches.like.dtype if dtype is None else dtype
        self.n_blocks = n_blocks

    @property
    def block_shape(self) -> tuple[int, int, int]:
        return self._count, self.patches.width, self.patches.readouts * self.n_outputs

    @property
    def _count(self) -> int:
        if self.patterns is not None:
            return len(self.patterns)
        return self.n_blocks if self.gates is None else self.gates.shape[1]

    @property
    def output_shape(self) -> tuple[int, int]:
        return self.patches.n_predictions, self.n_outputs

    @property
    def like(self) -> Tensor:
        return self.patches.like.new_empty(0, dtype=self.dtype)

    @property
    def unit(self) -> str:
        return self.patches.unit

    @property
    def magnitude(self) -> float:
        return self.patches.magnitude

    @property
    def depth(self) -> Depth:
        """Products with the design, whose entries are sums over the rows of a sample."""
        made = self.patches.depth
        return Depth(made + self.design_width, made + 2 * self.output_shape[0] + 4)

    def to(self, dtype: torch.dtype) -> Self:
        """Patterns stay those of the given samples: in lower precision some would flip."""
        if dtype == self.dtype:
            return self
        other = self._with(self.gates, self.patterns, dtype, self.n_blocks)
        if self._kept is not None and torch.finfo(dtype).eps > torch.finfo(self.dtype).eps:  # digits do not come back
            other.__dict__["_kept"] = self._kept.to(dtype)
        return other

    def _forward(self, Z: Tensor) -> Tensor:
        weights = Z.reshape(-1, self.n_outputs).T.contiguous()  # few rows in front: BLAS is ten times as fast
        return torch.cat([(weights @ B).T for _, B in self._parts()])

    def _adjoint(self, V: Tensor) -> Tensor:
        G = sum(V[rows].T.contiguous() @ B.T for rows, B in self._parts())
        assert isinstance(G, Tensor)
        return G.T.reshape(self.block_shape)

    def select(self, blocks: Tensor) -> Self:
        gates = None if self.gates is None else self.gates[:, blocks]
        patterns = None if self.patterns is None else self.patterns[blocks]
        part = self._with(gates, patterns, self.dtype, len(blocks))
        if self._kept is not None:
            by_block = self._kept.reshape(self._count, self._per_block, self.output_shape[0])
            part.__dict__["_kept"] = by_block[blocks].flatten(0, 1)
        return part

    def forward_of(self, Z: Tensor, blocks: Tensor) -> Tensor:
        """Copying the design of many blocks costs more than a product with all of it."""
        if self._kept is not None and len(blocks) > _FEW * self._count:
            return self._forward(Z)
        return super().forward_of(Z, blocks)

    def kernel(self, weights: Float[Tensor, " p"] | None = None) -> Float[Tensor, "n n"]:
        return kernel_by_blocks(self, weights, _AT_ONCE)

    def responses(self, G: Float[Tensor, "p a"], blocks: Tensor) -> Float[Tensor, "n q"]:
        B = self.select(blocks).design().reshape(self.output_shape[0], len(blocks), self._per_block)
        return torch.einsum("nqk,qk->nq", B, G[blocks])

    def design(self) -> Float[Tensor, "n k"]:
        return torch.cat([B.T for _, B in self._parts()])

    @property
    def design_width(self) -> int:
        return self._count * self._per_block

    @property
    def _per_block(self) -> int:
        return self.patches.width * self.patches.readouts

    @cached_property
    def _kept(self) -> Float[Tensor, "k n"] | None:
        """The transposed design, blocks outermost, so that those of some blocks lie together."""
        need = self.like.element_size() * self.design_width * self.output_shape[0]
        if need > available_bytes(self.like.device) // _SHARE:
            return None
        return torch.cat([part for _, part in self._made()], 1) if len(self.patches) else None

    def _parts(self) -> Iterator[tuple[slice, Float[Tensor, "k r"]]]:
        """Prediction rows, and their part of the transposed design."""
        if self._kept is not None:
            yield slice(None), self._kept
        else:
            yield from self._made()

    def _made(self) -> Iterator[tuple[slice, Float[Tensor, "k r"]]]:
        per, n = self.patches.per_sample, len(self.patches)
        size = max(1, _AT_ONCE // max(self.design_width * per[1], self._count * per[0], self.patches.work, 1))
        for start in range(0, n, size):
            stop = min(start + size, n)
            part = self.patches.samples(slice(start, stop))
            mask = self._mask(part, slice(start * per[0], stop * per[0]))
            B = part.compress(mask.to(self.dtype))
            yield slice(start * per[1], stop * per[1]), B.flatten(1).T

    def _mask(self, part: Patches, rows: slice) -> Bool[Tensor, "r p"]:
        if self.patterns is not None:
            return self.patterns[:, rows].T
        if self.gates is not None:
            X = part.rows()
            return is_on(X @ self.gates, X.abs() @ self.gates.abs(), len(self.gates))
        return torch.ones(part.n_rows, self._count, dtype=torch.bool, device=part.like.device)

    def _with(self, gates: Tensor | None, patterns: Tensor | None, dtype: torch.dtype, n_blocks: int) -> Self:
        return type(self)(self.patches, self.n_outputs, gates=gates, patterns=patterns, dtype=dtype, n_blocks=n_blocks)
