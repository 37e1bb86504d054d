"""First-order methods racing on labelled images: the penalty form (PR eq. 11) and parallel networks (PR eq. 4)."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple, Self, TypeVar

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torch.optim import SGD, Adadelta, Adagrad, Adam, Optimizer

from bidual.architectures.gated_parallel import SubNetworkGates
from bidual.losses import Squared
from bidual.papers.methods.parallel_descent import Layers, ParallelDescent
from bidual.papers.methods.path_norm import path_norm
from bidual.types import Blocks, Matrix

_ROWS = 1000  # samples at a time outside of training
_TINY = 1e-15  # the norm of a block whose subgradient is zero

Measured = TypeVar("Measured")


@dataclass(frozen=True, eq=False)
class Samples:
    """Flat images with one-hot targets."""

    X: Float[Tensor, "n d"]
    Y: Matrix

    def __len__(self) -> int:
        return len(self.X)

    @classmethod
    def of(cls, X: Float[Tensor, "n d"], labels: Int64[Tensor, " n"], classes: int) -> Self:
        return cls(X, nn.functional.one_hot(labels, classes).to(X))

    def chunks(self) -> Iterator["Samples"]:
        for X, Y in zip(self.X.split(_ROWS), self.Y.split(_ROWS), strict=True):
            yield Samples(X, Y)


class Contender(ABC):
    """A model and its objective on its training samples: the mean of the squared loss 1/2 |f - y|^2, and a price."""

    data: Samples

    @property
    @abstractmethod
    def parameters(self) -> list[nn.Parameter]: ...

    @abstractmethod
    def slope(self, rows: Tensor) -> None:
        """Put the gradient, estimated from these training samples, where optimisers look for it."""

    @abstractmethod
    def objective(self) -> float:
        """On all training samples."""

    @abstractmethod
    def outputs(self, x: Float[Tensor, "b d"]) -> Matrix: ...

    @torch.no_grad()
    def accuracy(self, samples: Samples) -> float:
        """The share of samples whose largest output is that of their class."""
        hits = [(self.outputs(part.X).argmax(1) == part.Y.argmax(1)).sum() for part in samples.chunks()]
        return float(torch.stack(hits).sum()) / len(samples)


class Gates(NamedTuple):
    """What is on, a row per sample: D_1 and D_2."""

    first: Bool[Tensor, "n k m"]
    second: Bool[Tensor, "n k"]


def gates_of(cells: SubNetworkGates, X: Float[Tensor, "n d"]) -> Gates:
    """In float64 whatever the precision of X, so that certificates speak of the same gates."""
    parts = [cells.activity(x.double()) for x in X.split(_ROWS)]
    return Gates(*(torch.cat([part[layer].movedim(-1, 0) for part in parts]) for layer in range(2)))


@dataclass(frozen=True, eq=False)
class PenaltyModel(Contender):
    r"""(1/n) sum_i (l_i + lambda h_C,i) + beta (|z|_F,1 + |z'|_F,1) (PR eq. 11) with c outputs, gradient by hand.

    n times this is what :class:`bidual.papers.methods.penalty.PenaltyForm` states at n beta. A step is two
    products, x Z and x^T (...), with Z (d, 2 K c m_1): 8 d K m_1 c multiplications and additions per sample, 2 c
    times those of :class:`NetworkModel`. The gates are found once.

    Attributes:
        both: z, then z', columns in the order (2, K, c, m_1).
    """

    cells: SubNetworkGates
    data: Samples
    gates: Gates
    both: nn.Parameter
    beta: float
    lam: float

    @classmethod
    def start(cls, cells: SubNetworkGates, data: Samples, beta: float, lam: float) -> Self:
        """At zero."""
        cells = cells.to(data.X.new_zeros(0, dtype=torch.float64))
        columns = 2 * cells.signs.numel() * data.Y.shape[1]
        both = nn.Parameter(data.X.new_zeros(data.X.shape[1], columns))
        return cls(cells, data, gates_of(cells, data.X), both, beta, lam)

    @property
    def parameters(self) -> list[nn.Parameter]:
        return [self.both]

    @property
    def lifted(self) -> Blocks:
        """z - z' as the variable of :meth:`bidual.architectures.GatedParallel.lift`, in float64."""
        z, other = self._split(self.both.detach().double()).unbind(1)
        return (z - other).permute(1, 3, 0, 2).flatten(1, 2)

    @torch.no_grad()
    def put(self, Z: Blocks) -> None:
        """z = Z and z' = 0, the inverse of :attr:`lifted`."""
        _, K, c, m = self._shape
        halves = self._split(self.both)
        halves[:, 1] = 0
        halves[:, 0] = Z.reshape(K, m, -1, c).permute(2, 0, 3, 1).to(self.both)

    def natural_rate(self, optimiser: str) -> float:
        """Of SGD 1 / L, L the greatest curvature of the loss; of Adam the step that moves an output by at most 1, on
        average; both from some of the samples, as in
        :class:`bidual.papers.methods.penalty_descent.PenaltyDescent`."""
        x, (first, second) = self.data.X[:_ROWS].double(), (gate[:_ROWS] for gate in self.gates)
        on = (first & second[..., None]).flatten(1).to(x)
        if optimiser == "adam":
            return 1 / (2 * float((on.sum(1) * x.abs().sum(1)).mean()))
        return len(x) / (2 * float(torch.linalg.matrix_norm((x @ x.T) * (on @ on.T), 2)))

    @torch.no_grad()
    def slope(self, rows: Tensor) -> None:
        x, b = self.data.X[rows], len(rows)
        first, second = self._masks(Gates(self.gates.first[rows], self.gates.second[rows]), x)
        linear = self._split(x @ self.both)
        inner = (first * linear).sum(4)
        residual = Squared().grad(_outputs(inner, second), self.data.Y[rows]) / b
        below, lam = 2 * second - 1, self.lam / b
        up = torch.stack([residual, -residual], 1)[:, :, None] * second - lam * below * (inner * below < 0)
        side = self._side(first)
        back = linear.mul_(side).lt_(0).mul_(-lam * side).addcmul_(first, up[..., None])
        norms = self._norms()
        share = torch.where(norms > _TINY, self.beta / norms.clamp(min=_TINY), 0.0)
        columns = share.repeat_interleave(self.both.shape[1] // share.numel())
        self.both.grad = (x.T @ back.flatten(1)).addcmul_(self.both, columns)

    @torch.no_grad()
    def objective(self) -> float:
        gates = zip(self.gates.first.split(_ROWS), self.gates.second.split(_ROWS), strict=True)
        parts = [self._sum(part, Gates(*on)) for part, on in zip(self.data.chunks(), gates, strict=True)]
        return float(torch.stack(parts).sum() / len(self.data) + self.beta * self._norms().sum())

    def outputs(self, x: Float[Tensor, "b d"]) -> Matrix:
        first, second = self._masks(gates_of(self.cells, x), x)
        z, other = self.both.view(len(self.both), 2, -1).unbind(1)
        linear = (x @ (z - other)).unflatten(1, (1, *self._shape[1:]))
        return ((first * linear).sum(4) * second).sum((1, 2))

    def _sum(self, part: Samples, gates: Gates) -> Float[Tensor, ""]:
        """Of loss and violations over a part of the samples."""
        first, second = self._masks(gates, part.X)
        linear = self._split(part.X @ self.both)
        inner = (first * linear).sum(4)
        outside = linear.mul_(self._side(first)).clamp_(max=0).sum() + (inner * (2 * second - 1)).clamp_(max=0).sum()
        return Squared().value(_outputs(inner, second), part.Y).sum() - self.lam * outside

    @property
    def _shape(self) -> tuple[int, int, int, int]:
        K, m = self.cells.signs.shape
        return 2, K, self.data.Y.shape[1], m

    def _split(self, columns: Float[Tensor, "b q"]) -> Float[Tensor, "b 2 k c m"]:
        return columns.unflatten(1, self._shape)

    def _masks(self, gates: Gates, x: Tensor) -> tuple[Float[Tensor, "b 1 k 1 m"], Float[Tensor, "b 1 k 1"]]:
        return gates.first.to(x)[:, None, :, None], gates.second.to(x)[:, None, :, None]

    def _side(self, first: Float[Tensor, "b 1 k 1 m"]) -> Float[Tensor, "b 1 k 1 m"]:
        """(2 D_1 - I) s."""
        return (2 * first - 1) * self.cells.signs.to(first)[:, None]

    def _norms(self) -> Float[Tensor, "2 k"]:
        """|z_k|_F and |z'_k|_F."""
        return torch.linalg.vector_norm(self._split(self.both.detach()), dim=(0, 3, 4))


def _outputs(inner: Float[Tensor, "b 2 k c"], second: Float[Tensor, "b 1 k 1"]) -> Matrix:
    return ((inner[:, :1] - inner[:, 1:]) * second).sum((1, 2))


@dataclass(frozen=True, eq=False)
class NetworkModel(Contender):
    """A parallel ReLU network of three layers, m_2 = 1, under beta * path norm (PR eq. 4), or with ``decay`` under
    beta / 2 times the sum of squared weights."""

    data: Samples
    layers: list[nn.Parameter]
    beta: float
    decay: bool = False

    @classmethod
    def start(
        cls, data: Samples, n_networks: int, width: int, beta: float, generator: torch.Generator, decay: bool = False
    ) -> Self:
        """Uniform within 1 / sqrt(inputs), torch's own start; the last layer has all sub-networks as inputs."""
        sizes, inputs = (data.X.shape[1], width, 1, data.Y.shape[1]), (data.X.shape[1], width, n_networks)
        drawn = [torch.rand(1, n_networks, *pair, generator=generator) * 2 - 1 for pair in pairwise(sizes)]
        layers = [nn.Parameter((W / fan**0.5).to(data.X)) for W, fan in zip(drawn, inputs, strict=True)]
        return cls(data, layers, beta, decay)

    @property
    def parameters(self) -> list[nn.Parameter]:
        return self.layers

    @torch.no_grad()
    def slope(self, rows: Tensor) -> None:
        X, Y = self.data.X[rows][None], self.data.Y[rows][None]
        first, second, third = (layer.detach() for layer in self.layers)
        weights: Layers = (first, second, third)
        form = ParallelDescent(first.shape[1], first.shape[3], mean=True)
        slopes = form.slope(X, Y, 0.0 if self.decay else self.beta, weights)[1]
        for layer, slope in zip(self.layers, slopes, strict=True):
            layer.grad = slope.add(layer, alpha=self.beta) if self.decay else slope

    @torch.no_grad()
    def objective(self) -> float:
        losses = [Squared().value(self.outputs(part.X), part.Y).sum() for part in self.data.chunks()]
        return float(torch.stack(losses).sum() / len(self.data) + self.beta * self._price())

    def outputs(self, x: Float[Tensor, "b d"]) -> Matrix:
        W, w, V = (layer[0] for layer in self.layers)
        wide = W.movedim(1, 0).flatten(1)
        second = ((x @ wide).relu().unflatten(1, W.shape[::2]) * w[..., 0]).sum(2).relu()
        return second @ V[:, 0]

    def _price(self) -> Float[Tensor, ""]:
        if self.decay:
            return torch.stack([layer.square().sum() for layer in self.layers]).sum() / 2
        return path_norm([layer[0] for layer in self.layers])


def stepper(name: str, parameters: list[nn.Parameter], rate: float, momentum: float) -> Optimizer:
    """SGD with momentum, or Adam, Adagrad or Adadelta with torch's settings."""
    if name == "sgd":
        return SGD(parameters, lr=rate, momentum=momentum)
    return {"adam": Adam, "adagrad": Adagrad, "adadelta": Adadelta}[name](parameters, lr=rate)


@dataclass(frozen=True)
class Watch:
    """Seconds of the wall, or of the processor: on one thread, the wall time of an idle machine."""

    clock: Literal["wall", "processor"]
    device: torch.device

    def read(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter() if self.clock == "wall" else time.process_time()


@dataclass(frozen=True)
class Race:
    """Batches in random order until the seconds are up or the samples were seen ``max_epochs`` times."""

    batch_size: int
    watch: Watch
    max_epochs: float = float("inf")

    def run(
        self,
        contender: Contender,
        optimiser: Optimizer,
        marks: Sequence[float],
        measure: Callable[[float, float], Measured],
        generator: torch.Generator,
        spent: float = 0.0,
    ) -> list[Measured]:
        """What ``measure(seconds, epochs)`` says at the first step past every mark and at the end; it takes no time.

        ``spent`` are the seconds of preparations. The race ends at the last mark.
        """
        found, left, epochs = [], sorted(marks), 0.0
        for rows in self._batches(contender.data, generator):
            began = self.watch.read()
            contender.slope(rows)
            optimiser.step()
            spent += self.watch.read() - began
            epochs += len(rows) / len(contender.data)
            over = spent >= left[-1] or epochs >= self.max_epochs - 1e-9
            if spent >= left[0] or over:
                found.append(measure(spent, epochs))
                left = [mark for mark in left if mark > spent]
            if over:
                break
        return found

    def _batches(self, data: Samples, generator: torch.Generator) -> Iterator[Tensor]:
        while True:
            yield from torch.randperm(len(data), generator=generator).to(data.X.device).split(self.batch_size)
