"""SGD and Adam on path-regularised parallel networks of three layers, many trials at once."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bidual.architectures.modules import ParallelNetwork
from bidual.losses import Loss, Squared

_RECORDS = 200  # how often the objective is written down
_TINY = 1e-30  # squared path norm of a dead sub-network, whose subgradient is zero

Layers = tuple[Float[Tensor, "t k d m"], Float[Tensor, "t k m l"], Float[Tensor, "t k l c"]]


@dataclass(frozen=True, eq=False)
class ParallelRuns:
    """What several trials came to.

    Attributes:
        layers: W_1, W_2 and W_3 of the last epoch, (trials, K, in, out) each.
        objective: of all samples, every ``every`` epochs and at the end.
        seconds: of all trials together.
    """

    layers: Layers
    objective: Float[Tensor, "t e"]
    every: int
    seconds: float

    @property
    def final(self) -> Float[Tensor, " t"]:
        """The objective at the end, infinite where a trial diverged."""
        return self.objective[:, -1].nan_to_num(nan=torch.inf)

    @property
    def lowest(self) -> Float[Tensor, " t"]:
        """The least objective that was recorded: at least as good for the trial as the last one."""
        return self.objective.nan_to_num(nan=torch.inf).amin(1)

    def network(self, trial: int) -> ParallelNetwork:
        """The network of one trial, in float64."""
        first, second, third = (layer[trial] for layer in self.layers)
        module = ParallelNetwork(first.shape[1], [first.shape[2], second.shape[2]], third.shape[2], len(first))
        with torch.no_grad():
            for layer, weight in zip(module.layers, (first, second, third), strict=True):
                layer.copy_(weight)
        return module

    def accuracy(self, X: Float[Tensor, "n d"], y: Float[Tensor, "n c"]) -> Float[Tensor, " t"]:
        """The share of labels +1 and -1 that have the sign of the prediction, for every trial."""
        outputs = [self.network(trial)(X).detach() for trial in range(len(self.objective))]
        return ((torch.stack(outputs) > 0) == (y > 0)).double().mean((1, 2))


@dataclass(frozen=True)
class ParallelDescent:
    """Minimises sum_i l(f(x_i), y_i) + beta * path norm (PR eq. 4), f a parallel network of three layers.

    Trials do not interact. The start is torch's own for linear layers, uniform within 1 / sqrt(inputs); the last layer
    has all sub-networks as inputs. The paper states no start.

    Attributes:
        n_networks, width, second_width: K, m_1 and m_2.
        step: the learning rate.
        epochs: passes over the samples.
        momentum: of SGD; PR A.1 names 0.9, without saying whether Table 2 had it.
        batch_size: all samples if None. Each trial shuffles with its own seed.
        mean: whether the loss is a mean over samples and not a sum.
        loss: squared loss is 1/2 |f - y|^2.
    """

    n_networks: int
    width: int
    optimiser: Literal["sgd", "adam"] = "sgd"
    step: float = 0.005
    epochs: int = 20_000
    momentum: float = 0.9
    batch_size: int | None = None
    mean: bool = False
    second_width: int = 1
    loss: Loss = field(default_factory=Squared)

    def run(
        self, X: Float[Tensor, "*t n d"], y: Float[Tensor, "*t n c"], beta: float, seeds: Sequence[int]
    ) -> ParallelRuns:
        """Train one network per seed, in the precision of X; X and y may also differ from trial to trial."""
        began, trials = time.perf_counter(), len(seeds)
        X, y = X.expand(trials, *X.shape[-2:]), y.expand(trials, *y.shape[-2:])
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        layers, record = self._start(X, y, generators), []
        moves = [_Move(layer) for layer in layers]
        for epoch in range(self.epochs):
            if epoch % self._every == 0:
                record.append(self.slope(X, y, beta, layers)[0])
            for A, b in self._batches(X, y, generators):
                self._step(layers, moves, self.slope(A, b, beta, layers, X.shape[1])[1])
        record.append(self.slope(X, y, beta, layers)[0])
        return ParallelRuns(layers, torch.stack(record, 1), self._every, time.perf_counter() - began)

    def slope(
        self,
        X: Float[Tensor, "t b d"],
        y: Float[Tensor, "t b c"],
        beta: float,
        layers: Layers,
        n: int | None = None,
    ) -> tuple[Float[Tensor, " t"], Layers]:
        """The objective of every trial and its gradient, estimated from a batch X of the n samples."""
        (W1, W2, W3), (t, b, d), (K, m) = layers, X.shape, (self.n_networks, self.width)
        wide = W1.transpose(1, 2).reshape(t, d, K * m)
        first = (X @ wide).relu().reshape(t, b, K, m).transpose(1, 2)
        second = (first @ W2).relu()
        P = (second @ W3).sum(1).flatten(0, 1)
        weight, Y = (1 if self.mean else n or b) / b, y.reshape(t * b, -1)
        back = (weight * self.loss.grad(P, Y)).reshape(t, 1, b, -1)
        back2 = (back @ W3.mT) * (second > 0)
        back1 = ((back2 @ W2.mT) * (first > 0)).transpose(1, 2).reshape(t, b, K * m)
        price, (R1, R2, R3) = _path_slope(layers, beta)
        G1 = (X.mT @ back1).reshape(t, d, K, m).transpose(1, 2) + R1
        value = weight * self.loss.value(P, Y).reshape(t, b).sum(1) + price
        return value, (G1, first.mT @ back2 + R2, second.mT @ back + R3)

    @property
    def _every(self) -> int:
        return max(1, self.epochs // _RECORDS)

    def _start(self, X: Tensor, y: Tensor, generators: Sequence[torch.Generator]) -> Layers:
        K, sizes = self.n_networks, (X.shape[2], self.width, self.second_width, y.shape[2])
        drawn = [
            [2 * torch.rand(K, *pair, generator=one, dtype=torch.float64) - 1 for pair in pairwise(sizes)]
            for one in generators
        ]
        first, second, third = (torch.stack(layer).to(X) for layer in zip(*drawn, strict=True))
        return first / sizes[0] ** 0.5, second / sizes[1] ** 0.5, third / (K * sizes[2]) ** 0.5

    def _batches(
        self, X: Tensor, y: Tensor, generators: Sequence[torch.Generator]
    ) -> Iterator[tuple[Float[Tensor, "t b d"], Float[Tensor, "t b c"]]]:
        n = X.shape[1]
        if self.batch_size is None or self.batch_size >= n:
            yield X, y
            return
        order: Int[Tensor, "t n"] = torch.stack([torch.randperm(n, generator=one) for one in generators])
        trial = torch.arange(len(order))[:, None]
        for rows in order.split(self.batch_size, dim=1):
            yield X[trial, rows], y[trial, rows]

    def _step(self, layers: Layers, moves: Sequence["_Move"], slopes: Layers) -> None:
        for layer, move, slope in zip(layers, moves, slopes, strict=True):
            change = move.adam(slope) if self.optimiser == "adam" else move.momentum(slope, self.momentum)
            layer.sub_(change, alpha=self.step)


class _Move:
    """The memory of an optimiser for one layer."""

    def __init__(self, layer: Tensor) -> None:
        self.mean, self.square, self.steps = torch.zeros_like(layer), torch.zeros_like(layer), 0

    def momentum(self, slope: Tensor, share: float) -> Tensor:
        return self.mean.mul_(share).add_(slope)

    def adam(self, slope: Tensor, first: float = 0.9, second: float = 0.999, eps: float = 1e-8) -> Tensor:
        """torch.optim.Adam with its defaults."""
        self.steps += 1
        self.mean.lerp_(slope, 1 - first)
        self.square.mul_(second).addcmul_(slope, slope, value=1 - second)
        size = (self.square / (1 - second**self.steps)).sqrt_().add_(eps)
        return (self.mean / (1 - first**self.steps)).div_(size)


def _path_slope(layers: Layers, beta: float) -> tuple[Float[Tensor, " t"], Layers]:
    """beta * sum_k sqrt(|w_1k|^2 w_2k^2 w_3k^2, summed over paths) (PR section 2.2) of every trial, and its gradient.

    A path's square is a product, so the squares into and out of every unit are all that is needed.
    """
    W1, W2, W3 = layers
    squares2 = W2.square()
    into1 = W1.square().sum(2, keepdim=True)
    into2, out2 = into1 @ squares2, W3.square().sum(3, keepdim=True)
    total = into2 @ out2
    roots = total.sqrt()
    share = torch.where(total > _TINY, beta / roots.clamp(min=_TINY**0.5), 0.0)
    out1 = (squares2 @ (out2 * share)).mT
    return beta * roots.sum((1, 2, 3)), (W1 * out1, W2 * into1.mT * (out2 * share).mT, W3 * into2.mT * share)
