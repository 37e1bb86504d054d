import torch
from jaxtyping import Float
from torch import Tensor

from bidual.operators.patches.base import Patches


class TokenPairs(Patches):
    r"""Pairs (x_p, x_q) of tokens of sequences X (n, s, d), as rows x_q kron x_p: (row) vec(U) = x_p^T U x_q.

    vec stacks columns: in torch it is U.T.reshape(-1). A head is (X_i U X_i^T)_+ X_i V with V (d, c) (BM eq. 8), so its
    readout multiplies by the tokens x_q: L[H]_p = sum_q H_pq x_q in R^d, for every token p, or their average over p.
    """

    unit = "heads"

    def __init__(self, X: Float[Tensor, "n s d"], average: bool) -> None:
        self.X, self.average = X, average

    def samples(self, some: slice) -> "TokenPairs":
        return TokenPairs(self.X[some], self.average)

    def with_silent_sample(self) -> "TokenPairs":
        return TokenPairs(torch.cat([self.X, torch.zeros_like(self.X[:1])]), self.average)

    def to(self, dtype: torch.dtype) -> "TokenPairs":
        return TokenPairs(self.X.to(dtype), self.average)

    @property
    def width(self) -> int:
        return self.X.shape[2] ** 2

    @property
    def readouts(self) -> int:
        return self.X.shape[2]

    @property
    def work(self) -> int:
        _, s, d = self.X.shape
        return s * s * d * d

    @property
    def per_sample(self) -> tuple[int, int]:
        s = self.X.shape[1]
        return s * s, 1 if self.average else s

    def rows(self) -> Float[Tensor, "R h"]:
        return torch.einsum("iqe,ipf->ipqef", self.X, self.X).flatten(3).flatten(0, 2)

    def pool(self, H: Float[Tensor, "R q"]) -> Float[Tensor, "N q a"]:
        H = self._pairs(H)
        if self.average:
            return torch.einsum("iqm,iql->iml", H.mean(1), self.X)
        return torch.einsum("ipqm,iql->ipml", H, self.X).flatten(0, 1)

    def spread(self, V: Float[Tensor, "N c"]) -> Float[Tensor, "R ac"]:
        n, s, _ = self.X.shape
        by_token = V[:, None].expand(-1, s, -1) / s if self.average else V.reshape(n, s, -1)
        return torch.einsum("ipc,iql->ipqlc", by_token, self.X).flatten(3).flatten(0, 2)

    def compress(self, D: Float[Tensor, "R p"]) -> Float[Tensor, "N p h a"]:
        """x_p kron sum_q D_pq x_q x_q^T (notes on BM eq. 135)."""
        n, s, d = self.X.shape
        X = self.X.to(D.dtype)
        squares = torch.einsum("iqe,iql->iqel", X, X).flatten(2)
        sums = (self._pairs(D).mT @ squares[:, None]).reshape(n, s, D.shape[1], d, d)
        if self.average:
            return torch.einsum("ipf,ipkel->ikefl", X, sums).flatten(2, 3) / s
        return torch.einsum("ipf,ipkel->ipkefl", X, sums).flatten(3, 4).flatten(0, 1)

    def reach(self) -> Float[Tensor, "N a"]:
        lengths = torch.linalg.vector_norm(self.X, dim=2)
        seen = (lengths[:, :, None] * self.X.abs()).sum(1)
        if self.average:
            return lengths.mean(1)[:, None] * seen
        return (lengths[:, :, None] * seen[:, None]).flatten(0, 1)

    def is_same(self, other: Patches) -> bool:
        return isinstance(other, TokenPairs) and self.average == other.average and torch.equal(self.X, other.X)

    def _pairs(self, H: Float[Tensor, "R k"]) -> Float[Tensor, "n s s k"]:
        n, s, _ = self.X.shape
        return H.reshape(n, s, s, H.shape[1])
