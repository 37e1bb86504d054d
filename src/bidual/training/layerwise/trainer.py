"""Layerwise training: train a stage, freeze it, train the next on its channels (BM 4.2, C.2; PR Fig. 6).

It has a loop of its own: epochs of stochastic descent on a growing network, with no certificate until a stage is done.
"""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from bidual.architectures.modules.layerwise import GatedStage, Head, LayerwiseNetwork
from bidual.runtime.ranks import ALONE, Ranks
from bidual.training.layerwise.checkpoint import Checkpoint, EpochRecord, Settings, differences, fingerprint
from bidual.training.layerwise.inputs import KeptInputs, as_input, inputs_of
from bidual.training.layerwise.stage_descent import StageDescent, momentum_of, set_momentum

_MEASURED = 2000  # images that the standardisation of a stage is measured on

OnEpoch = Callable[[EpochRecord], None]
OnStage = Callable[[int, LayerwiseNetwork], None]


@dataclass(frozen=True, eq=False)
class LayerwiseResult:
    """A trained network.

    Attributes:
        history: one record per epoch.
        rates: the learning rate of every stage.
        reason: why training ended early; empty if it did not.
    """

    network: LayerwiseNetwork
    history: tuple[EpochRecord, ...]
    rates: tuple[float, ...]
    reason: str = ""


@dataclass(frozen=True, eq=False)
class LayerwiseTrainer:
    """Trains one network.

    Attributes:
        images: (n, channels, height, width), of any dtype.
        labels: (n,), from 0 on.
        device: of the network; with several ranks each has its own.
        folder: of the checkpoint that is written after every epoch; None for no checkpoint.
        on_epoch: is called with the record of every epoch.
        on_stage: is called after every stage with the number of stages and the network.
        ranks: the processes that share every batch, each with all images. Only rank 0 writes and calls back; all
            return the same network.
        class_weights: (n_classes,), what the losses of a class are multiplied with; None for ones.
    """

    settings: Settings
    images: Tensor
    labels: Tensor
    n_classes: int
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    folder: Path | None = None
    on_epoch: OnEpoch | None = None
    on_stage: OnStage | None = None
    ranks: Ranks = ALONE
    class_weights: Tensor | None = None

    @cached_property
    def configuration(self) -> dict[str, Any]:
        """Settings and data; a checkpoint is resumed only if its own are the same."""
        weights = {} if self.class_weights is None else {"class_weights": self.class_weights.tolist()}
        return self.settings.to_json() | {"classes": self.n_classes} | weights | fingerprint(self.images, self.labels)

    def watched(self, on_epoch: OnEpoch | None, folder: Path | None) -> Self:
        """The same training with another callback and folder."""
        return replace(self, on_epoch=on_epoch, folder=folder)

    def run(self, resume: Checkpoint | None = None) -> LayerwiseResult:
        """Train all stages, from the beginning or from a checkpoint.

        Ctrl-C, and a stage after the first that diverges, end it with the best network so far.
        """
        self._check_ranks()
        state = _State(self, resume)
        try:
            while state.stage < self.settings.n_stages:
                self._train_stage(state)
                if self.on_stage is not None and self.ranks.leads:
                    self.on_stage(state.stage, state.network)
        except (KeyboardInterrupt, FloatingPointError) as error:
            if not state.history or (state.stage == 0 and isinstance(error, FloatingPointError)):
                raise
            network, reason = state.best(), str(error) or "interrupted"
            return LayerwiseResult(network, tuple(state.history), tuple(state.rates[: len(network.stages)]), reason)
        return LayerwiseResult(state.network.eval(), tuple(state.history), tuple(state.rates))

    def _check_ranks(self) -> None:
        """All ranks must have the same images and settings, and a share of every batch."""
        if self.ranks.size == 1:
            return
        found = self.ranks.collect(self.configuration)
        self.ranks.together(lambda: self._compare(found))

    def _compare(self, found: Sequence[dict[str, Any]]) -> None:
        least = min(len(self.images), self.settings.batch_size)
        if least < len(found):
            raise ValueError(f"{len(found)} ranks cannot share batches of {least} images; start at most {least}.")
        for rank, other in enumerate(found):
            if differs := differences(found[0], other):
                raise ValueError(f"rank {rank} has other images or settings than rank 0: {differs}; give all the same.")

    def _train_stage(self, state: "_State") -> None:
        if not state.begun:
            self._begin(state)
        descent = self._descent(state)
        if len(state.rates) == state.stage:
            given = self.settings.rates
            state.rates.append(descent.best_rate(state.generator) if given is None else given[state.stage])
        optimiser = descent.optimiser(state.rates[-1])
        if state.momentum:
            set_momentum(optimiser, state.momentum)
        for epoch in range(state.epoch, self.settings.epochs):
            self._epoch(state, descent, optimiser, epoch)
        state.finish()

    def _epoch(self, state: "_State", descent: StageDescent, optimiser: torch.optim.SGD, epoch: int) -> None:
        began, rate = time.perf_counter(), self.settings.rate_at(state.rates[-1], epoch)
        for group in optimiser.param_groups:
            group["lr"] = rate
        loss, accuracy = descent.epoch(optimiser, state.generator)
        if not (math.isfinite(loss) and _all_finite(descent)):
            raise FloatingPointError(
                f"stage {state.stage + 1} diverges at learning rate {rate:g}; give a smaller one, or 'auto'."
            )
        record = EpochRecord(state.stage + 1, epoch + 1, rate, loss, accuracy, time.perf_counter() - began)
        state.keep(record, momentum_of(optimiser))
        if not self.ranks.leads:
            return
        if self.folder is not None:
            state.checkpoint().write(self.folder)
        if self.on_epoch is not None:
            self.on_epoch(record)

    def _begin(self, state: "_State") -> None:
        """Append a stage with its gates, its start, and the standardisation of its inputs."""
        state.append()
        stage, head = state.last
        frozen = state.frozen()
        measured = torch.randperm(len(self.images), generator=state.generator)[:_MEASURED]
        rows = measured[self.ranks.part(len(measured))]
        with torch.no_grad():
            parts = (stage.spread(frozen(as_input(self.images[some], self.device))) for some in rows.split(100))
            standardise(stage, parts, self.ranks)
            draw(stage, head, state.generator)

    def _descent(self, state: "_State") -> StageDescent:
        stage, head = state.last
        inputs = inputs_of(self.images, state.frozen(), stage, self.settings, self.device, self.ranks, state.kept)
        state.kept = isinstance(inputs, KeptInputs)
        labels = self.labels.to(self.device)
        return StageDescent(stage, head, inputs, labels, self.settings, self.ranks, self.class_weights)


class _State:
    """Resumable training state."""

    def __init__(self, trainer: LayerwiseTrainer, resume: Checkpoint | None) -> None:
        self.trainer, self.generator = trainer, torch.Generator().manual_seed(trainer.settings.seed)
        self.history: list[EpochRecord] = []
        self.rates: list[float] = []
        self.momentum: tuple[Tensor, ...] = ()
        self.stage = self.epoch = 0
        self.begun = False
        self.kept: bool | None = None
        self.network = self._network(0)
        self.saved: dict[str, Tensor] = {}
        if resume is not None:
            self._resume(resume)

    def _resume(self, checkpoint: Checkpoint) -> None:
        self.history, self.rates = list(checkpoint.history), list(checkpoint.rates)
        self.network = self._network(checkpoint.stage)
        self.network.load_state_dict(checkpoint.network)
        self.generator.set_state(checkpoint.generator)
        self.stage, self.epoch, self.begun = checkpoint.stage - 1, checkpoint.epoch, True
        self.momentum, self.saved, self.kept = checkpoint.momentum, checkpoint.network, checkpoint.kept
        if self.epoch == self.trainer.settings.epochs:
            self.finish()

    def _network(self, count: int) -> LayerwiseNetwork:
        trainer = self.trainer
        sizes = trainer.settings.sizes(trainer.images.shape[1], trainer.n_classes, count)
        return LayerwiseNetwork(**sizes).to(trainer.device)

    @property
    def last(self) -> tuple[GatedStage, Head]:
        return self.network.stages.last, self.network.heads.last

    def frozen(self) -> Callable[[Tensor], Tensor]:
        """The stages before the last."""
        return nn.Sequential(*list(self.network.stages)[:-1])

    def append(self) -> None:
        """Add a stage of zeros; freeze those before it."""
        grown = self._network(self.stage + 1)
        grown.load_state_dict(self.network.state_dict(), strict=False)
        self.network, self.begun = grown, True
        for stage in list(grown.stages)[:-1]:
            stage.requires_grad_(False)

    def keep(self, record: EpochRecord, momentum: tuple[Tensor, ...]) -> None:
        """Store the state after an epoch; the history grows last, so that an interrupt leaves it consistent."""
        saved = {name: value.detach().clone() for name, value in self.network.state_dict().items()}
        self.saved, self.momentum, self.epoch = saved, momentum, record.epoch
        self.history.append(record)

    def finish(self) -> None:
        self.stage, self.epoch, self.begun, self.momentum, self.kept = self.stage + 1, 0, False, (), None

    def checkpoint(self) -> Checkpoint:
        past = self.trainer.configuration, tuple(self.rates), tuple(self.history)
        return Checkpoint(*past, self.saved, self.momentum, self.generator.get_state(), bool(self.kept))

    def best(self) -> LayerwiseNetwork:
        """The network after the last whole epoch, without a last stage that is worse than the one before it."""
        last = self.history[-1]
        network = self._network(last.stage)
        network.load_state_dict({name: value for name, value in self.saved.items() if name in network.state_dict()})
        before = [record.loss for record in self.history if record.stage == last.stage - 1]
        behind = bool(before) and last.loss > before[-1]
        return network.upto(last.stage - 1 if behind else last.stage).eval()


def standardise(stage: GatedStage, parts: Iterable[Tensor], ranks: Ranks = ALONE) -> None:
    """Shift and scale every channel to mean 0 and variance 1; channels that hardly vary are only shifted.

    Moments are over the parts of all ranks, at least one each, in float64 and about the mean of the first parts, so
    that one pass suffices and only one part is in memory.
    """
    about, sums = None, torch.zeros(3, len(stage.shift), dtype=torch.float64, device=stage.shift.device)
    for x in parts:
        about = ranks.total(x.double().mean((0, 2, 3))) / ranks.size if about is None else about
        centred = x.double() - about[:, None, None]
        ones = torch.full_like(about, x[:, 0].numel())
        sums += torch.stack([ones, centred.sum((0, 2, 3)), centred.square().sum((0, 2, 3))])
    assert about is not None
    count, first, second = ranks.total(sums)
    mean, variance = about + first / count, (second / count - (first / count) ** 2).clamp(min=0)
    floor = 1e-6 * float(variance.mean())
    stage.shift.copy_(mean)
    stage.scale.copy_(torch.where(variance > floor, variance.clamp(min=1e-300).rsqrt(), 1.0))


def _all_finite(descent: StageDescent) -> bool:
    parameters = [*descent.stage.hidden.parameters(), *descent.head.parameters()]
    return all(bool(torch.isfinite(parameter).all()) for parameter in parameters)


def draw(stage: GatedStage, head: Head, generator: torch.Generator) -> None:
    """Random gates, signs and starts: normal, of variance 1 / inputs."""
    for layer in (stage.gate, stage.hidden, head.output):
        weight = layer.weight
        drawn = torch.randn(weight.shape, generator=generator, dtype=torch.float32) / math.sqrt(weight[0].numel())
        weight.data.copy_(drawn)
    bias = stage.gate.bias
    assert bias is not None
    drawn = torch.randn(bias.shape, generator=generator, dtype=torch.float32)
    bias.data.copy_(drawn / math.sqrt(stage.gate.weight[0].numel()))
    signs = torch.randint(2, stage.signs.shape, generator=generator) * 2.0 - 1.0
    stage.signs.copy_(signs if stage.units > 1 else torch.ones_like(signs))
