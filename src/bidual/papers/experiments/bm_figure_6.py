"""R3, BM Fig. 6: seconds per epoch and peak memory of layerwise training on CIFAR-10, convex against factored."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from types import MappingProxyType

import numpy as np
import torch
from matplotlib.axes import Axes
from torch import Tensor

from bidual.io.datasets import ImageData
from bidual.papers.experiments.stage_costs import Cost, Form, Measurement, Needs, StageShape, needs, stage_shapes
from bidual.papers.reproduction import Claim, Context, Experiment, Finding, Scale
from bidual.reporting.plots import COLOURS, GREY, figure_bytes, new_figure, plain
from bidual.runtime.memory import available_bytes, human_bytes
from bidual.training.layerwise import Settings

CONVEX, _NO_PROX = "convex", "convex, no prox"
_WIDTH = 0.17  # of a bar
CARD = 12 * 10**9  # bytes of the paper's GPU, as BM Fig. 6 has it


@dataclass(frozen=True)
class Configuration:
    """What is measured.

    Attributes:
        settings: the network and the descent; its ``factors`` are replaced by each of ``factors``.
        images: an epoch, at most.
        steps: that are timed at least, after one that is not.
    """

    name: str
    settings: Settings
    factors: tuple[int, ...] = (1, 2, 4)
    images: int | None = None
    steps: int = 3

    def forms(self, outputs: int) -> list[Form]:
        """The factored ones, the convex one, and what its parts cost."""
        lifted = self.settings.grid**2 * outputs
        return [
            *(Form(f"factored, m = {m}", "factored", m) for m in self.factors),
            Form(CONVEX, "design", lifted, prox=True),
            Form(_NO_PROX, "design", lifted),
            Form(f"{CONVEX}, by convolution, no prox", "convolution", lifted),
        ]


# BM C.2 does not say which stages downsample; public code that looks like the authors' does so at the third and fourth.
_DOWN = {"paper": (False, False, True, True, False), "cpu": (True, True, False)}
CONFIGURATIONS: Mapping[str, Configuration] = MappingProxyType(
    {
        "paper": Configuration("paper", Settings(gates=256, downsample=_DOWN["paper"]), steps=10),
        "cpu": Configuration("cpu", Settings(gates=256, downsample=_DOWN["cpu"]), images=20_000, steps=1),
        "smoke": Configuration("smoke", Settings(gates=4, downsample=(True,), batch_size=20), (1,), steps=1),
    }
)


@dataclass(frozen=True)
class Row:
    """One stage in one form.

    Attributes:
        configuration, gates, stage, images: which one; the stage from 1, and the images of an epoch.
        needed: bytes of a step at least, by the shapes of its tensors.
        kept: bytes of what the stage sees of all images, were it not made again for every batch.
        free: bytes that were free when the stage was to begin.
        seconds: of an epoch, or None where memory would not do: from the shortest of ``steps``.
        peak: bytes that the process, or the GPU's tensors, grew by at most.
    """

    configuration: str
    gates: int
    form: str
    stage: int
    images: int
    needed: Needs
    kept: int
    free: int
    seconds: float | None = None
    peak: int | None = None

    @property
    def stopped(self) -> bool:
        return self.seconds is None


def run(chosen: Configuration, data: ImageData, device: str = "cpu") -> list[Row]:
    """On the training images there are."""
    images, labels = torch.from_numpy(data.train_images), torch.from_numpy(data.train_labels)
    return list(measured(chosen, images, labels, len(data.classes), device))


def measured(chosen: Configuration, images: Tensor, labels: Tensor, outputs: int, device: str) -> Iterator[Row]:
    """Every form, stage by stage, until memory would not do.

    The variants of the convex form are measured at the first stage only.
    """
    _check(device)
    for form in chosen.forms(outputs):
        settings = replace(chosen.settings, factors=form.factors)
        shapes = stage_shapes(form, settings, images.shape[1], images.shape[2], outputs)
        stages = len(shapes) if form.kind == "factored" or form.prox else 1
        for count in range(1, stages + 1):
            yield (row := _row(chosen, form, shapes[:count], images, labels, device))
            if row.stopped:
                yield from _beyond(chosen, form, shapes[:stages], count, row)
                break


def _check(device: str) -> None:
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"there is no GPU for device {device!r}; use device='cpu'.")


def _row(
    chosen: Configuration, form: Form, shapes: Sequence[StageShape], images: Tensor, labels: Tensor, device: str
) -> Row:
    n, batch, needed = len(images[: chosen.images]), chosen.settings.batch_size, needs(form, shapes)
    free = available_bytes(torch.device(device))
    row = Row(chosen.name, chosen.settings.gates, form.name, len(shapes), n, needed, n * shapes[-1].kept_bytes, free)
    if needed.total > free:
        return row
    cost = cost_of(Measurement(form, shapes, images[:batch].clone(), labels[:batch].clone(), device, chosen.steps))
    return replace(row, seconds=cost.seconds * n / min(batch, n), peak=cost.peak)


def cost_of(measurement: Measurement) -> Cost:
    """Measured in a process of its own."""
    return measurement.in_new_process()


def _beyond(chosen: Configuration, form: Form, shapes: Sequence[StageShape], count: int, row: Row) -> Iterator[Row]:
    """The stages after one that memory would not do for: what they would need."""
    for stage in range(count + 1, len(shapes) + 1):
        kept = row.images * shapes[stage - 1].kept_bytes
        yield replace(row, stage=stage, needed=needs(form, shapes[:stage]), kept=kept)


def paper_needs() -> list[Row]:
    """What the paper's own configuration needs on its card: nothing is measured."""
    chosen, images, outputs = CONFIGURATIONS["paper"], 50_000, 10
    rows = []
    for form in chosen.forms(outputs):
        settings = replace(chosen.settings, factors=form.factors)
        shapes = stage_shapes(form, settings, 3, 32, outputs)
        for count in range(1, len(shapes) + 1):
            kept = images * shapes[count - 1].kept_bytes
            needed = needs(form, shapes[:count])
            rows.append(Row("paper", settings.gates, form.name, count, images, needed, kept, CARD))
    return rows


def table(rows: Sequence[Row]) -> str:
    """Markdown, a line for each form and stage."""
    lines = [
        "| configuration | gates | form | stage | seconds per epoch | peak memory | needed by shapes | kept for all |",
        "|" + "---|" * 8,
    ]
    for row in rows:
        lines.append(
            f"| {row.configuration} | {row.gates} | {row.form} | {row.stage} | {_seconds(row)} | {_peak(row)} "
            f"| {human_bytes(row.needed.total)} | {human_bytes(row.kept)} |"
        )
    return "\n".join(lines)


def _seconds(row: Row) -> str:
    if row.seconds is None:
        return "stopped"
    return f"{row.seconds:,.0f}" if row.seconds >= 100 else f"{row.seconds:.3g}"


def _peak(row: Row) -> str:
    return f"only {human_bytes(row.free)} free" if row.peak is None else human_bytes(row.peak)


def needs_table(rows: Sequence[Row]) -> str:
    """Markdown: what every stage needs against what is free, a line for each form."""
    stages = sorted({row.stage for row in rows})
    head = "| form | " + " | ".join(f"stage {stage}" for stage in stages) + " |"
    lines = [head, "|" + "---|" * (len(stages) + 1)]
    for form in dict.fromkeys(row.form for row in rows):
        cells = [_need(row) for row in rows if row.form == form]
        lines.append(f"| {form} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _need(row: Row) -> str:
    text = human_bytes(row.needed.total)
    return f"**{text}**" if row.needed.total > row.free else text


def draw(rows: Sequence[Row], suffix: str = ".png") -> bytes:
    """Bars for every stage: seconds per epoch on the left, peak memory on the right.

    Where the convex form stopped, an empty bar says how much memory it would need.
    """
    figure = new_figure(11, 5)
    left, right = figure.subplots(1, 2)
    forms = list(dict.fromkeys(row.form for row in rows if row.form != _NO_PROX))
    for number, (form, colour) in enumerate(zip(forms, COLOURS, strict=False)):
        mine = [row for row in rows if row.form == form]
        at = np.array([row.stage for row in mine]) + (number - (len(forms) - 1) / 2) * _WIDTH
        _bars(left, at, [row.seconds for row in mine], form, colour)
        _bars(right, at, [row.peak and row.peak / 1e9 for row in mine], form, colour)
        _would(left, right, at, mine, colour)
    _finish(left, "seconds per epoch", rows)
    _finish(right, "peak memory, GB", rows)
    free = min(row.free for row in rows)
    right.axhline(free / 1e9, color=GREY, linestyle="--", linewidth=1, label=f"free: {human_bytes(free)}")
    handles, labels = right.get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=3, fontsize=9)
    first = rows[0]
    title = f"Configuration {first.configuration}: {first.gates} gates, {first.images:,} images"
    left.set_title(title, loc="left", fontsize=11)
    return figure_bytes(figure, suffix)


def _bars(axes: Axes, at: np.ndarray, values: Sequence[float | None], label: str, colour: str) -> None:
    known = [(x, value) for x, value in zip(at, values, strict=True) if value is not None]
    axes.bar([x for x, _ in known], [value for _, value in known], 0.9 * _WIDTH, color=colour, label=label)


def _would(left: Axes, right: Axes, at: np.ndarray, rows: Sequence[Row], colour: str) -> None:
    for x, row in zip(at, rows, strict=True):
        if row.stopped:
            text, size = human_bytes(row.needed.total), row.needed.total / 1e9
            right.bar([x], [size], 0.9 * _WIDTH, facecolor="none", edgecolor=colour, hatch="//", linewidth=1)
            right.annotate(f"needs {text}", (x, size), (0, 3), textcoords="offset points", ha="center", fontsize=8)
            left.annotate(
                f"needs {text}", (x, 0.02), xycoords=left.get_xaxis_transform(), ha="center", fontsize=9,
                color=colour, rotation=90,
            )  # fmt: skip


def _finish(axes: Axes, label: str, rows: Sequence[Row]) -> None:
    axes.set_yscale("log")
    axes.margins(y=0.15)
    axes.set_xticks(sorted({row.stage for row in rows}))
    axes.set_xlabel("stage")
    axes.set_ylabel(label)
    plain(axes)
    axes.grid(axis="x", visible=False)


def claims(rows: Sequence[Row]) -> tuple[Claim, ...]:
    """What BM says in C.2; time and memory are compared at the first stage, the only one that the convex form has."""
    first = {row.form: row for row in rows if row.stage == 1}
    lifted, small = first[CONVEX], first["factored, m = 1"]
    sizes = f"by shapes {human_bytes(small.needed.total)} and {human_bytes(lifted.needed.total)}"
    return (
        _beyond_the_card(rows),
        Claim(
            "significantly reduced time per iteration",
            f"stage 1: {_seconds(small)} s per epoch with m = 1, convex {_seconds(lifted)} s",
            (small.seconds or inf) < (lifted.seconds or inf),
        ),
        Claim(
            "significantly reduced memory",
            f"stage 1: {_peak(small)} with m = 1, convex {_peak(lifted)}; {sizes}",
            (small.peak or inf) < (lifted.peak or inf),
            "at the first stage, which has three input channels; what follows needs more",
        ),
    )


def _beyond_the_card(rows: Sequence[Row]) -> Claim:
    """Measured where the paper's configuration ran, else by the sizes of its tensors."""
    ran = rows[0].configuration == "paper"
    judged = rows if ran else paper_needs()
    lifted = [row for row in judged if row.form == CONVEX]
    factored = [row for row in judged if row.form.startswith("factored")]
    stages = ", ".join(human_bytes(row.needed.total) for row in lifted)
    largest = human_bytes(max(row.needed.total for row in factored))
    here = next((f"it stops at stage {row.stage}" for row in rows if row.form == CONVEX and row.stopped), "it fits")
    fits = all(row.needed.total <= CARD for row in (lifted[0], *factored))
    return Claim(
        "the convex form exceeds 12 GB after the first stage; the factored form does not",
        f"by its shapes the paper's convex form needs {stages}, the factored one {largest} at most; here, with "
        f"{human_bytes(rows[0].free)} free, {here}",
        fits and lifted[1].needed.total > CARD,
        "" if ran else "computed from the paper's sizes; what ran here is smaller",
    )


def study(scale: Scale, means: Context) -> Finding:
    """Measure every form and stage, and check the claims."""
    chosen = CONFIGURATIONS[scale]
    rows = run(chosen, means.images("cifar-10", "train"), means.device)
    paper = f"What the paper's configuration needs, against {human_bytes(CARD)}:"
    text = "\n\n".join([table(rows), paper, needs_table(paper_needs())])
    return Finding(rows, claims(rows), text, lambda suffix: draw(rows, suffix), chosen)


EXPERIMENT = Experiment(
    "R3",
    "bm_figure_6",
    "Seconds per epoch and peak memory of a stage, convex against factored",
    "BM Fig. 6",
    0,
    study,
    ("cifar-10",),
)
