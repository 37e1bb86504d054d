"""SGD and Adam on the penalty form over given cells (PR eq. 11), with gradients by hand."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bidual.architectures.gated_parallel import SubNetworkGates
from bidual.losses import Squared
from bidual.types import Matrix

_TINY = 1e-15  # the norm of a block whose subgradient is zero

Both = Float[Tensor, "2 d km"]


@dataclass(frozen=True, eq=False)
class PenaltyRun:
    """Where a descent ended.

    Attributes:
        cells: whose gates the model has.
        both: z, then z', a column per first-layer unit.
        objective: of all samples, at the end.
        seconds: of the descent.
    """

    cells: SubNetworkGates
    both: Both
    objective: float
    seconds: float

    def outputs(self, X: Float[Tensor, "n d"]) -> Float[Tensor, "n 1"]:
        """A (z - z') on other samples."""
        gates = gates_of(self.cells, X.to(self.both))
        return _outputs(_inner(gates.first, X.to(self.both) @ self.both, len(self.cells)), gates.second)


@dataclass(frozen=True)
class PenaltyDescent:
    """Minimises what :class:`bidual.papers.methods.penalty.PenaltyForm` states, one output and squared loss, from
    zero.

    That class leaves the gradient to torch and finds the gates anew in every step; here the gates are kept and a step
    is two matrix products, 4 to 16 times as fast for 3 to 166 features and m_1 = 100.

    Attributes:
        rate: the learning rate in natural units: of SGD 1 / L, L the greatest curvature of the loss, 2 |A A^T|; of Adam
            the step that moves an output by at most 1, on average over the samples.
        epochs: passes over the samples.
        batch_size: all samples if None.
        mean: whether the loss is a mean over samples; h_C is a sum over samples in any case.
        lam: lambda, the weight of h_C.
    """

    optimiser: Literal["sgd", "adam"] = "sgd"
    rate: float = 0.1
    epochs: int = 100
    momentum: float = 0.9
    batch_size: int | None = None
    mean: bool = False
    lam: float = 1e-5

    def run(
        self, cells: SubNetworkGates, X: Float[Tensor, "n d"], y: Float[Tensor, "n 1"], beta: float, seed: int
    ) -> PenaltyRun:
        """Descend in the precision of X; ``seed`` is that of the order of the samples."""
        began, gates = time.perf_counter(), gates_of(cells, X)
        form = Form(cells, beta, self.lam, self.mean, len(X))
        both = nn.Parameter(X.new_zeros(2, X.shape[1], len(cells) * cells.width))
        stepper = self._stepper(both, gates, X)
        generator = torch.Generator().manual_seed(seed)
        for _ in range(self.epochs):
            for rows in self._batches(len(X), generator):
                both.grad = form.slope(both.detach(), gates.of(rows), X[rows], y[rows])
                stepper.step()
        found = both.detach()
        return PenaltyRun(cells, found, form.value(found, gates, X, y), time.perf_counter() - began)

    def _stepper(self, both: nn.Parameter, gates: "Gates", X: Tensor) -> torch.optim.Optimizer:
        on = gates.first * gates.second.repeat_interleave(gates.first.shape[1] // gates.second.shape[1], 1)
        if self.optimiser == "adam":
            reach = 2 * float((on.sum(1) * X.abs().sum(1)).mean())
            return torch.optim.Adam([both], lr=self.rate / reach)
        largest = float(torch.linalg.matrix_norm((X @ X.T) * (on @ on.T), 2))
        curvature = 2 * largest / (len(X) if self.mean else 1)
        return torch.optim.SGD([both], lr=self.rate / curvature, momentum=self.momentum)

    def _batches(self, n: int, generator: torch.Generator) -> Iterator[Tensor]:
        size = n if self.batch_size is None else self.batch_size
        yield from torch.randperm(n, generator=generator).split(size)


class Gates(NamedTuple):
    """What is on, a row per sample: D_1 over all units, D_2 over sub-networks, and (2 D_1 - I) s."""

    first: Float[Tensor, "n km"]
    second: Float[Tensor, "n k"]
    side: Float[Tensor, "n km"]

    def of(self, rows: Tensor) -> "Gates":
        return Gates(self.first[rows], self.second[rows], self.side[rows])


@dataclass(frozen=True, eq=False)
class Form:
    """The objective of (11) and its gradient, from a batch of the n samples."""

    cells: SubNetworkGates
    beta: float
    lam: float
    mean: bool
    n: int

    def value(self, both: Both, gates: Gates, X: Float[Tensor, "n d"], y: Float[Tensor, "n 1"]) -> float:
        """The objective on all samples."""
        linear = X @ both
        inner = _inner(gates.first, linear, len(self.cells))
        loss = Squared().value(_outputs(inner, gates.second), y).sum() / (self.n if self.mean else 1)
        outside = -(linear * gates.side).clamp(max=0).sum() - (inner * (2 * gates.second - 1)).clamp(max=0).sum()
        return float(loss + self.beta * self._norms(both).sum() + self.lam * outside)

    def slope(self, both: Both, gates: Gates, X: Float[Tensor, "b d"], y: Float[Tensor, "b 1"]) -> Both:
        """The gradient, estimated from a batch; blocks that are zero add none of their norm's."""
        b, (K, m) = len(X), self.cells.signs.shape
        linear = X @ both
        inner, below = _inner(gates.first, linear, K), 2 * gates.second - 1
        lam, weight = self.lam * self.n / b, (1 if self.mean else self.n) / b
        residual = weight * Squared().grad(_outputs(inner, gates.second), y) * gates.second
        up = torch.stack([residual, -residual]) - lam * below * (inner * below < 0)
        back = (gates.first.view(b, K, m) * up[..., None]).flatten(2)
        wrong = linear.mul_(gates.side) < 0
        back.addcmul_(wrong, gates.side, value=-lam)
        norms = self._norms(both)
        share = torch.where(norms > _TINY, self.beta / norms.clamp(min=_TINY), 0.0)
        return (X.mT @ back).addcmul_(both, share.repeat_interleave(m, 1)[:, None])

    def _norms(self, both: Both) -> Float[Tensor, "2 k"]:
        """|z_k|_F and |z'_k|_F."""
        rows = torch.linalg.vector_norm(both.unflatten(2, self.cells.signs.shape), dim=3)
        return torch.linalg.vector_norm(rows, dim=1)


def gates_of(cells: SubNetworkGates, X: Float[Tensor, "n d"]) -> Gates:
    on, second = cells.activity(X)
    first = on.flatten(0, 1).T.to(X).contiguous()
    return Gates(first, second.T.to(X), (2 * first - 1) * cells.signs.to(X).flatten())


def _inner(first: Tensor, linear: Float[Tensor, "2 b km"], count: int) -> Float[Tensor, "2 b k"]:
    """sum_j D_1kj X z_kj."""
    return (first * linear).unflatten(2, (count, -1)).sum(3)


def _outputs(inner: Float[Tensor, "2 b k"], second: Float[Tensor, "b k"]) -> Matrix:
    return ((inner[0] - inner[1]) * second).sum(1, keepdim=True)
