"""Full-batch gradient descent on two-layer ReLU networks, as CP A.1 describes it."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class DescentRun:
    """Objectives of several trials, recorded every ``every`` epochs, and the first step size that did not diverge."""

    objective: Float[Tensor, "t e"]
    every: int
    step: float

    @property
    def final(self) -> Float[Tensor, " t"]:
        return self.objective[:, -1]


@dataclass
class _Networks:
    """Neurons (t, m, d) and output weights (t, m, c) of several trials, with their momenta."""

    U: Tensor
    W: Tensor
    dU: Tensor
    dW: Tensor


@dataclass(frozen=True)
class GradientDescent:
    """Momentum 0.95, Kaiming uniform initialisation, the largest stable step, halved where the loss has a plateau.

    Attributes:
        patience: epochs without a relative improvement of ``plateau`` after which a trial's step is halved.
        steps: step sizes to try, largest first; the first at which no trial diverges is used.
    """

    n_neurons: int
    epochs: int = 20_000
    momentum: float = 0.95
    patience: int = 200
    plateau: float = 1e-4
    steps: tuple[float, ...] = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 4e-5)

    def run(self, X: Float[Tensor, "n d"], Y: Float[Tensor, "n c"], beta: float, seeds: tuple[int, ...]) -> DescentRun:
        """Minimise 1/2 |f(X) - Y|^2 + beta/2 (|U|^2 + |W|^2) from one start per seed."""
        for step in self.steps:
            record = self._descend(X, Y, beta, self._start(X, Y, seeds), step)
            if record is not None:
                return DescentRun(record, self._every, step)
        raise FloatingPointError(f"gradient descent diverges at every step size of {self.steps}; add smaller ones.")

    @property
    def _every(self) -> int:
        return max(1, self.epochs // 400)

    def _start(self, X: Tensor, Y: Tensor, seeds: tuple[int, ...]) -> _Networks:
        """torch's own initialisation of linear layers: uniform in +- 1 / sqrt(inputs)."""
        U: list[Tensor] = []
        W: list[Tensor] = []
        for seed in seeds:
            generator = torch.Generator().manual_seed(seed)
            for kept, width, inputs in ((U, X.shape[1], X.shape[1]), (W, Y.shape[1], self.n_neurons)):
                drawn = torch.rand(self.n_neurons, width, generator=generator, dtype=torch.float64)
                kept.append((2 * drawn - 1).to(X) / inputs**0.5)
        first, second = torch.stack(U), torch.stack(W)
        return _Networks(first, second, torch.zeros_like(first), torch.zeros_like(second))

    def _descend(self, X: Tensor, Y: Tensor, beta: float, nets: _Networks, step: float) -> Tensor | None:
        """Objectives every few epochs; None if a trial diverges."""
        rate = X.new_full((len(nets.U), 1, 1), step)
        best, waited, record = X.new_full((len(nets.U),), torch.inf), torch.zeros(len(nets.U)).to(X), []
        for epoch in range(self.epochs + 1):
            value, gU, gW = _slope(X, Y, beta, nets)
            if epoch == 0:
                first = value
            if not bool((value <= 10 * first).all()):  # NaN included
                return None
            if epoch % self._every == 0:
                record.append(value)
            improved = value < best * (1 - self.plateau)
            best, waited = torch.where(improved, value, best), torch.where(improved, 0, waited + 1)
            tired = waited > self.patience
            rate, waited = torch.where(tired[:, None, None], rate / 2, rate), torch.where(tired, 0, waited)
            nets.dU, nets.dW = self.momentum * nets.dU - rate * gU, self.momentum * nets.dW - rate * gW
            nets.U, nets.W = nets.U + nets.dU, nets.W + nets.dW
        return torch.stack(record, 1)


def _slope(X: Tensor, Y: Tensor, beta: float, nets: _Networks) -> tuple[Tensor, Tensor, Tensor]:
    """The objective of every trial and its gradients."""
    hidden = (X @ nets.U.mT).clamp(min=0)
    residual = hidden @ nets.W - Y
    decay = nets.U.square().sum((1, 2)) + nets.W.square().sum((1, 2))
    value = 0.5 * residual.square().sum((1, 2)) + 0.5 * beta * decay
    back = (residual @ nets.W.mT) * (hidden > 0)
    return value, back.mT @ X + beta * nets.U, hidden.mT @ residual + beta * nets.W
