"""R2, BM Fig. 1 and 5: layerwise gated CNNs on CIFAR-10 and Fashion-MNIST, accuracy per stage for m = 1, 2, 4.

``paper`` is BM C.2: P = 256 gates, 50 epochs a stage, five stages for CIFAR-10 and three for Fashion-MNIST. ``cpu`` has
three stages, few epochs, 10,000 images and 16 gates for the comparison of m, and one network with many gates and m = 1,
which on Fashion-MNIST sees all images, mirrored and shifted, for twelve epochs a stage. Beside the last network on
CIFAR-10 (``paper``: on both sets) a plain CNN of its depth and width is trained for the same time.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from bidual.papers.experiments.noise import clearly_above
from bidual.papers.experiments.staged_accuracy import Plan, StagedRow, grow_all, improves, staged_finding
from bidual.papers.reproduction import Claim, Context, Experiment, Finding, Scale
from bidual.training.layerwise import Settings

FACTORS = (1, 2, 4)
SETS = ("fashion-mnist", "cifar-10")
PRINTED = {"fashion-mnist": 0.916, "cifar-10": 0.815}  # BM Fig. 1, m = 4
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
_SMOKE = Settings(gates=4, downsample=(True, True), epochs=1, drop_every=1, rates=(0.1, 0.1), batch_size=20, crop=0)
_CLOSE = 0.02  # accuracies that count as competitive


def plans(scale: Scale, data: str) -> list[Plan]:
    """The networks of a scale on a data set."""
    if scale == "paper":
        return [Plan(replace(_PAPER[data], factors=m), end_to_end=m == FACTORS[-1], certified=500) for m in FACTORS]
    if scale == "smoke":
        few = [Plan(replace(_SMOKE, factors=m)) for m in FACTORS]
        return [*few, Plan(replace(_SMOKE, gates=6), end_to_end=data == "cifar-10", certified=10)]
    small, wide = _CPU[data]
    many = [Plan(replace(small, factors=m), 10_000) for m in FACTORS]
    images = 20_000 if data == "cifar-10" else None
    return [*many, Plan(wide, images, end_to_end=data == "cifar-10", certified=300)]


def run(scale: Scale, means: Context) -> dict[str, list[StagedRow]]:
    """Train the networks of a scale on both data sets."""
    data = {name: means.images(name) for name in SETS}  # missing files are reported before any training
    return {name: grow_all(plans(scale, name), images, scale, means) for name, images in data.items()}


def claims(sets: Mapping[str, Sequence[StagedRow]]) -> tuple[Claim, ...]:
    """What BM says in Fig. 1 and section 4.2."""
    rows = [row for each in sets.values() for row in each]
    return (
        improves(rows, "performance improves from one stage to the next"),
        _more_factors(sets),
        *(_accuracy(name, each) for name, each in sets.items()),
        _competitive(rows),
    )


def _more_factors(sets: Mapping[str, Sequence[StagedRow]]) -> Claim:
    first = {name: rows[: len(FACTORS)] for name, rows in sets.items()}
    ours = "; ".join(f"{name}: {', '.join(f'{row.test[-1]:.4f}' for row in rows)}" for name, rows in first.items())
    paper = "increasing m generally improves performance: 80.9, 81.1, 81.5 % on CIFAR-10 for m = 1, 2, 4"
    better = [clearly_above(rows[-1].test[-1], rows[0].test[-1], rows[0].n_test) for rows in first.values()]
    return Claim(paper, f"{ours} for m = 1, 2, 4", all(better), "read as: m = 4 is above m = 1 by more than noise")


def _accuracy(name: str, rows: Sequence[StagedRow]) -> Claim:
    best, printed = max(rows, key=lambda row: row.test[-1]), PRINTED[name]
    why = "" if best.configuration == "paper" else f"{best.name}, {best.images} images, a smaller network than P = 256"
    ours = f"{best.test[-1]:.1%} ({best.name}, {best.configuration})"
    holds = not clearly_above(printed, best.test[-1], best.n_test)
    return Claim(f"{printed:.1%} test accuracy on {name}", ours, holds, "" if holds else why)


def _competitive(rows: Sequence[StagedRow]) -> Claim:
    pairs = [(row.data, row.test[-1], row.end_to_end) for row in rows if not math.isnan(row.end_to_end)]
    ours = "; ".join(f"{name}: {mine:.4f} against {rival:.4f}" for name, mine, rival in pairs)
    paper = "layerwise training is competitive with end-to-end networks of the same depth, 81.5 against 81.6 %"
    note = f"competitive: at most {_CLOSE:.0%} below a plain CNN of the same depth and width after the same seconds"
    return Claim(paper, ours, bool(pairs) and all(mine >= rival - _CLOSE for _, mine, rival in pairs), note)


def study(scale: Scale, means: Context) -> Finding:
    """Train, and check the claims."""
    sets = run(scale, means)
    return staged_finding(sets, claims(sets), {name: plans(scale, name) for name in SETS})


EXPERIMENT = Experiment(
    "R2",
    "bm_figure_1",
    "Layerwise gated CNNs: accuracy per stage for m = 1, 2, 4",
    "BM Fig. 1 and 5",
    Settings().seed,
    study,
    SETS,
)
