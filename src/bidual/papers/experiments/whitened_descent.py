"""Mini-batch SGD on two-layer networks for whitened samples, in pixels or in the coordinates of the samples."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

Rows = Tensor | slice
Score = Callable[[Tensor], float]


class Coordinates(ABC):
    """How hidden weights are stored, and what samples do to them."""

    name: str

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of features."""

    @abstractmethod
    def start(self, T: Float[Tensor, "n m"]) -> Tensor:
        """The weights U = X^T T."""

    @abstractmethod
    def before(self, U: Tensor, rows: Rows) -> Float[Tensor, "b m"]:
        """X U on some samples, before the activation, in the precision of U."""

    @abstractmethod
    def pull(self, B: Float[Tensor, "b m"], rows: Rows) -> Tensor:
        """X^T B over the same samples, the gradient with respect to U."""

    @abstractmethod
    def on_test(self, U: Tensor) -> Float[Tensor, "N m"]:
        """X U on the test samples."""


@dataclass(frozen=True, eq=False)
class Pixels(Coordinates):
    """U (d, m) itself: the cost of SGD that does not use that X is white."""

    X: Float[Tensor, "n d"]
    X_test: Float[Tensor, "N d"]
    name = "pixels"

    @property
    def width(self) -> int:
        return self.X.shape[1]

    @cached_property
    def _single(self) -> Tensor:
        return self.X.float()

    def start(self, T: Tensor) -> Tensor:
        return self.X.to(T).T @ T

    def before(self, U: Tensor, rows: Rows) -> Tensor:
        return (self._single if U.dtype == torch.float32 else self.X)[rows] @ U

    def pull(self, B: Tensor, rows: Rows) -> Tensor:
        return self._single[rows].T @ B

    def on_test(self, U: Tensor) -> Tensor:
        return self.X_test.to(U) @ U


@dataclass(frozen=True, eq=False)
class Samples(Coordinates):
    r"""T = X U (n, m) in the place of U = X^T T, for X X^T = K with K = I or K = I - 1 1^T / n.

    A step U - s X^T B is the step T - s K B, and |U|_F = |T|_F because T = K T: these are the iterates of
    :class:`Pixels` without the products with X. Weights outside the row space of X would only decay; there are none at
    the start.
    """

    n: int
    features: int
    centred: bool
    cross: Float[Tensor, "N n"]  # X_test X^T
    name = "samples"

    @property
    def width(self) -> int:
        return self.features

    @classmethod
    def of(cls, X: Float[Tensor, "n d"], X_test: Float[Tensor, "N d"], tol: float = 1e-6) -> Self:
        """Measure which K it is; ValueError if neither."""
        n, gram = len(X), X @ X.T
        eye = torch.eye(n, dtype=X.dtype)
        defects = {kind: float((gram - (eye - kind / n)).abs().max()) for kind in (False, True)}
        centred = min(defects, key=lambda kind: defects[kind])
        if defects[centred] > tol:
            raise ValueError(f"X X^T must be I or I - 1 1^T / n, got a defect of {defects[centred]:.1e}; whiten X.")
        return cls(n, X.shape[1], centred, (X_test @ X.T).float())

    def start(self, T: Tensor) -> Tensor:
        return T - T.mean(0) if self.centred else T.clone()

    def before(self, U: Tensor, rows: Rows) -> Tensor:
        return U[rows]

    def pull(self, B: Tensor, rows: Rows) -> Tensor:
        if isinstance(rows, slice):
            return B - B.mean(0) if self.centred else B
        full = B.new_zeros(self.n, B.shape[1])
        full[rows] = B
        return full.sub_(B.sum(0) / self.n) if self.centred else full

    def on_test(self, U: Tensor) -> Tensor:
        return self.cross.to(U) @ U


@dataclass(frozen=True)
class Point:
    """A moment of a run: seconds of the processor in steps alone, and objective and data loss in float64."""

    epoch: int
    seconds: float
    objective: float
    loss: float
    score: float


@dataclass(frozen=True, eq=False)
class Trained:
    """A run of SGD: moments of it, and the weights that it ended with, U in its coordinates."""

    points: tuple[Point, ...]
    U: Float[Tensor, "k m"]
    W: Float[Tensor, "m c"]


@dataclass(frozen=True)
class SGD:
    r"""min 1/2 |f(X) - Y|^2 + beta/2 (|U|^2 + |W|^2) in float32, momentum as in PyTorch.

    On X X^T = I a sample below zero gives a neuron no gradient, and no other sample moves its pre-activation: without
    momentum it only decays towards zero, patterns can lose samples but never win any, and runs end above the optimum.
    Momentum mu overshoots zero where (1 - sqrt(mu))^2 < step beta b / n, and so wakes samples.

    A batch of b samples contributes its own loss and b / n of the penalty, so that the batches of an epoch add up to
    the objective: an epoch at step s moves about as far as one step of full-batch descent at s, whatever b is.

    Attributes:
        batch: samples of a batch, None for all.
        linear: no activation.
        size: of the start; 1 is PyTorch's own, uniform in +- 1 / sqrt(inputs).
        records: about how many moments are kept besides the first and the last, evenly spaced on a log axis.
    """

    n_neurons: int = 1000
    epochs: int = 400
    step: float = 1e-2
    momentum: float = 0.0
    batch: int | None = None
    seed: int = 0
    linear: bool = False
    size: float = 1.0
    records: int = 30

    def run(self, where: Coordinates, Y: Float[Tensor, "n c"], beta: float, score: Score | None = None) -> Trained:
        """What came of it, up to the last epoch or to where it diverged; ``score`` judges test predictions."""
        generator = torch.Generator().manual_seed(self.seed)
        U, W = self._start(where, Y, generator)
        state, targets = (U, W, torch.zeros_like(U), torch.zeros_like(W)), Y.float()
        marks, points, seconds = self._marks(), [], 0.0
        for epoch in range(self.epochs + 1):
            if epoch in marks:
                points.append(self._point(where, U, W, Y, beta, (epoch, seconds), score))
                if not points[-1].objective <= 100 * points[0].objective:
                    break
            began = time.process_time()
            for rows, share in self._batches(len(Y), generator) if epoch < self.epochs else ():
                self._step(where, state, targets[rows], rows, share * beta)
            seconds += time.process_time() - began
        return Trained(tuple(points), U, W)

    def _start(self, where: Coordinates, Y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """U = X^T T, because weights outside the row space of X contribute nothing."""
        T = (2 * torch.rand(len(Y), self.n_neurons, generator=generator) - 1) * self.size / math.sqrt(where.width)
        W = (2 * torch.rand(self.n_neurons, Y.shape[1], generator=generator) - 1) * self.size
        return where.start(T), W / math.sqrt(self.n_neurons)

    def _marks(self) -> frozenset[int]:
        middle = torch.logspace(0, math.log10(max(self.epochs, 1)), self.records).round().int().tolist()
        return frozenset([0, *middle, self.epochs])

    def _batches(self, n: int, generator: torch.Generator) -> Iterator[tuple[Rows, float]]:
        if self.batch is None or self.batch >= n:
            yield slice(None), 1.0
            return
        for rows in torch.randperm(n, generator=generator).split(self.batch):
            yield rows, len(rows) / n

    def _step(self, where: Coordinates, state: tuple[Tensor, ...], Y: Tensor, rows: Rows, decay: float) -> None:
        U, W, dU, dW = state
        before = where.before(U, rows)
        hidden = before if self.linear else before.clamp(min=0)
        residual = hidden @ W - Y
        back = residual @ W.T
        if not self.linear:
            back *= before > 0
        for weight, moved, slope in ((U, dU, where.pull(back, rows)), (W, dW, hidden.T @ residual)):
            moved.mul_(self.momentum).add_(slope).add_(weight, alpha=decay)
        U.sub_(dU, alpha=self.step)
        W.sub_(dW, alpha=self.step)

    def _point(
        self,
        where: Coordinates,
        U: Tensor,
        W: Tensor,
        Y: Tensor,
        beta: float,
        when: tuple[int, float],
        score: Score | None,
    ) -> Point:
        U64, W64 = U.double(), W.double()
        loss = 0.5 * float((self._active(where.before(U64, slice(None))) @ W64 - Y).square().sum())
        decay = 0.5 * beta * float(U64.square().sum() + W64.square().sum())
        judged = math.nan if score is None else score((self._active(where.on_test(U)) @ W).double())
        return Point(*when, loss + decay, loss, judged)

    def _active(self, before: Tensor) -> Tensor:
        return before if self.linear else before.clamp(min=0)
