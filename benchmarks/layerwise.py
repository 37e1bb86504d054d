"""Training steps of a layerwise stage against plain torch networks with the same convolutions, in one run.

    python benchmarks/layerwise.py [--threads 1] [--repeat 7] [--only "CIFAR-10 stage 1"]

Images per second of SGD with momentum, batches of 128, single precision, channels last. A stage has P gates, which are
constants, and m filters a gate:

fresh: gates are computed for every batch (how augmented images are trained on), the input is given;
kept: gates were computed once (how images are trained on without augmentation);
plain, all: Conv2d(C, P + m P), ReLU, AdaptiveAvgPool2d(2), Linear; as many filters as gates and filters together;
plain, trained: Conv2d(C, m P), the same otherwise; as many filters as are trained.

All see the same inputs, and no gradient of the input is asked for. Every repetition times all four in turn, and the
shortest time of each counts.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from bidual.architectures.modules.layerwise import GatedStage, Head
from bidual.training.layerwise import Settings
from bidual.training.layerwise.inputs import Batch, Inputs, KeptInputs
from bidual.training.layerwise.stage_descent import StageDescent
from bidual.training.layerwise.trainer import draw

_BATCH, _GRID, _CLASSES, _RATE = 128, 2, 10, 1e-3
Step = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """A stage: the channels its filters see, the side of the map, gates P and filters m a gate."""

    name: str
    channels: int
    side: int
    gates: int
    factors: int


def cases() -> list[Case]:
    """Stages one and two of both image sets, downsampled before each; stage two sees 4 m P channels."""
    found = []
    for gates, factors in ((32, 1), (32, 4), (64, 1)):
        for name, channels, side in (("Fashion-MNIST", 1, 28), ("CIFAR-10", 3, 32)):
            found.append(Case(f"{name} stage 1", 4 * channels, side // 2, gates, factors))
            found.append(Case(f"{name} stage 2", 4 * factors * gates, side // 4, gates, factors))
    return found


@dataclass(frozen=True, eq=False)
class GatedInputs(Inputs):
    """Inputs that are given, gates that are computed for every batch."""

    x: Tensor
    stage: GatedStage

    @torch.no_grad()
    def batch(self, rows: Tensor, generator: torch.Generator) -> Batch:
        x = self.x[rows]
        return Batch(x, self.stage.activity(x))


def stage_step(case: Case, x: Tensor, labels: Tensor, kept: bool) -> Step:
    """One epoch of one batch."""
    generator = torch.Generator().manual_seed(0)
    stage = GatedStage(case.channels, case.gates, case.factors, 1, 3, downsample=False)
    stage.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    head = Head(stage.channels, _GRID, _CLASSES)
    draw(stage, head, generator)
    settings = Settings(case.gates, case.factors, downsample=(False,), batch_size=_BATCH)
    inputs = KeptInputs(x, stage.activity(x)) if kept else GatedInputs(x, stage)
    descent = StageDescent(stage, head, inputs, labels, settings)
    optimiser = descent.optimiser(_RATE)
    return lambda: descent.epoch(optimiser, generator)


def plain_step(case: Case, x: Tensor, labels: Tensor, filters: int) -> Step:
    """A step of the plain network; it picks its batch at random too."""
    layers = nn.Conv2d(case.channels, filters, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(_GRID), nn.Flatten()
    network = nn.Sequential(*layers, nn.Linear(filters * _GRID**2, _CLASSES))
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimiser = torch.optim.SGD(network.parameters(), lr=_RATE, momentum=0.9, weight_decay=5e-4)

    def step() -> None:
        rows = torch.randperm(len(labels))
        loss = functional.cross_entropy(network(x[rows]), labels[rows])
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()

    return step


def steps_of(case: Case) -> dict[str, Step]:
    """What is timed, by name."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(_BATCH, case.channels, case.side, case.side, generator=generator)
    x = x.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(_CLASSES, (_BATCH,), generator=generator)
    trained = case.gates * case.factors
    return {
        "fresh": stage_step(case, x, labels, kept=False),
        "kept": stage_step(case, x, labels, kept=True),
        "plain, all": plain_step(case, x, labels, case.gates + trained),
        "plain, trained": plain_step(case, x, labels, trained),
    }


def rates(steps: Mapping[str, Step], repeat: int, inner: int) -> dict[str, float]:
    """Images per second of the shortest of several interleaved runs of a few steps, after one that is not counted."""
    best = dict.fromkeys(steps, float("inf"))
    for turn in range(repeat + 1):
        for name, step in steps.items():
            began = time.perf_counter()
            for _ in range(inner):
                step()
            if turn:
                best[name] = min(best[name], time.perf_counter() - began)
    return {name: inner * _BATCH / seconds for name, seconds in best.items()}


def row(case: Case, found: Mapping[str, float]) -> str:
    """A line of the table."""
    fresh, kept, both, trained = found.values()
    size = f"{case.channels} x {case.side} x {case.side}"
    speeds = " | ".join(f"{value:,.0f}" for value in found.values())
    ratios = " | ".join(f"{value:.2f}" for value in (fresh / both, kept / both, fresh / trained, kept / trained))
    return f"| {case.name} | {case.gates} | {case.factors} | {size} | {speeds} | {ratios} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--inner", type=int, default=2, help="steps that are timed together")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print("| case | P | m | input | fresh | kept | plain, all | plain, trained "
          "| fresh / all | kept / all | fresh / trained | kept / trained |")  # fmt: skip
    print("|" + "---|" * 12)
    for case in cases():
        if options.only in case.name:
            print(row(case, rates(steps_of(case), options.repeat, options.inner)), flush=True)


if __name__ == "__main__":
    main()
