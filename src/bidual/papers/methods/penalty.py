"""The program for given gates with its constraints as penalties, for torch optimisers (PR eq. 11)."""

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Optimizer

from bidual.architectures.gated_parallel import SubNetworkGates
from bidual.architectures.modules.parallel import activity
from bidual.losses import Loss
from bidual.types import Blocks, Matrix

Optimisers = Callable[[Iterator[nn.Parameter]], Optimizer]
OnEpoch = Callable[[int, "PenaltyForm"], None]


class PenaltyForm(nn.Module):
    r"""min over z, z' of L(A (z - z')) + beta (|z|_F,1 + |z'|_F,1) + lambda (h_C(z) + h_C(z')) (PR eq. 11), where

        A z = sum_k D_2k sum_j D_1kj X z_kj,   |z|_F,1 = sum_k |z_k|_F,
        h_C(z) = sum_kj 1^T (-(2 D_1kj - I) X s_kj z_kj)_+ + sum_k 1^T (-(2 D_2k - I) sum_j D_1kj X z_kj)_+.

    z_kj = s_kj w_kj has the sign of the second-layer weight in it. The printed h_C has the signs in its second term
    instead of its first, and beta is for m_2 = 1. L and h_C are sums over samples. With several outputs every column
    of z is held to the cone; the norm is over all columns at once, at most the path norm of the networks they are.

    Without lambda it is the gated model (:class:`bidual.architectures.GatedParallel`), since |z| + |z'| >= |z - z'|
    with equality at z' = 0. With lambda large enough it is the constrained program; no rule for how large is known.
    """

    def __init__(self, gates: SubNetworkGates, loss: Loss, beta: float, lam: float, n_outputs: int = 1) -> None:
        super().__init__()
        if not beta > 0 or not lam >= 0:
            raise ValueError(f"beta must be positive and lambda not negative, got {beta} and {lam}.")
        if n_outputs < 1:
            raise ValueError(f"n_outputs must be at least 1, got {n_outputs}.")
        self.loss, self.beta, self.lam = loss, beta, lam
        self.gates: Tensor
        self.signs: Tensor
        self.register_buffer("gates", gates.weights.detach().clone())
        self.register_buffer("signs", gates.signs.detach().clone())
        k, d, m = gates.weights.shape
        shape = (2, k, m, d, n_outputs)  # z, then z'
        self.both = nn.Parameter(torch.zeros(shape, dtype=gates.weights.dtype, device=gates.weights.device))

    @property
    def lifted(self) -> Blocks:
        """z - z' as the variable of :meth:`bidual.architectures.GatedParallel.lift`."""
        return (self.both[0] - self.both[1]).detach().flatten(1, 2)

    def forward(self, x: Float[Tensor, "b d"]) -> Matrix:
        """A (z - z')."""
        first, second = activity(x, self.gates, self.signs)
        inner = (first[..., None] * (x @ (self.both[0] - self.both[1]))).sum(1)
        return (second[..., None] * inner).sum(0)

    def price(self) -> Float[Tensor, ""]:
        """beta (|z|_F,1 + |z'|_F,1)."""
        return self.beta * torch.linalg.vector_norm(self.both.flatten(2), dim=2).sum()

    def sums(self, x: Float[Tensor, "b d"], y: Matrix) -> Float[Tensor, ""]:
        """The part that is a sum over samples: L + lambda (h_C(z) + h_C(z'))."""
        first, second = activity(x, self.gates, self.signs)
        linear = x @ self.both  # (2, K, m, b, c)
        inner = (first[..., None] * linear).sum(2)
        outputs = second[..., None] * inner
        data = self.loss.value((outputs[0] - outputs[1]).sum(0), y).sum()
        if self.lam == 0:
            return data
        outside = torch.relu(-_side(first) * self.signs[:, :, None, None] * linear).sum()
        return data + self.lam * (outside + torch.relu(-_side(second) * inner).sum())

    def objective(self, x: Float[Tensor, "b d"], y: Matrix, share: float = 1.0) -> Float[Tensor, ""]:
        """The objective, estimated from a batch x that is ``share`` of all samples."""
        return self.sums(x, y) / share + self.price()

    def value(self, X: Float[Tensor, "n d"], Y: Matrix, batch_size: int = 1024) -> float:
        """The objective on all samples, a batch at a time and without gradients."""
        with torch.no_grad():
            parts = [self.sums(x, y) for x, y in zip(X.split(batch_size), Y.split(batch_size), strict=True)]
            return float(sum(parts, self.price()))


def train(
    form: PenaltyForm,
    X: Float[Tensor, "n d"],
    Y: Matrix,
    optimiser: Optimisers,
    *,
    epochs: int,
    batch_size: int | None = None,
    generator: torch.Generator | None = None,
    on_epoch: OnEpoch | None = None,
) -> PenaltyForm:
    """Descend on the objective with any optimiser of torch, in place.

    Args:
        optimiser: makes the optimiser from the parameters, like ``lambda p: torch.optim.Adam(p, lr=1e-3)``. The
            objective is a sum over samples, and learning rates are for that.
        epochs: passes over the samples.
        batch_size: all samples at once if None.
        generator: of the order of the samples; the order they come in if None.
        on_epoch: called after every epoch with its number, from 1 on.
    """
    n = len(X)
    if Y.ndim != 2 or len(Y) != n or not n:
        raise ValueError(f"targets must have shape (n, c) with one row per sample ({n}), got {tuple(Y.shape)}.")
    if epochs < 1 or (batch_size is not None and batch_size < 1):
        raise ValueError(f"epochs and batch_size must be at least 1, got {epochs} and {batch_size}.")
    X, Y = X.to(form.both), Y.to(form.both)
    stepper = optimiser(form.parameters())
    for epoch in range(1, epochs + 1):
        order = torch.arange(n) if generator is None else torch.randperm(n, generator=generator)
        for rows in order.to(X.device).split(n if batch_size is None else batch_size):
            _step(form, stepper, X[rows], Y[rows], len(rows) / n)
        if on_epoch is not None:
            on_epoch(epoch, form)
    return form


def _step(form: PenaltyForm, stepper: Optimizer, x: Tensor, y: Tensor, share: float) -> None:
    def closure() -> float:
        stepper.zero_grad()
        objective = form.objective(x, y, share)
        objective.backward()
        return float(objective.detach())

    stepper.step(closure)


def _side(on: Tensor) -> Tensor:
    """2 D - I as a column per output."""
    return (2.0 * on - 1.0)[..., None]
