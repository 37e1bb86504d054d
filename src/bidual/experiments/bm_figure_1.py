"""R2, BM Fig. 1 and 5: layerwise gated CNNs on CIFAR-10 and Fashion-MNIST, accuracy per stage for m = 1, 2, 4.

``paper`` is BM C.2: P = 256 gates, 50 epochs a stage, five stages for CIFAR-10 and three for Fashion-MNIST. ``cpu`` has
three stages, few epochs, 20,000 images of CIFAR-10, 16 gates for the comparison of m, and one network with many gates
and m = 1, which on Fashion-MNIST sees mirrored and shifted images for twelve epochs a stage. Beside the last network on
CIFAR-10 (``paper``: on both sets) a plain CNN of its depth and width is trained for the same time.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bidual.datasets import load_images
from bidual.experiments.staged_accuracy import Plan, StagedRow, common_arguments, draw, grow, keep, table
from bidual.files import write_atomically
from bidual.layerwise import EpochRecord, Settings

FACTORS = (1, 2, 4)
SETS = ("fashion-mnist", "cifar-10")
_PAPER = {
    "fashion-mnist": Settings(downsample=(False, True, False), rates=(2e-1, 5e-2, 5e-3)),
    "cifar-10": Settings(downsample=(False, False, True, True, False), rates=(1e-1, 1e-2, 1e-3, 1e-2, 1e-2)),
}
_SMALL = Settings(gates=16, downsample=(True, False, True), epochs=5, drop_every=2, rates=(0.2, 0.1, 0.1), crop=0)
_CPU = {
    "fashion-mnist": (replace(_SMALL, flip=False), replace(_SMALL, gates=128, epochs=12, drop_every=4, crop=1)),
    "cifar-10": (
        replace(_SMALL, rates=(0.1, 0.05, 0.05), crop=2),
        replace(_SMALL, gates=64, rates=(0.1, 0.05, 0.05), crop=2),
    ),
}


def plans(configuration: str, data: str) -> list[Plan]:
    """The networks of a configuration on a data set."""
    if configuration not in ("paper", "cpu") or data not in SETS:
        raise ValueError(f"the configurations are paper and cpu for {SETS}, got {configuration!r} for {data!r}.")
    if configuration == "paper":
        return [Plan(replace(_PAPER[data], factors=m), end_to_end=m == FACTORS[-1], certified=500) for m in FACTORS]
    small, wide = _CPU[data]
    images = 20_000 if data == "cifar-10" else None
    many = [Plan(replace(small, factors=m), images) for m in FACTORS]
    return [*many, Plan(wide, images, end_to_end=data == "cifar-10", certified=300)]


def run(
    configuration: str,
    data: str,
    data_dir: Path | None = None,
    *,
    download: bool = False,
    only: int | None = None,
    device: str = "cpu",
    say: Callable[[str], None] | None = None,
) -> list[StagedRow]:
    """Train the networks of a configuration on one data set, or only one of them, counted from 1."""
    chosen = plans(configuration, data)
    if only is not None and not 1 <= only <= len(chosen):
        raise ValueError(f"configuration {configuration!r} has networks 1 to {len(chosen)}, got {only}.")
    found = load_images(data, data_dir, download=download)
    watch = None if say is None else lambda record: say(_words(record))
    wanted = chosen if only is None else [chosen[only - 1]]
    return [grow(plan, found, configuration, device, watch) for plan in wanted]


def _words(record: EpochRecord) -> str:
    return (
        f"stage {record.stage} epoch {record.epoch}: loss {record.loss:.4f}, accuracy {record.accuracy:.4f}, "
        f"{record.seconds:.0f} s"
    )


def main() -> None:
    """Print the table, and write rows and figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", choices=SETS)
    parser.add_argument("--only", type=int, help="one network of the configuration, counted from 1")
    given = common_arguments(parser)
    rows = run(
        given.configuration,
        given.data,
        given.data_dir,
        download=given.download,
        only=given.only,
        device=given.device,
        say=lambda text: print(text, flush=True),
    )
    print(table(rows))
    if given.rows is not None:
        keep(rows, given.rows)
    if given.figure is not None:
        write_atomically(given.figure, draw({given.data: rows}))


if __name__ == "__main__":
    main()
