"""The gated operator on samples that stay on disk, read a tile of rows at a time."""

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tokenize import TokenError
from typing import Self

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from bidual.numerics.rounding import length
from bidual.operators.base import Depth, LiftedOperator
from bidual.patterns.sampling import activations

_TILE_BYTES = 2**24
_KEPT_BYTES = 2**30  # patterns are kept as bits up to this size; beyond it they are computed again from the gates
_FEW = 0.7  # of all blocks: up to here a product with the nonzero blocks is cheaper than with all

# errors of numpy for a file without a valid header
_NO_ARRAY = (ValueError, EOFError, TypeError, SyntaxError, TokenError, OverflowError, RecursionError, MemoryError)


@dataclass(frozen=True, eq=False)
class MappedRows:
    """Rows of a memory-mapped array (n, k), as samples: some columns, standardised, with a constant behind them.

    Pages of the map are released after every tile, so at most a tile of it is resident.

    Attributes:
        array: the rows, of real numbers.
        columns: which of its columns are features; all if None.
        centre, scale: features are (x - centre) / scale where they are given; a scale of zero makes a column zero.
        constant: whether a column of ones follows, for a hidden bias.
    """

    array: np.ndarray
    columns: np.ndarray | None = None
    centre: Float[Tensor, " d"] | None = None
    scale: Float[Tensor, " d"] | None = None
    constant: bool = False

    def __post_init__(self) -> None:
        if self.array.ndim != 2 or self.array.dtype.kind not in "fiu":
            raise ValueError(f"samples must be rows of real numbers, got {self.array.dtype} {self.array.shape}.")

    @classmethod
    def open(cls, path: str | os.PathLike[str], rows: slice = slice(None), **options: object) -> Self:
        """Some rows of a .npy file; nothing is read yet."""
        try:
            array = np.load(Path(path), mmap_mode="r", allow_pickle=False)
        except _NO_ARRAY as error:
            raise ValueError(f"{path} is not a .npy file of numbers, or is cut off; write it by numpy.save.") from error
        return cls(array[rows], **options)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self.array)

    @property
    def width(self) -> int:
        """Features of a sample, with the constant."""
        return (self.array.shape[1] if self.columns is None else len(self.columns)) + self.constant

    def tile(self, rows: slice, dtype: torch.dtype) -> Float[Tensor, "r d"]:
        """A copy of some rows, as numbers of this type."""
        part = self.array[rows] if self.columns is None else self.array[rows][:, self.columns]
        part = np.array(part, dtype=part.dtype if part.dtype in (np.float32, np.float64) else np.float64)
        self._release()
        X = torch.from_numpy(part).to(dtype)
        if self.centre is not None:
            X -= self.centre.to(dtype)
        if self.scale is not None:
            X /= torch.where(self.scale > 0, self.scale, torch.inf).to(dtype)
        return torch.cat([X, X.new_ones(len(X), 1)], 1) if self.constant else X

    def _release(self) -> None:
        mapped = getattr(self.array, "_mmap", None)
        if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)


class TiledOperator(LiftedOperator):
    r"""A Z = sum_p D_p X Z_p as :class:`GatedOperator`, for an X that is never in memory as a whole.

    Samples, gates and bits are on the CPU; tiles are copied to ``device`` for products. Both products read X once, a
    tile of about ``tile_bytes`` at a time. The patterns D_p = 1{X g_p >= 0} are computed in float64, so that all
    precisions have the same ones. They are kept as bits, n P / 8 bytes where X takes 4 n d or 8 n d on disk; beyond
    ``kept_bytes`` they are computed again from the gates at every tile, which triples the work. Sums over tiles are
    taken in float64.
    """

    def __init__(
        self,
        samples: MappedRows,
        gates: Float[Tensor, "d p"],
        n_outputs: int,
        dtype: torch.dtype = torch.float32,
        *,
        device: torch.device | None = None,
        tile_bytes: int = _TILE_BYTES,
        kept_bytes: int = _KEPT_BYTES,
    ) -> None:
        if len(gates) != samples.width:
            raise ValueError(f"gates must have one row per feature ({samples.width}), got {len(gates)}.")
        self.samples, self.gates, self.n_outputs = samples, gates.to(torch.float64), n_outputs
        self.dtype, self.tile_bytes, self.kept_bytes = dtype, tile_bytes, kept_bytes
        self.device = torch.device("cpu") if device is None else device
        self.blocks = torch.arange(gates.shape[1])

    @property
    def block_shape(self) -> tuple[int, int, int]:
        return len(self.blocks), self.samples.width, self.n_outputs

    @property
    def output_shape(self) -> tuple[int, int]:
        return len(self.samples), self.n_outputs

    @property
    def like(self) -> Tensor:
        return torch.empty(0, dtype=self.dtype, device=self.device)

    @cached_property
    def magnitude(self) -> float:
        """|X|_F, from one pass in float64."""
        lengths = [length(self.samples.tile(rows, torch.float64)) for rows in self._slices()]
        return length(torch.tensor(lengths, dtype=torch.float64))

    @property
    def depth(self) -> Depth:
        """Tiles are added one after the other, each a sum over its samples."""
        tiles = [rows.stop - rows.start for rows in self._slices()]
        return Depth(len(self.blocks) + self.samples.width, max(tiles, default=0) + len(tiles) + 4)

    def to(self, dtype: torch.dtype) -> Self:
        return self if dtype == self.dtype else self._copy(dtype, self.blocks)

    def select(self, blocks: Tensor) -> Self:
        return self._copy(self.dtype, self.blocks[blocks.cpu()])

    def _copy(self, dtype: torch.dtype, blocks: Tensor) -> Self:
        """Another precision or other blocks; the bits are shared."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, dtype=dtype, blocks=blocks)
        if len(self.samples) * self._bytes_per_row <= self.kept_bytes:
            other.__dict__["_kept_bits"] = self._kept_bits
        return other

    def _forward(self, Z: Tensor) -> Tensor:
        used = Z.flatten(1).any(1)
        if float(used.double().mean() if len(used) else 1.0) <= _FEW:
            return self.select(used.nonzero()[:, 0])._products(Z[used])
        return self._products(Z)

    def _products(self, Z: Tensor) -> Tensor:
        P, weights = self.like.new_zeros(self.output_shape), Z.flatten(1)
        for rows in self._slices() if len(Z) else ():
            X, D = self._tile(rows)
            P[rows] = torch.bmm(X[:, None, :], (D @ weights).view(*X.shape, self.n_outputs))[:, 0]
        return P

    def _adjoint(self, V: Tensor) -> Tensor:
        G = torch.zeros(self.block_shape, dtype=torch.float64, device=self.device)
        for rows in self._slices():
            X, D = self._tile(rows)
            G.flatten(1).add_(D.T @ (X[:, :, None] * V[rows][:, None, :]).flatten(1))
        return G.to(self.dtype)

    def _tile(self, rows: slice) -> tuple[Float[Tensor, "r d"], Float[Tensor, "r p"]]:
        """Samples and their patterns."""
        if len(self.samples) * self._bytes_per_row > self.kept_bytes:
            exact = self.samples.tile(rows, torch.float64)
            return exact.to(self.like), activations(exact, self.gates[:, self.blocks]).T.to(self.like)
        bits = self._kept_bits[rows].to(self.device)
        numbers = torch.from_numpy(np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)).to(self.like)
        D = numbers.index_select(0, bits.flatten().int()).view(len(bits), -1)
        whole = len(self.blocks) == self.gates.shape[1] and bool((self.blocks.diff() == 1).all())
        X = self.samples.tile(rows, self.dtype).to(self.device)
        return X, D[:, : len(self.blocks)] if whole else D[:, self.blocks]

    @cached_property
    def _kept_bits(self) -> UInt8[Tensor, "n b"]:
        """The patterns of all gates, eight to a byte, one row per sample."""
        bits = torch.empty(len(self.samples), self._bytes_per_row, dtype=torch.uint8)
        for rows in self._slices():
            on = activations(self.samples.tile(rows, torch.float64), self.gates).T.numpy()
            bits[rows] = torch.from_numpy(np.packbits(on, axis=1))
        return bits

    @property
    def _bytes_per_row(self) -> int:
        return -(-self.gates.shape[1] // 8)

    def _slices(self) -> Iterator[slice]:
        """Slices of samples whose arrays take about ``tile_bytes``."""
        n, d = len(self.samples), self.samples.width
        size = max(self.tile_bytes // (8 * (2 * d + 2 * d * self.n_outputs + 2 * self.gates.shape[1])), 1)
        yield from (slice(start, min(start + size, n)) for start in range(0, n, size))
