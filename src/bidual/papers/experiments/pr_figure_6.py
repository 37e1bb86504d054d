"""R14, PR Fig. 6: layerwise networks whose every stage is a three-layer path-regularised one.

The paper gives no sizes. ``paper`` has its Fig. 5's K = 40 sub-networks of m_1 = 100 units, five stages, and the
schedule of BM C.2; ``cpu`` has 24 sub-networks of 3 units, three stages, few epochs and 10,000 images. Beside each
stands a two-layer network of as many channels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bidual.papers.experiments.noise import clearly_above
from bidual.papers.experiments.staged_accuracy import Plan, StagedRow, grow_all, improves, staged_finding
from bidual.papers.reproduction import Claim, Context, Experiment, Finding, Scale
from bidual.training.layerwise import Settings

SETS = ("fashion-mnist", "cifar-10")
PRINTED = 0.84  # "almost 85 %", on CIFAR-10 at the fifth stage
_PAPER = Settings(gates=40, units=100, downsample=(False, False, True, True, False))
_CPU = Settings(
    gates=24, units=3, downsample=(True, False, True), epochs=5, drop_every=2, rates=(0.1, 0.05, 0.05), crop=0
)
_SMOKE = Settings(
    gates=4, units=2, downsample=(True, True), epochs=1, drop_every=1, rates=(0.1, 0.1), batch_size=20, crop=0
)


def plans(scale: Scale, data: str) -> list[Plan]:
    """The three-layer network of a scale on a data set, and the two-layer one beside it."""
    three = {
        "paper": Plan(_PAPER, certified=200),
        "cpu": Plan(_CPU, 10_000, certified=200),
        "smoke": Plan(_SMOKE, certified=10),
    }[scale]
    if data == "cifar-10" and scale == "cpu":
        three = replace(three, settings=replace(three.settings, crop=2))
    return [three, replace(three, settings=replace(three.settings, units=1), certified=0)]


def run(scale: Scale, means: Context) -> dict[str, list[StagedRow]]:
    """Train both networks on both data sets."""
    data = {name: means.images(name) for name in SETS}  # missing files are reported before any training
    return {name: grow_all(plans(scale, name), images, scale, means) for name, images in data.items()}


def claims(sets: Mapping[str, Sequence[StagedRow]]) -> tuple[Claim, ...]:
    """What PR says in A.1 and Fig. 6."""
    three = [rows[0] for rows in sets.values()]
    end = next(row for row in three if row.data == "cifar-10")
    small = f"{end.name}, {len(end.test)} stages, {end.images} images, a smaller network than the paper's"
    return (
        improves(three, "stacking convex three-layer stages resulted in significant performance improvements"),
        Claim(
            "almost 85 % on CIFAR-10 at the fifth stage",
            f"{end.test[-1]:.1%} at stage {len(end.test)}",
            end.test[-1] >= PRINTED,
            "" if end.configuration == "paper" else small,
        ),
        Claim(
            "unlike a single three-layer network, below 60 % in Fig. 5",
            f"CIFAR-10: {end.test[0]:.1%} with one stage, {end.test[-1]:.1%} with {len(end.test)}",
            clearly_above(end.test[-1], end.test[0], end.n_test),
        ),
    )


def study(scale: Scale, means: Context) -> Finding:
    """Train, and check the claims."""
    sets = run(scale, means)
    return staged_finding(sets, claims(sets), {name: plans(scale, name) for name in SETS})


EXPERIMENT = Experiment(
    "R14",
    "pr_figure_6",
    "Layerwise networks with three-layer path-regularised stages",
    "PR Fig. 6",
    Settings().seed,
    study,
    SETS,
)
