r"""Networks for the folds of a cross-validation, along a path of betas, all folds at once.

Every fold weighs the samples in its own way, with zeros for those that it holds out, and minimises

    sum_i w_i l(p_i, y_i) + beta_k / 2 sum_j (|u_j|^2 + |w_j|^2),   beta_k = beta * (its weights) / (all weights),

the balanced form of CP eq. (4), so that a sum over fewer samples is not regularised harder. Networks grow from beta to
beta by steep neurons, |V^T (X u)_+| > beta_k (CP eq. 11), that a short search finds, and descend by L-BFGS. On tables
of some hundred samples a step is mostly calls, so all folds take it together. Nothing is certified: descents stop some
per cent above the optimum where beta is small, which moves held-out scores by less than another draw of folds does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from time import perf_counter
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.numerics.lbfgs_rows import Numbers, Points, minimise_rows
from bidual.numerics.norms import L2
from bidual.polar import Neurons
from bidual.problems.problem import ReluProblem
from bidual.types import Blocks

_NEW = 12  # neurons that a fold gets at every beta
_STARTS, _CLIMBS = 48, 8  # of the search for them
_STEPS = 40  # of a descent
_STEEP = 1.01  # times beta, how steep new neurons are
_APART = 0.99  # the largest cosine between new neurons
_FAINT, _LIGHT = 0.02, 1e-2  # of the heaviest neuron, how heavy new ones are, and which are dropped
_AWAY = 0.3  # how far from known neurons a search starts
_TINY = 1e-300


class FoldNetwork(NamedTuple):
    """Neurons of length one, their output weights, and the intercepts."""

    neurons: Neurons
    Z: Blocks
    offset: Float[Tensor, " c"]


class _Batch(NamedTuple):
    """The networks of all folds, padded with neurons of length zero, which stay there."""

    U: Float[Tensor, "k m d"]
    Z: Float[Tensor, "k m a c"]
    b: Float[Tensor, "k c"]

    def packed(self) -> Points:
        return torch.cat([part.flatten(1) for part in self], 1)

    def like(self, x: Points) -> "_Batch":
        parts = x.split([part[0].numel() for part in self], 1)
        return _Batch(*(part.view(old.shape) for part, old in zip(parts, self, strict=True)))

    def sizes(self) -> Float[Tensor, "k m"]:
        """|u_j| |w_j|, what a neuron costs."""
        return self.U.norm(dim=2) * self.Z.flatten(2).norm(dim=2)

    def networks(self) -> list[FoldNetwork]:
        return [_network(U, Z, b, sizes > 0) for U, Z, b, sizes in zip(*self, self.sizes(), strict=True)]


def _network(U: Neurons, Z: Blocks, b: Tensor, alive: Tensor) -> FoldNetwork:
    lengths = U[alive].norm(dim=1)
    return FoldNetwork(U[alive] / lengths[:, None], Z[alive] * lengths[:, None, None], b)


@dataclass(frozen=True, eq=False)
class FoldPaths:
    """The folds of a cross-validation over ReLU networks, for a smooth loss.

    Attributes:
        problem: that of all samples; its beta does not matter.
        shares: by what every fold multiplies the weights of samples.
        seed: of the search for neurons.
        gain: a descent ends where ten steps gain less than ten times this share of the objective.
        max_time: seconds for the networks of one beta, which are then those of the last step.
    """

    problem: ReluProblem
    shares: Float[Tensor, "k n"]
    seed: int = 0
    gain: float = 1e-5
    max_time: float | None = None

    def networks(self, betas: Sequence[float]) -> Iterator[list[FoldNetwork]]:
        """The networks of all folds for one beta after another, which should fall."""
        generator = torch.Generator().manual_seed(self.seed)
        batch = self._nothing()
        for beta in betas:
            own = beta * self._weights.sum(1) / self.problem.datafit.weights.sum()
            batch = self._grown(batch, own, generator)
            batch = self._descended(batch, own)
            yield batch.networks()

    def _descended(self, batch: _Batch, betas: Numbers) -> _Batch:
        """Without the neurons that then are light."""
        began = perf_counter()
        in_time = lambda: self.max_time is None or perf_counter() - began < self.max_time  # noqa: E731
        slope = partial(self._slope, batch, betas)
        return _without_light(batch.like(minimise_rows(slope, batch.packed(), _STEPS, self.gain, go_on=in_time)))

    @cached_property
    def _weights(self) -> Float[Tensor, "k n"]:
        return self.shares.to(self.problem.X) * self.problem.datafit.weights[:, 0]

    def _nothing(self) -> _Batch:
        X, k = self.problem.X, len(self.shares)
        shape = self.problem.restricted_to(X[:0]).operator.block_shape
        empty = _Batch(X.new_zeros(k, 0, X.shape[1]), X.new_zeros(k, *shape), X.new_zeros(k, shape[2]))
        return self._descended(empty, X.new_zeros(k))

    def _slope(self, like: _Batch, betas: Numbers, x: Points) -> tuple[Numbers, Points]:
        """The objectives of all folds, and their gradients."""
        batch, fit = like.like(x), self.problem.datafit
        hidden = self._hidden(batch.U)
        features = self._features(hidden)
        P = features @ batch.Z.flatten(1, 2) + batch.b[:, None]
        V = self._slopes(P)
        on_hidden = self._spread(V) @ batch.Z.flatten(2).mT
        on_U = (on_hidden * (hidden > 0)).mT @ self.problem.X
        values = (self._weights * fit.loss.value(P.flatten(0, 1), self._targets).view(self._weights.shape)).sum(1)
        weights = x[:, : x.shape[1] - batch.b.shape[1]]
        slope = torch.cat([on_U.flatten(1), (features.mT @ V).flatten(1)], 1).addcmul_(weights, betas[:, None])
        on_b = V.sum(1) if fit.intercept else torch.zeros_like(batch.b)
        return values + 0.5 * betas * torch.linalg.vecdot(weights, weights), torch.cat([slope, on_b], 1)

    @cached_property
    def _targets(self) -> Float[Tensor, "kn c"]:
        return self.problem.datafit.targets.repeat(len(self.shares), 1)

    def _slopes(self, P: Float[Tensor, "k n c"]) -> Float[Tensor, "k n c"]:
        slopes = self.problem.datafit.loss.grad(P.flatten(0, 1), self._targets)
        return self._weights[:, :, None] * slopes.view(P.shape)

    def _hidden(self, U: Float[Tensor, "k m d"]) -> Float[Tensor, "k r m"]:
        X = self.problem.X
        return (X @ U.flatten(0, 1).T).clamp_(min=0).view(len(X), *U.shape[:2]).movedim(1, 0)

    def _features(self, hidden: Float[Tensor, "k r m"]) -> Float[Tensor, "k n ma"]:
        readout = self.problem.readout
        return hidden if readout is None else torch.stack([readout.pool(one).flatten(1) for one in hidden])

    def _spread(self, V: Float[Tensor, "k n c"]) -> Float[Tensor, "k r ac"]:
        readout = self.problem.readout
        return V if readout is None else torch.stack([readout.spread(one) for one in V])

    def _grown(self, batch: _Batch, betas: Numbers, generator: torch.Generator) -> _Batch:
        """With steep neurons that are not there yet, whose weights are small."""
        P = self._features(self._hidden(batch.U)) @ batch.Z.flatten(1, 2) + batch.b[:, None]
        V = self._spread(self._slopes(P))
        U, values, outputs = self._steep(batch, V, generator)
        U, values, outputs = _best(U, values, outputs, betas, batch.U)
        heaviest = batch.sizes().amax(1) if batch.U.shape[1] else torch.zeros_like(betas)
        heaviest = heaviest.where(heaviest > 0, self._first_size(values, betas, U))
        root = (_FAINT * heaviest)[:, None].sqrt() * (values > 0)
        Z = (-root[:, :, None] * outputs).unflatten(2, batch.Z.shape[2:])
        return _Batch(torch.cat([batch.U, root[:, :, None] * U], 1), torch.cat([batch.Z, Z], 1), batch.b)

    def _first_size(self, values: Float[Tensor, "k m"], betas: Numbers, U: Float[Tensor, "k m d"]) -> Numbers:
        """About the weight of a single neuron for squared loss: what is gained at first, by its curvature."""
        length = (self._hidden(U).square().sum(1)).amax(1)
        return ((values.amax(1) - betas).clamp(min=0) / length.clamp(min=_TINY)).clamp(min=_TINY)

    def _steep(
        self, batch: _Batch, V: Float[Tensor, "k r ac"], generator: torch.Generator
    ) -> tuple[Float[Tensor, "k q d"], Float[Tensor, "k q"], Float[Tensor, "k q ac"]]:
        """Where u <- unit(X^T D V V^T D X u), D the pattern of u, leads; as in :class:`bidual.polar.LocalSearch`."""
        U = L2.unit(torch.cat([V.mT @ self.problem.X, -V.mT @ self.problem.X, *self._starts(batch, generator)], 1))
        for _ in range(_CLIMBS):
            hidden = self._hidden(U)
            slopes = V @ (V.mT @ hidden)
            moved = L2.unit((slopes * (hidden > 0)).mT @ self.problem.X)
            U = moved.where(moved.any(2, keepdim=True), U)
        outputs = self._hidden(U).mT @ V
        values = outputs.norm(dim=2)
        return U, values, outputs / values.clamp(min=_TINY)[:, :, None]

    def _starts(self, batch: _Batch, generator: torch.Generator) -> list[Float[Tensor, "k q d"]]:
        """Random directions, the same for all folds, and some around the neurons of each."""
        X, (k, m, d) = self.problem.X, batch.U.shape
        drawn = torch.randn(_STARTS, d, generator=generator, dtype=torch.float64).to(X)
        starts = [(drawn / X.square().mean(0).sqrt().clamp(min=_TINY)).expand(k, -1, -1)]
        if m:
            alive = (batch.sizes() > 0).sum(1)  # they come first
            chosen = (torch.rand(_STARTS, generator=generator).to(X.device) * alive[:, None]).long()
            starts.append(L2.unit(torch.take_along_dim(batch.U, chosen[:, :, None], 1)) + _AWAY / d**0.5 * drawn)
        return starts


def _best(
    U: Float[Tensor, "k q d"],
    values: Float[Tensor, "k q"],
    outputs: Float[Tensor, "k q ac"],
    betas: Numbers,
    known: Float[Tensor, "k m d"],
) -> tuple[Tensor, Tensor, Tensor]:
    """For every fold the steepest ones that are apart from each other and from known ones, and values of zero."""
    values, order = values.sort(1, descending=True)
    U, outputs = (torch.take_along_dim(part, order[:, :, None], 1) for part in (U, outputs))
    near = (U @ U.mT > _APART).tril(-1).any(2) | (U @ L2.unit(known).mT > _APART).any(2)
    values = values.where(~near & (values > _STEEP * betas[:, None]), 0.0)
    values, first = values.topk(min(_NEW, values.shape[1]), 1)
    return torch.take_along_dim(U, first[:, :, None], 1), values, torch.take_along_dim(outputs, first[:, :, None], 1)


def _without_light(batch: _Batch) -> _Batch:
    """Only neurons that some fold needs, the heaviest first."""
    sizes = batch.sizes()
    if not sizes.shape[1]:
        return batch
    heavy = sizes > _LIGHT * sizes.amax(1, keepdim=True)
    order = heavy.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, : int(heavy.sum(1).max())]
    kept = torch.take_along_dim(heavy, order, 1)
    U = torch.take_along_dim(batch.U, order[:, :, None], 1) * kept[:, :, None]
    Z = torch.take_along_dim(batch.Z, order[:, :, None, None], 1) * kept[:, :, None, None]
    return _Batch(U, Z, batch.b)
