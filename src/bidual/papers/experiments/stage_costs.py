"""What a stage of layerwise training costs: the bytes it needs by its shapes, and what a step takes when measured."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import reduce
from multiprocessing import get_context
from typing import Literal, NamedTuple, Self

import torch
from torch import Tensor

from bidual.architectures.modules.layerwise import GatedStage, Head
from bidual.papers.experiments.convex_stage import DESIGN_BYTES, ConvexDescent, ConvexStage, LiftedHead
from bidual.runtime.threads import one_thread
from bidual.training.layerwise.checkpoint import Settings
from bidual.training.layerwise.inputs import FreshInputs, as_input
from bidual.training.layerwise.stage_descent import StageDescent
from bidual.training.layerwise.trainer import draw, standardise

Kind = Literal["factored", "design", "convolution"]
_FLOAT = 4
_SMALL = 0.01  # scale of the convex form's start; at zero its prox would have nothing to do
_RATE = 1e-3
_LEAST = 3.0  # seconds that steps are timed for
_MEASURED = 8  # images that stages are standardised on, few so that the step needs most memory


@dataclass(frozen=True)
class Form:
    """A way to train a stage.

    Attributes:
        kind: "factored" (BM eq. 126), or the convex form (BM eq. 23) through its design or by convolution.
        factors: channels a gate hands on: m filters, or a c columns of Z_k.
        prox: whether the nuclear norm is priced, by its prox after every step; otherwise it is left out.
    """

    name: str
    kind: Kind
    factors: int
    prox: bool = False


@dataclass(frozen=True)
class StageShape:
    """One stage: channels before it, the side of its map, and what the stages before it are made of."""

    seen: int
    side: int
    downsample: bool
    gates: int
    factors: int
    outputs: int
    settings: Settings

    @property
    def entries(self) -> int:
        """h, of a patch and its bias."""
        return self.seen * self.settings.kernel**2 + 1

    @property
    def filter_bytes(self) -> int:
        """Of the filters that the stage hands on."""
        return self.gates * self.factors * self.entries * _FLOAT

    @property
    def gate_bytes(self) -> int:
        """Of gates and standardisation."""
        return (self.gates * self.entries + 2 * self.seen) * _FLOAT

    @property
    def input_bytes(self) -> int:
        """Of what the filters see of one image."""
        return self.seen * self.side**2 * _FLOAT

    @property
    def kept_bytes(self) -> int:
        """Of one image if nothing were made again: what the filters see, and the gates' bits, a byte each."""
        return self.input_bytes + self.gates * self.side**2


class Needs(NamedTuple):
    """Bytes of a training step.

    Attributes:
        weights: what is trained, with gates and standardisation.
        descent: gradient and momentum.
        frozen: the stages before.
        batch: the most that a batch needs at a time: its input as it is made, or with gates and what is computed of it.
    """

    weights: int
    descent: int
    frozen: int
    batch: int

    @property
    def total(self) -> int:
        return sum(self)


def stage_shapes(form: Form, settings: Settings, channels: int, side: int, outputs: int) -> list[StageShape]:
    """All stages of a network that is trained in this form."""
    shapes = []
    for down in settings.downsample:
        seen, side = (4 * channels, side // 2) if down else (channels, side)
        shapes.append(StageShape(seen, side, down, settings.gates, form.factors, outputs, settings))
        channels = settings.gates * form.factors
    return shapes


def needs(form: Form, shapes: Sequence[StageShape]) -> Needs:
    """What a step on the last of these stages needs at least, beside images and libraries.

    A factored stage computes a hidden map, later its slope, and one window of it times the gates; the convex one some
    images' design and patches, or by convolution a hidden map of P a c channels. Frozen stages are passed by every
    batch, and may need more than the last one.
    """
    last, settings = shapes[-1], shapes[-1].settings
    n, a = settings.batch_size, settings.grid**2
    head = (last.gates * form.factors * a + 1 if form.kind == "factored" else 1) * last.outputs * _FLOAT
    frozen = sum(shape.filter_bytes + shape.gate_bytes for shape in shapes[:-1])
    active = n * last.gates * last.side**2
    if form.kind == "design":
        row = last.gates * a * last.entries * _FLOAT
        work = min(max(DESIGN_BYTES // row, 1), n) * (row + last.side**2 * last.entries * _FLOAT)
    else:
        work = active * form.factors * _FLOAT * (a + 1) // a
    seen = n * last.input_bytes + active + work
    batch = max([seen, _spread_bytes(last), *(_passing_bytes(shape) for shape in shapes[:-1])])
    trained = last.filter_bytes + head
    return Needs(trained + last.gate_bytes, 2 * trained, frozen, batch)


def _spread_bytes(shape: StageShape) -> int:
    """Of a batch's input as it came, downsampled and standardised."""
    return (3 if shape.downsample else 2) * shape.settings.batch_size * shape.input_bytes


def _passing_bytes(shape: StageShape) -> int:
    """Of a batch in a frozen stage: its input as it came and standardised, gates, and the channels it hands on."""
    handed_on = shape.gates * shape.factors * shape.side**2 * _FLOAT
    through = shape.settings.batch_size * (shape.input_bytes + shape.kept_bytes + handed_on)
    return max(_spread_bytes(shape), through)


class Cost(NamedTuple):
    """Of one step: the shortest of several, and the bytes by which memory grew at most."""

    seconds: float
    peak: int


@dataclass(frozen=True, eq=False)
class Measurement:
    """A step of a stage, with the stages before it, on one batch of images with labels.

    Gates and filters of all stages are drawn at random: a trained stage costs the same. What a batch goes through is
    what training does: augmentation, frozen stages, gates, the step.
    """

    form: Form
    shapes: Sequence[StageShape]
    images: Tensor
    labels: Tensor
    device: str
    steps: int

    def in_new_process(self) -> Cost:
        """In a process of its own, whose peak is that of nothing else."""
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            return pool.submit(self.run).result()

    def run(self) -> Cost:
        """On one thread of a CPU. A small stage goes first, so that libraries are loaded when memory is measured."""
        with one_thread():
            self._small()._step()()
            meter = PeakMeter(torch.device(self.device))
            step = self._step()
            step()
            return Cost(self._shortest(step), meter.grown())

    def _shortest(self, step: Callable[[], object]) -> float:
        """Of so many steps, and of more while they are fast."""
        times: list[float] = []
        while len(times) < self.steps or sum(times) < _LEAST:
            times.append(self._timed(step))
        return min(times)

    def _small(self) -> Self:
        last = self.shapes[-1]
        few = stage_shapes(
            self.form, replace(last.settings, gates=2), self.images.shape[1], self.images.shape[2], last.outputs
        )
        return replace(self, shapes=few[: len(self.shapes)], images=self.images[:4], labels=self.labels[:4])

    def _timed(self, step: Callable[[], object]) -> float:
        began = time.perf_counter()
        step()
        return time.perf_counter() - began

    def _step(self) -> Callable[[], object]:
        """An epoch of one batch."""
        if len(self.labels) > self.shapes[-1].settings.batch_size:
            raise ValueError(f"a step takes one batch, got {len(self.labels)} images; give its first ones.")
        generator = torch.Generator().manual_seed(0)
        descent = self.descent(generator)
        optimiser = descent.optimiser(_RATE)
        return lambda: descent.epoch(optimiser, generator)

    @torch.no_grad()
    def descent(self, generator: torch.Generator) -> StageDescent | ConvexDescent:
        """The training of the last stage."""
        device, (*before, last) = torch.device(self.device), self.shapes
        settings, x, frozen = last.settings, as_input(self.images[:_MEASURED], device), []
        for shape in before:
            frozen.append(made(shape, shape.factors, x, device, generator))
            x = frozen[-1](x)
        stage = made(last, 1 if self.form.kind == "design" else last.factors, x, device, generator)
        inputs = FreshInputs(
            self.images, lambda x: reduce(lambda seen, one: one(seen), frozen, x), stage, settings, device
        )
        labels = self.labels.to(device)
        if self.form.kind == "design":
            model = ConvexStage.zero(stage, settings.grid, last.outputs)
            model.Z.normal_(0, _SMALL / last.entries**0.5)
            return ConvexDescent(model, inputs, labels, settings, self.form.prox)
        head = (Head if self.form.kind == "factored" else LiftedHead)(stage.channels, settings.grid, last.outputs)
        draw(stage, head, generator)
        return StageDescent(stage, head.to(device), inputs, labels, settings)


def made(shape: StageShape, factors: int, x: Tensor, device: torch.device, generator: torch.Generator) -> GatedStage:
    """A stage of random gates and filters, standardised on what it sees."""
    before = shape.seen // 4 if shape.downsample else shape.seen
    stage = GatedStage(before, shape.gates, factors, 1, shape.settings.kernel, shape.downsample)
    stage = stage.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    standardise(stage, [stage.spread(x)])
    draw(stage, Head(stage.channels, 1, 1), generator)
    return stage


class PeakMeter:
    """The most memory since it was made: of the tensors on a GPU, of this process on a CPU (Linux)."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            self.before = torch.cuda.memory_allocated(device)
            return
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # the peak is that of now
        self.before = _status("VmHWM")

    def grown(self) -> int:
        peak = torch.cuda.max_memory_allocated(self.device) if self.device.type == "cuda" else _status("VmHWM")
        return peak - self.before


def _status(name: str) -> int:
    with open("/proc/self/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields[name].split()[0]) * 1024
