"""The convex form of a layerwise stage, trained by SGD on its lifted variable (BM eq. 23, 130)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from bidual.architectures.modules.layerwise import GatedStage, Head, windows
from bidual.gauges import Nuclear
from bidual.training.layerwise.checkpoint import Settings
from bidual.training.layerwise.inputs import Inputs
from bidual.types import Blocks

DESIGN_BYTES = 2**28  # of the design that is made at once
_PROX_BYTES = 2**28  # of the blocks that are thresholded at once


def design(
    x: Float[Tensor, "n c h w"], on: Bool[Tensor, "n p h w"], kernel: int, grid: int
) -> Float[Tensor, "a n p q"]:
    """B_k^i = P_a D_k^(i) X_i by readout, image and gate, of the q = c kernel^2 + 1 entries of a patch and its bias."""
    patches = functional.pad(functional.unfold(x, kernel, padding=kernel // 2), (0, 0, 0, 1), value=1.0)
    maps = patches.unflatten(2, x.shape[2:])
    made = x.new_empty(grid**2, *on.shape[:2], patches.shape[1])
    for readout, at in zip(made, windows(x.shape[2:], grid), strict=True):
        active = on[:, :, *at].flatten(2).to(x.dtype)
        torch.bmm(active.div_(active.shape[2]), maps[:, :, *at].flatten(2).mT, out=readout)
    return made


@dataclass(frozen=True, eq=False)
class ConvexStage:
    r"""Predictions sum_k <P_a D_k X_i, Z_k> + bias.

    Attributes:
        stage: downsampling, standardisation and gates; its own filters take no part.
        Z: (a, P, h, c), so that predictions and gradients are products of two matrices for each readout.
        bias: (c,).
    """

    stage: GatedStage
    Z: nn.Parameter
    bias: nn.Parameter
    grid: int

    @classmethod
    def zero(cls, stage: GatedStage, grid: int, n_outputs: int) -> Self:
        """Z = 0, which predicts nothing."""
        like = stage.gate.weight
        Z = like.new_zeros(grid**2, stage.gates, like[0].numel() + 1, n_outputs)
        return cls(stage, nn.Parameter(Z), nn.Parameter(like.new_zeros(n_outputs)), grid)

    @property
    def lifted(self) -> Blocks:
        """Z_k as blocks (P, h, a c), columns by readout and output: a copy."""
        return self.Z.detach().permute(1, 2, 0, 3).flatten(2)

    def put(self, Z: Blocks) -> None:
        """Take over blocks (P, h, a c)."""
        self.Z.data.copy_(Z.unflatten(2, (len(self.Z), -1)).permute(2, 0, 1, 3))

    @property
    def at_once(self) -> int:
        """Images whose design is made at once."""
        return max(DESIGN_BYTES // (self.Z[..., 0].numel() * self.Z.element_size()), 1)

    def outputs(self, x: Tensor, on: Tensor) -> Float[Tensor, "n c"]:
        """Predictions for prepared inputs, given what is on."""
        parts = zip(x.split(self.at_once), on.split(self.at_once), strict=True)
        return torch.cat([self._outputs(self._design(*part)) for part in parts])

    @torch.no_grad()
    def slope(self, x: Tensor, on: Tensor, y: Int64[Tensor, " n"]) -> tuple[Tensor, Tensor]:
        """Leave the gradient of the mean cross-entropy in ``grad``; return the sum of losses, and of right answers.

        d/dZ_k = sum_i (B_k^i)^T r_i^T with r_i the slope of the loss. Images are independent of each other: the design
        of a few at a time is made once, used for predictions and gradient, and given up.
        """
        self.Z.grad, self.bias.grad = torch.zeros_like(self.Z), torch.zeros_like(self.bias)
        loss, hits = self.bias.new_zeros(()), y.new_zeros(())
        for part, active, labels in zip(*(t.split(self.at_once) for t in (x, on, y)), strict=True):
            B = self._design(part, active)
            logits = self._outputs(B)
            r = (logits.softmax(1) - functional.one_hot(labels, logits.shape[1])) / len(y)
            self._add_slope(B, r)
            loss += functional.cross_entropy(logits, labels, reduction="sum")
            hits += (logits.argmax(1) == labels).sum()
        return loss, hits

    def _design(self, x: Tensor, on: Tensor) -> Tensor:
        return design(x, on, self.stage.gate.kernel_size[0], self.grid)

    def _outputs(self, B: Tensor) -> Tensor:
        return torch.bmm(B.flatten(2), self.Z.flatten(1, 2)).sum(0) + self.bias

    def _add_slope(self, B: Tensor, r: Tensor) -> None:
        assert self.Z.grad is not None
        assert self.bias.grad is not None
        for grad, readout in zip(self.Z.grad.flatten(1, 2), B.flatten(2), strict=True):
            grad.addmm_(readout.T, r)
        self.bias.grad += r.sum(0)

    @torch.no_grad()
    def shrink(self, step: float) -> None:
        """The prox of step sum_k |Z_k|_*, through the Gram matrix of the short side of every block, some at a time."""
        some = max(_PROX_BYTES // (self.Z[:, 0].numel() * self.Z.element_size()), 1)
        for blocks in self.Z.data.split(some, dim=1):
            Z = Nuclear().prox(blocks.permute(1, 2, 0, 3).flatten(2), step)
            blocks.copy_(Z.unflatten(2, (len(blocks), -1)).permute(2, 0, 1, 3))


@dataclass(frozen=True, eq=False)
class ConvexDescent:
    """SGD with momentum on mean cross-entropy + weight_decay sum_k |Z_k|_*: a step on the loss, then the prox.

    BM eq. (23) with beta = n weight_decay, as a sum over n samples. Momentum adds up to 1 / (1 - momentum) gradients a
    step, and the prox has to shrink by as much. Without ``prox`` the nuclear norm is left out.
    """

    model: ConvexStage
    inputs: Inputs
    labels: Tensor
    settings: Settings
    prox: bool = True

    def optimiser(self, rate: float) -> torch.optim.SGD:
        return torch.optim.SGD([self.model.Z, self.model.bias], lr=rate, momentum=self.settings.momentum)

    def epoch(self, optimiser: torch.optim.SGD, generator: torch.Generator) -> tuple[float, float]:
        """Mean loss and accuracy of one pass in random order."""
        losses, hits = zip(*self._steps(optimiser, generator), strict=True)
        n = len(self.labels)
        return float(torch.stack(losses).sum()) / n, float(torch.stack(hits).sum()) / n

    def _steps(self, optimiser: torch.optim.SGD, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        rate = optimiser.param_groups[0]["lr"] / (1 - self.settings.momentum)
        for rows in torch.randperm(len(self.labels), generator=generator).split(self.settings.batch_size):
            x, on = self.inputs.batch(rows, generator)
            optimiser.zero_grad(set_to_none=True)
            yield self.model.slope(x, on, self.labels[rows.to(self.labels.device)])
            optimiser.step()
            if self.prox:
                self.model.shrink(rate * self.settings.weight_decay)


class LiftedHead(Head):
    """The fixed head that makes a stage of a c filters a gate the convex form: filter (readout, output) of a gate is
    pooled at its own readout only, and added to its own output. The linear layer's weight takes no part."""

    def of_pooled(self, x: Float[Tensor, "n a*c*p*a"]) -> Float[Tensor, "n c"]:
        a = self.grid**2
        own = x.unflatten(1, (a, self.output.out_features, -1, a)).diagonal(dim1=1, dim2=4)
        return own.sum((2, 3)) + self.output.bias


def load_filters(stage: GatedStage, Z: Blocks) -> None:
    """Make the a c filters of every gate the columns of Z_k: the stage then hands on {D_k X_i Z_k^(c')} (BM 4.2)."""
    weight, bias = stage.hidden.weight, stage.hidden.bias
    assert bias is not None
    filters = Z.permute(2, 0, 1).flatten(0, 1)  # (a c P, h)
    weight.data.copy_(filters[:, :-1].reshape(weight.shape))
    bias.data.copy_(filters[:, -1])
