"""The samples of one rank, in memory or on disk; gates for those of all ranks, and the gated operator on them."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from bidual.architectures import GatedMLP
from bidual.operators import LiftedOperator
from bidual.operators.tiled import MappedRows, TiledOperator
from bidual.patterns import activations, with_constant
from bidual.runtime.ranks import Ranks

_TILE = 2**14  # rows
Tiles = Callable[[], Iterable[Float[Tensor, "r d"]]]  # a rank's samples, a few rows at a time; may be called again


@dataclass(frozen=True, eq=False)
class RowsInMemory:
    """A rank's encoded samples."""

    X: Float[Tensor, "n d"]

    def tiles(self) -> Iterator[Float[Tensor, "r d"]]:
        """The samples in float64, a few rows at a time."""
        yield from self.X.split(_TILE)

    def operator(self, architecture: GatedMLP, n_outputs: int, device: torch.device) -> LiftedOperator:
        """The operator of the family on these samples, on this device; samples and gates are on the CPU."""
        there = replace(architecture, gates=architecture.gates.to(device))
        return there.lift(self.X.to(device), n_outputs)


@dataclass(frozen=True, eq=False)
class RowsOnDisk:
    """The same of an array on disk."""

    samples: MappedRows

    def tiles(self) -> Iterator[Tensor]:
        for start in range(0, len(self.samples), _TILE):
            yield self.samples.tile(slice(start, start + _TILE), torch.float64)

    def operator(self, architecture: GatedMLP, n_outputs: int, device: torch.device) -> LiftedOperator:
        samples = replace(self.samples, constant=architecture.bias)
        return TiledOperator(samples, architecture.gates, n_outputs, torch.float64, device=device)


Rows = RowsInMemory | RowsOnDisk


def shared_gates(tiles: Tiles, count: int, seed: int, ranks: Ranks, *, bias: bool) -> Float[Tensor, "k p"]:
    """The gates that :func:`bidual.patterns.sample_gates` draws for the rows of all ranks, up to rounding.

    They are the same for any number of ranks.
    """
    centre, spread, largest = _moments(tiles, ranks, bias)
    generator = torch.Generator().manual_seed(seed)
    directions = torch.randn(len(spread), count, generator=generator, dtype=torch.float64)
    thresholds = torch.randn(count, generator=generator, dtype=torch.float64)
    gates = directions / torch.where(spread > 1e-12 * largest, spread, 1.0)[:, None]
    if bias:
        shift = thresholds * torch.linalg.vector_norm(directions, dim=0) - centre @ gates
        gates = torch.cat([gates, shift[None]])
    gates = ranks.share(gates if ranks.leads else None, tuple(gates.shape), gates)  # the same bits everywhere
    kept = _distinct(tiles, gates, ranks, bias)
    if not kept:  # all gates are off on all samples; with the other sign they are on
        gates = -gates
        kept = _distinct(tiles, gates, ranks, bias)
    return gates[:, kept]


def _moments(tiles: Tiles, ranks: Ranks, bias: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Mean (zero without bias), deviation from it, and largest absolute value of every column."""
    sums, rows, tops = [], 0, []
    for X in tiles():
        sums.append(X.sum(0))
        tops.append(X.abs().amax(0))
        rows += len(X)
    n = sum(ranks.collect(rows))
    centre = ranks.total(torch.stack(sums).sum(0)) / n
    centre = centre if bias else torch.zeros_like(centre)
    squares = torch.stack([(X - centre).square().sum(0) for X in tiles()]).sum(0)
    return centre, (ranks.total(squares) / n).sqrt(), ranks.largest(torch.stack(tops).amax(0))


def _distinct(tiles: Tiles, gates: Tensor, ranks: Ranks, bias: bool) -> list[int]:
    """The first gate of every distinct pattern, without the one that is off everywhere.

    Ranks compare digests of 128 bits of their own part of every pattern.
    """
    digests = [hashlib.blake2b(digest_size=16) for _ in range(gates.shape[1])]
    on = np.zeros(gates.shape[1], dtype=bool)
    for X in tiles():
        D = activations(with_constant(X) if bias else X, gates).numpy()
        on |= D.any(1)
        for digest, row in zip(digests, np.packbits(D, axis=1), strict=True):
            digest.update(row.tobytes())
    everywhere = ranks.collect([digest.hexdigest() for digest in digests])
    first: dict[tuple[str, ...], int] = {}
    for k, key in enumerate(zip(*everywhere, strict=True)):
        first.setdefault(key, k)
    alive = np.any(ranks.collect(on.tolist()), axis=0)
    return [k for k in first.values() if alive[k]]
