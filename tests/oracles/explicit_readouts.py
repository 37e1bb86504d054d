"""Patches, pairs of tokens and their readouts by explicit loops: nothing here is the package's own."""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor


class Explicit(NamedTuple):
    """All rows x_r (R, h), and the readout L as a tensor (N, a, R): L[H]_i = L_i H."""

    rows: Tensor
    readout: Tensor

    def features(self, neurons: Tensor) -> Tensor:
        """L[(X u_j)_+] (N, m, a) of neurons (m, h)."""
        return torch.einsum("iar,rm->ima", self.readout, (self.rows @ neurons.T).clamp(min=0))

    def steepness(self, V: Tensor, neurons: Tensor) -> Tensor:
        """|V^T L[(X u_j)_+]|_F of neurons (m, h)."""
        return torch.linalg.vector_norm(torch.einsum("ima,ic->mac", self.features(neurons), V), dim=(1, 2))

    def predictions(self, Z: Tensor, active: Tensor) -> Tensor:
        """sum_p L[D_p X Z_p] (N, c) for Z (P, h, a c) with columns ordered by readout and output, patterns (P, R)."""
        a = self.readout.shape[1]
        total = torch.zeros(len(self.readout), Z.shape[2] // a, dtype=Z.dtype)
        for block, pattern in zip(Z, active, strict=True):
            seen = pattern.to(Z)[:, None] * (self.rows @ block)
            total += torch.einsum("iar,rac->ic", self.readout, seen.reshape(len(seen), a, -1))
        return total


def image_rows(
    X: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    bias: bool = False,
) -> Tensor:
    """The patches (n K, h) of images (n, channels, ...), entry by entry; what lies outside the image is zero."""
    sizes = X.shape[2:]
    corners = [
        [
            p
            for p in range(-padding[k], size + padding[k], stride[k])
            if p + dilation[k] * (kernel[k] - 1) < size + padding[k]
        ]
        for k, size in enumerate(sizes)
    ]
    rows = []
    for image, corner in product(X, product(*corners)):
        row = []
        for channel, offset in product(image, product(*(range(k) for k in kernel))):
            place = [c + o * s for c, o, s in zip(corner, offset, dilation, strict=True)]
            inside = all(0 <= p < size for p, size in zip(place, sizes, strict=True))
            row.append(float(channel[tuple(place)]) if inside else 0.0)
        rows.append(row + [1.0] * bias)
    return torch.tensor(rows, dtype=torch.float64)


def window_averages(positions: Sequence[int], grid: Sequence[int]) -> Tensor:
    """The matrix P_a (a, K) that averages each window of a grid, entry by entry."""
    sizes = [k // g for k, g in zip(positions, grid, strict=True)]
    windows, places = list(product(*map(range, grid))), list(product(*map(range, positions)))
    matrix = torch.zeros(len(windows), len(places), dtype=torch.float64)
    for (w, window), (k, place) in product(enumerate(windows), enumerate(places)):
        if all(p // size == q for p, size, q in zip(place, sizes, window, strict=True)):
            matrix[w, k] = 1 / torch.Size(sizes).numel()
    return matrix


def pooled_readout(P: Tensor, n: int) -> Tensor:
    """L of a pooling P_a (a, K) on n images: sample i sees its own K patches only."""
    a, K = P.shape
    readout = torch.zeros(n, a, n * K, dtype=torch.float64)
    for i in range(n):
        readout[i, :, i * K : (i + 1) * K] = P
    return readout


def explicit_tokens(X: Tensor, average: bool) -> Explicit:
    """Rows x_q kron x_p for p, then q; the readout sum_q H_pq x_q of token p, or its average over p."""
    n, s, d = X.shape
    rows = torch.stack([torch.kron(X[i, q], X[i, p]) for i, p, q in product(range(n), range(s), range(s))])
    readout = torch.zeros(n * s, d, n * s * s, dtype=torch.float64)
    for i, p, q in product(range(n), range(s), range(s)):
        readout[i * s + p, :, (i * s + p) * s + q] = X[i, q]
    return Explicit(rows, readout.reshape(n, s, d, -1).mean(1) if average else readout)
