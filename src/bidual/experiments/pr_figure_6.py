"""R14, PR Fig. 6: layerwise networks whose every stage is a three-layer path-regularised one.

The paper gives no sizes. ``paper`` has its Fig. 5's K = 40 sub-networks of m_1 = 100 units, five stages, and the
schedule of BM C.2; ``cpu`` has 24 sub-networks of 3 units, three stages, few epochs and 10,000 images. Beside each
stands a two-layer network of as many channels.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bidual.datasets import load_images
from bidual.experiments.staged_accuracy import Plan, StagedRow, common_arguments, draw, grow, keep, table
from bidual.files import write_atomically
from bidual.layerwise import EpochRecord, Settings

SETS = ("fashion-mnist", "cifar-10")
_PAPER = Settings(gates=40, units=100, downsample=(False, False, True, True, False))
_CPU = Settings(
    gates=24, units=3, downsample=(True, False, True), epochs=5, drop_every=2, rates=(0.1, 0.05, 0.05), crop=0
)


def plans(configuration: str, data: str) -> list[Plan]:
    """The three-layer network of a configuration on a data set, and the two-layer one beside it."""
    if configuration not in ("paper", "cpu") or data not in SETS:
        raise ValueError(f"the configurations are paper and cpu for {SETS}, got {configuration!r} for {data!r}.")
    three = Plan(_PAPER if configuration == "paper" else _CPU, None if configuration == "paper" else 10_000)
    if data == "cifar-10" and configuration == "cpu":
        three = replace(three, settings=replace(three.settings, crop=2))
    return [replace(three, certified=200), replace(three, settings=replace(three.settings, units=1))]


def run(
    configuration: str,
    data: str,
    data_dir: Path | None = None,
    *,
    download: bool = False,
    device: str = "cpu",
    say: Callable[[EpochRecord], None] | None = None,
) -> list[StagedRow]:
    """Train both networks on one data set."""
    chosen = plans(configuration, data)
    found = load_images(data, data_dir, download=download)
    return [grow(plan, found, configuration, device, say) for plan in chosen]


def main() -> None:
    """Print the table, and write rows and figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", choices=SETS, nargs="+")
    given = common_arguments(parser)
    places = {"download": given.download, "device": given.device}
    sets = {name: run(given.configuration, name, given.data_dir, **places) for name in given.data}
    rows = [row for rows in sets.values() for row in rows]
    print(table(rows))
    if given.rows is not None:
        keep(rows, given.rows)
    if given.figure is not None:
        write_atomically(given.figure, draw(sets))


if __name__ == "__main__":
    main()
