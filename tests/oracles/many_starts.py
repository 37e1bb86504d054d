"""Non-convex training of networks as anybody would write them, with Adam, from many starts at once."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

Predict = Callable[[Tensor, Tensor], Tensor]
Activation = Callable[[Tensor], Tensor]


def relu(H: Tensor) -> Tensor:
    return H.clamp(min=0)


def identity(H: Tensor) -> Tensor:
    return H


def convolutional(X: Tensor, P: Tensor, activation: Activation) -> Predict:
    """sum_j V_j P_a act(x * u_j) for filters U (starts, m, channels, k) and V (starts, m, a, c)."""

    def predict(U: Tensor, V: Tensor) -> Tensor:
        seen = functional.conv1d(X, U.flatten(0, 1)).unflatten(1, U.shape[:2])
        return torch.einsum("ismk,ak,smac->sic", activation(seen), P, V)

    return predict


def attentive(X: Tensor, average: bool, activation: Activation) -> Predict:
    """sum_j act(X_i U_j X_i^T) X_i V_j for heads U (starts, m, d, d) and V (starts, m, d, c)."""

    def predict(U: Tensor, V: Tensor) -> Tensor:
        scores = torch.einsum("ipd,smde,iqe->ismpq", X, U, X)
        outputs = torch.einsum("ismpq,iqd,smdc->sipc", activation(scores), X, V)
        return outputs.mean(2) if average else outputs.flatten(1, 2)

    return predict


def convolution_gates(X: Tensor, gates: Tensor, m: int) -> Activation:
    """Gates (h, P) with m filters each: what filter j sees counts where gate j // m is on."""
    on = functional.conv1d(X, gates.T[:, None]) >= 0
    return lambda H: H * on.repeat_interleave(m, 1)[:, None].to(H)


def attention_gates(X: Tensor, gates: Tensor, m: int) -> Activation:
    """Gates (d^2, P), matrices stacked by columns, with m heads each."""
    d = X.shape[2]
    matrices = torch.stack([gate.reshape(d, d).T for gate in gates.T])
    on = torch.einsum("ipd,kde,iqe->ikpq", X, matrices, X) >= 0
    return lambda H: H * on.repeat_interleave(m, 1)[:, None].to(H)


def squared(P: Tensor, Y: Tensor) -> Tensor:
    return 0.5 * (P - Y).square().sum((1, 2))


def cross_entropy(P: Tensor, Y: Tensor) -> Tensor:
    return -(Y * P.log_softmax(2)).sum((1, 2))


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"squared": squared, "softmax": cross_entropy}


def lowest_objectives(
    predict: Predict,
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    Y: Tensor,
    beta: float,
    loss: str = "squared",
    *,
    starts: int = 20,
    steps: int = 400,
    rate: float = 0.05,
) -> Tensor:
    """The least loss + beta/2 |weights|^2 that each start saw, with a learning rate that falls to zero."""
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(starts, *shape, generator=generator, dtype=torch.float64) for shape in shapes]
    weights = [(0.5 * w).requires_grad_() for w in weights]
    optimiser = torch.optim.Adam(weights, lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    lowest = torch.full((starts,), torch.inf, dtype=torch.float64)
    for _ in range(steps):
        price = sum(w.flatten(1).square().sum(1) for w in weights)
        values = LOSSES[loss](predict(*weights), Y) + 0.5 * beta * price
        lowest = torch.minimum(lowest, values.detach())
        optimiser.zero_grad()
        values.sum().backward()
        optimiser.step()
        schedule.step()
    return lowest
