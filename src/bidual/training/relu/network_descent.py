r"""Descent on a ReLU network itself: its neurons turn, where a master problem only weighs them.

The training objective in its balanced form, with |u_j| = |w_j| (CP eq. 4):

    F(sum_j (X u_j)_+ w_j^T + b) + beta / 2 sum_j (|u_j|^2 + |w_j|^2).

It is not convex, and where optimal neurons lie on borders of activation patterns a descent stops short of them, by some
per cent; columns and their master problem do the rest. From a wide random network it is the quickest start.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from bidual.numerics.lbfgs import minimise
from bidual.numerics.norms import L2
from bidual.polar import Neurons
from bidual.problems.problem import ReluProblem
from bidual.types import Blocks

_MEMORY = 20  # pairs of L-BFGS
_GAIN = 1e-6  # a descent ends where ten steps gain less than ten times this share
_ALIKE, _SAME_OUTPUT = 1e-4, 0.99  # neurons with cosines above 1 - the first, outputs above the second, are merged
_FAINT = 0.1  # of the slopes at the zero network, how large the predictions of a random network are
_WORSE = 2.0  # times the loss of the zero network, what a random one may have
_TINY = 1e-300


class Network(NamedTuple):
    """Neurons of length one with their output weights."""

    neurons: Neurons
    Z: Blocks


class _Objective:
    """Value and slope in one vector: neurons, output weights, and intercepts if there are any."""

    def __init__(self, problem: ReluProblem, shape: torch.Size) -> None:
        self.problem, self.shape = problem, shape
        self.sizes = [shape[0] * problem.X.shape[1], shape.numel(), shape[2] * problem.datafit.intercept]

    def unpack(self, x: Tensor) -> tuple[Neurons, Blocks, Tensor]:
        U, Z, b = x.split(self.sizes)
        return U.view(self.shape[0], -1), Z.view(self.shape), b if len(b) else x.new_zeros(self.shape[2])

    def __call__(self, x: Tensor) -> tuple[float, Tensor]:
        fit, beta, readout = self.problem.datafit, self.problem.beta, self.problem.readout
        U, Z, b = self.unpack(x)
        hidden = (self.problem.X @ U.T).clamp(min=0)
        features = hidden if readout is None else readout.pool(hidden).flatten(1)
        P = features @ Z.flatten(0, 1)
        V = fit.weights * fit.loss.grad(P + b, fit.targets)
        on_hidden = (V if readout is None else readout.spread(V)) @ Z.flatten(1).T
        on_U = (on_hidden * (hidden > 0)).T @ self.problem.X
        weights = x[: self.sizes[0] + self.sizes[1]]
        slope = torch.cat([on_U.reshape(-1), (features.T @ V).reshape(-1)]).add_(weights, alpha=beta)
        value = fit.value_at(P, b) + 0.5 * beta * float(weights @ weights)
        return value, torch.cat([slope, V.sum(0)]) if self.sizes[2] else slope


def descended(problem: ReluProblem, network: Network, steps: int, go_on: Callable[[], bool] = lambda: True) -> Network:
    """The network after at most so many steps of L-BFGS, for a smooth loss."""
    objective = _Objective(problem, network.Z.shape)
    x = minimise(
        objective, _packed(problem, network), steps, tol=_GAIN, memory=_MEMORY, go_on=go_on, pairs=torch.float32
    )
    U, Z, _ = objective.unpack(x)
    lengths = torch.linalg.vector_norm(U, dim=1)
    alive = lengths > 0
    return Network(U[alive] / lengths[alive, None], Z[alive] * lengths[alive, None, None])


def _packed(problem: ReluProblem, network: Network) -> Tensor:
    """Balanced: neurons and their output weights are equally long."""
    U, Z = L2.unit(network.neurons), network.Z
    root = torch.linalg.vector_norm(Z, dim=(1, 2)).clamp(min=_TINY).sqrt()
    b = (
        problem.datafit.offset(problem.restricted_to(U).operator.forward(Z))
        if problem.datafit.intercept
        else Z[:0, 0, 0]
    )
    return torch.cat([(root[:, None] * U).reshape(-1), (Z / root[:, None, None]).reshape(-1), b])


def wide_network(problem: ReluProblem, width: int, seed: int) -> Network:
    """Random directions with random output weights, whose predictions are small."""
    generator = torch.Generator().manual_seed(seed)
    spread = problem.X.square().mean(0).sqrt()
    U = torch.randn(width, len(spread), generator=generator, dtype=torch.float64).to(problem.X)
    U = L2.unit(torch.where(spread > 0, U / spread.clamp(min=_TINY), 0.0))
    operator = problem.restricted_to(U).operator
    Z = torch.randn(operator.block_shape, generator=generator, dtype=torch.float64).to(problem.X)
    sizes = (torch.linalg.vector_norm(M) for M in (problem.dual_at_zero, operator.forward(Z)))
    slopes, predictions = (float(size) for size in sizes)
    Z = _FAINT * slopes / max(predictions, _TINY) * Z
    most = _WORSE * problem.datafit.value(torch.zeros_like(problem.datafit.targets))
    while not problem.datafit.value(operator.forward(Z)) <= most and bool(Z.any()):
        Z = Z / 2  # slopes of counts are no measure of their logarithms
    return Network(U, Z)


def merged(network: Network, alike: float = _ALIKE) -> Network:
    """Near-copies become one neuron, in the direction of their weighted sum; the heaviest ones gather first."""
    sizes = torch.linalg.vector_norm(network.Z, dim=(1, 2))
    order = sizes.argsort(descending=True)
    U, Z, sizes = network.neurons[order], network.Z[order], sizes[order]
    outputs = L2.unit(Z.flatten(1))
    free, found = torch.ones(len(U), dtype=torch.bool, device=U.device), []
    for j in range(len(U)):
        if bool(free[j]):
            near = free & (U @ U[j] > 1 - alike) & (outputs @ outputs[j] > _SAME_OUTPUT)
            near[j] = True
            free &= ~near
            found.append(near)
    groups = torch.stack(found).to(U) if found else U.new_zeros(0, len(U))
    return Network(L2.unit(groups @ (sizes[:, None] * U)), (groups @ Z.flatten(1)).reshape(-1, *Z.shape[1:]))


def value(problem: ReluProblem, network: Network) -> float:
    """The objective of a network."""
    return problem.restricted_to(network.neurons).primal(network.Z)
