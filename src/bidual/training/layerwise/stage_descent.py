"""SGD on one stage and its head."""

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional

from bidual.architectures.modules.layerwise import GatedStage, Head
from bidual.runtime.ranks import ALONE, Ranks
from bidual.training.layerwise.checkpoint import RATES, Settings
from bidual.training.layerwise.inputs import Inputs


class _Joined(nn.Module):
    """A stage and its head as one module, from inputs and gates to outputs."""

    def __init__(self, stage: GatedStage, head: Head) -> None:
        super().__init__()
        self.stage, self.head = stage, head

    def forward(self, x: Tensor, on: Tensor) -> Tensor:
        return self.head.of_pooled(self.stage.pooled(x, on, self.head.grid))


@dataclass(frozen=True, eq=False)
class StageDescent:
    r"""Minimises mean cross-entropy + 1/2 weight_decay (|U|^2 + |V|^2) over filters U and head V (BM eq. 126).

    By BM Lemma 3.1 that is the convex program (23) with beta = n weight_decay, as a sum over n samples, restricted to m
    filters per gate. ``class_weights`` multiply the losses of classes in both. Ranks take shares of the same batches
    and add up their gradients, so that the steps are those of one process up to rounding.
    """

    stage: GatedStage
    head: Head
    inputs: Inputs
    labels: Tensor
    settings: Settings
    ranks: Ranks = ALONE
    class_weights: Tensor | None = None

    def optimiser(self, rate: float) -> torch.optim.SGD:
        """Weight decay on everything but the bias of the output, which has no price in the convex program."""
        free = [self.head.output.bias]
        priced = [*self.stage.hidden.parameters(), self.head.output.weight]
        groups = [
            {"params": priced, "weight_decay": self.settings.weight_decay},
            {"params": free, "weight_decay": 0.0},
        ]
        return torch.optim.SGD(groups, lr=rate, momentum=self.settings.momentum)

    def epoch(self, optimiser: torch.optim.SGD, generator: torch.Generator) -> tuple[float, float]:
        """Mean loss and accuracy of one pass in random order."""
        parts = zip(*self._steps(optimiser, generator), strict=True)
        sums = torch.stack([torch.stack(part).double().sum() for part in parts])
        loss, accuracy = (self.ranks.total(sums) / len(self.labels)).tolist()
        return loss, accuracy

    def best_rate(self, generator: torch.Generator) -> float:
        """The rate of least mean loss over the second half of a few batches, all from the same start."""
        start, seed = copy.deepcopy(self._joined.state_dict()), generator.get_state()
        found = {}
        for rate in RATES:
            generator.set_state(seed)
            found[rate] = self._try(rate, generator)
            self._joined.load_state_dict(start)
        generator.set_state(seed)
        finite = {rate: loss for rate, loss in found.items() if math.isfinite(loss)}
        if not finite:
            raise FloatingPointError(f"training diverges at every learning rate of {RATES}; scale the images.")
        return min(finite, key=finite.__getitem__)

    def _try(self, rate: float, generator: torch.Generator) -> float:
        """The sum of losses per image over the second half of the batches, in as many passes as they take."""
        optimiser = self.optimiser(rate)
        losses: list[float] = []
        while len(losses) < self.settings.trial:
            for loss, _ in self._steps(optimiser, generator):
                losses.append(float(self.ranks.total(loss)) / self.settings.batch_size)
                if len(losses) == self.settings.trial or not math.isfinite(losses[-1]):
                    return sum(losses[len(losses) // 2 :])
        return math.nan

    def _steps(self, optimiser: torch.optim.SGD, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """The sums of losses and of correct predictions over a rank's share of every batch."""
        scaler = torch.amp.GradScaler(self.labels.device.type, enabled=self._half is torch.float16)
        model = self.ranks.parallel(self._joined)
        order = torch.randperm(len(self.labels), generator=generator)
        for rows in order.split(self.settings.batch_size):
            x, on = self.inputs.batch(rows, generator)
            y = self.labels[self.inputs.own(rows).to(self.labels.device)]
            # ranks agree here because torch orders gradients anew in a second step
            with self.ranks.communicating("agreeing on gradients"), self._mixed():
                logits = model(x, on)
                full = logits.to(torch.promote_types(logits.dtype, torch.float32))
                weights = None if self.class_weights is None else self.class_weights.to(full)
                loss = functional.cross_entropy(full, y, weights, reduction="sum")
            optimiser.zero_grad(set_to_none=True)
            mean = loss * self.ranks.size / len(rows)  # its mean over ranks, which gradients are of, is sum / |rows|
            with self.ranks.communicating("adding gradients"):
                scaler.scale(mean).backward()
            scaler.step(optimiser)
            scaler.update()
            yield loss.detach(), (logits.detach().argmax(1) == y).sum()

    @property
    def _half(self) -> torch.dtype | None:
        """Half precision on a GPU; a CPU is faster in single precision."""
        if self.labels.device.type != "cuda":
            return None
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16

    def _mixed(self) -> torch.autocast:
        return torch.autocast("cuda", dtype=self._half, enabled=self._half is not None)

    @cached_property
    def _joined(self) -> _Joined:
        return _Joined(self.stage, self.head)


def momentum_of(optimiser: torch.optim.SGD) -> tuple[Tensor, ...]:
    """The momentum buffers in the order of the parameters; none without momentum."""
    if not optimiser.param_groups[0]["momentum"]:
        return ()
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    return tuple(optimiser.state[p]["momentum_buffer"].detach().clone() for p in parameters)


def set_momentum(optimiser: torch.optim.SGD, momentum: tuple[Tensor, ...]) -> None:
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    for parameter, value in zip(parameters, momentum, strict=True):
        optimiser.state[parameter]["momentum_buffer"] = value.to(parameter)
