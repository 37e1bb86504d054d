"""R5, CP Fig. 2 and 6: the soft-thresholded SVD of Theorem 2 against SGD on whitened images, certified."""

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from bidual.papers.experiments.whitened_descent import SGD
from bidual.papers.experiments.whitened_form import CLOSE, Row, Run, Settings, measure
from bidual.papers.experiments.whitened_images import Setting, split_of
from bidual.papers.reproduction import Claim, Context, Experiment, Finding, Scale
from bidual.reporting.plots import COLOURS, GREY, figure_bytes, new_figure, plain

_FLOOR = 1e-8  # distances that are smaller are drawn here
_FORMULA = "s", COLOURS[3], "CP (16), the SVD alone"
_CERTIFIED = "D", COLOURS[2], "closed form, checked and certified"
PAPER = Settings(
    "paper",
    timed=tuple(
        SGD(step=step, momentum=momentum, batch=batch, seed=seed)
        for step, momentum, batch in ((1e-2, 0.0, None), (1e-2, 0.95, None), (1e-2, 0.0, 100), (1e-2, 0.95, 100))
        for seed in range(3)
    ),
    others=(),
)
CPU = Settings(
    "cpu",
    timed=(SGD(step=3e-2, momentum=0.9, epochs=120), SGD(step=1e-2, momentum=0.95, batch=300, epochs=50)),
    others=(
        *(SGD(step=1e-2, momentum=momentum) for momentum in (0.0, 0.9, 0.95)),
        SGD(step=1e-2, momentum=0.95, batch=1000),
    ),
)
SMOKE = Settings("smoke", (SGD(20, 20, 3e-2, 0.9),), (SGD(20, 20, 1e-2, 0.95),), per_class=4)
SETTINGS: Mapping[Scale, Settings] = {"paper": PAPER, "cpu": CPU, "smoke": SMOKE}


def table(rows: Sequence[Row]) -> str:
    """Markdown: the formulas on each kind of data, and below them every run of SGD."""
    forms = (
        "| data | X X^T - I | CP (16) as a number | its SVD as a linear network | as a ReLU network "
        "| certified optimum | relative gap | seconds: SVD, closed form, certificate "
        "| times faster than SGD: SVD, certified | test accuracy: SVD, optimum |"
    )
    runs = (
        "| data | coordinates | batch | step | momentum | seed | epochs | lowest objective above the optimum "
        "| within 1e-3 | seconds in all | test accuracy |"
    )
    lines = [_run_line(row, run) for row in rows for run in row.runs]
    return "\n".join([forms, "|" + "---|" * 10, *map(_form_line, rows), "", runs, "|" + "---|" * 11, *lines])


def _form_line(row: Row) -> str:
    svd = row.svd
    return (
        f"| {row.setting.name.lower()} ({row.configuration}, n = {row.n}) | {row.defect:.0e} | {row.theorem_2:.4f} "
        f"| {svd.linear:.4f} | {svd.relu:.4f} | {row.optimum:.4f} | {row.gap:.1e} "
        f"| {svd.seconds:.3f}, {row.form_seconds:.2f}, {row.certificate_seconds:.2f} "
        f"| {', '.join(f'{times:.0f}' for times in row.times_faster)} | {svd.accuracy:.3f}, {row.accuracy:.3f} |"
    )


def _run_line(row: Row, run: Run) -> str:
    sgd, there, last = run.sgd, row.reached(run), run.points[-1]
    when = "never" if there is None else f"epoch {there.epoch}, {there.seconds:.1f} s"
    accuracy = "" if math.isnan(last.score) else f"{last.score:.3f}"
    return (
        f"| {row.setting.name.lower()} | {run.coordinates} | {'all' if sgd.batch is None else sgd.batch} "
        f"| {sgd.step:g} | {sgd.momentum:g} | {sgd.seed} | {last.epoch} "
        f"| {row.above(run.lowest):.1e} | {when} | {last.seconds:.1f} | {accuracy} |"
    )


def draw(rows: Sequence[Row], suffix: str = ".png") -> bytes:
    """Distance to the certified optimum and test accuracy against seconds; a column for each kind of data."""
    figure = new_figure(4.6 * len(rows) + 0.6, 6.4)
    panels = figure.subplots(2, len(rows), sharex="col", sharey="row", squeeze=False, height_ratios=[1.2, 1])
    for row, above, below in zip(rows, *panels, strict=True):
        _distances(above, row)
        _accuracies(below, row)
        above.set_title(f"{row.setting.name.lower()}: {row.setting.value.split(': ')[1]}", loc="left", fontsize=11)
        below.set_xlabel("seconds of the processor")
        for axes in (above, below):
            axes.set_xscale("log")
            plain(axes)
    panels[0][0].set_ylabel("objective above the optimum, relatively")
    panels[1][0].set_ylabel("test accuracy")
    named = {
        label: handle for axes in panels[0] for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(named.values(), named.keys(), loc="outside upper center", ncols=3, frameon=False)
    return figure_bytes(figure, suffix)


def _distances(axes: Axes, row: Row) -> None:
    for run, colour in zip(row.runs, _colours(row), strict=True):
        points = [point for point in run.points if point.seconds > 0]
        up = [max(row.above(point.objective), _FLOOR) for point in points]
        timed = run.coordinates == "pixels"
        name = _name(run.sgd) if timed else "other runs, in the coordinates of the samples"
        axes.plot([p.seconds for p in points], up, color=colour, lw=1.8 if timed else 0.7, label=name, zorder=2 + timed)
    for seconds, value, (marker, colour, name) in (
        (row.svd.seconds, row.svd.linear, _FORMULA),
        (row.form_seconds + row.certificate_seconds, row.optimum, _CERTIFIED),
    ):
        height = max(row.above(value), _FLOOR)
        axes.plot([seconds], [height], marker, color=colour, ms=8, label=name, clip_on=False, zorder=4)
    axes.axhline(CLOSE, color=GREY, linestyle="--", linewidth=1, label="1e-3")
    axes.set_yscale("log")
    axes.set_ylim(_FLOOR, 10)


def _accuracies(axes: Axes, row: Row) -> None:
    for run, colour in zip(row.runs, _colours(row), strict=True):
        points = [point for point in run.points if point.seconds > 0 and not math.isnan(point.score)]
        axes.plot([p.seconds for p in points], [p.score for p in points], color=colour, lw=1.8)
    axes.plot([row.svd.seconds], [row.svd.accuracy], _FORMULA[0], color=_FORMULA[1], ms=8)
    certified = row.form_seconds + row.certificate_seconds
    axes.plot([certified], [row.accuracy], _CERTIFIED[0], color=_CERTIFIED[1], ms=8)


def _colours(row: Row) -> list[str]:
    timed = iter((COLOURS[0], COLOURS[1], COLOURS[4], COLOURS[5]) * len(row.runs))
    return [next(timed) if run.coordinates == "pixels" else "#aaaaaa" for run in row.runs]


def _name(sgd: SGD) -> str:
    batch = "full batch" if sgd.batch is None else f"batches of {sgd.batch}"
    return f"SGD, {batch}, step {sgd.step:g}, momentum {sgd.momentum:g}"


def claims(rows: Sequence[Row]) -> tuple[Claim, ...]:
    """What CP says in section 5.2 and A.1.4."""
    right, literal = (next(row for row in rows if row.setting is s) for s in (Setting.CORRECTED, Setting.LITERAL))
    return (
        _formula(right, "with a constant column, X X^T = I"),
        _formula(literal, "de-meaned as printed", "X X^T = I - 1 1^T / n there, and the theorem does not apply"),
        _same(rows),
        _faster(right),
        Claim(
            "generalises quite well, far exceeding the null classifier",
            f"test accuracy {right.accuracy:.1%} with a constant column, {literal.accuracy:.1%} as printed; chance is "
            f"{1 / 10:.0%}",
            min(right.accuracy, literal.accuracy) >= 0.2,
            "whitening with n near d magnifies directions that the training images hardly vary along",
        ),
    )


def _formula(row: Row, data: str, why: str = "") -> Claim:
    away = row.theorem_2 / row.optimum - 1
    ours = f"{row.theorem_2:.4f} against the certified optimum {row.optimum:.4f} (gap {row.gap:.0e}): {away:+.1%}"
    holds = abs(away) <= 1e-6
    return Claim(f"Theorem 2 is the optimal value, on data {data}", ours, holds, "" if holds else why)


def _faster(row: Row) -> Claim:
    (svd, certified), seconds = row.times_faster, row.sgd_seconds
    ours = f"the SVD takes {row.svd.seconds:.3f} s; " + (
        f"SGD comes within {CLOSE:g} after {seconds:.0f} s, {svd:.0f} times as long, and {certified:.1f} times as "
        "long as the formula with its check of X X^T = I and its certificate"
        if math.isfinite(seconds)
        else f"no run of SGD comes within {CLOSE:g}"
    )
    holds = math.isfinite(seconds) and svd >= 10
    return Claim("in far shorter time: 0.018 s", ours, holds, "whitening is not counted on either side")


def _same(rows: Sequence[Row]) -> Claim:
    lowest = [(row, min(run.lowest for run in row.runs)) for row in rows]
    ours = ", ".join(f"{row.setting.name.lower()} {row.above(value):.1e}" for row, value in lowest)
    holds = all(row.dual <= value <= (1 + CLOSE) * row.optimum for row, value in lowest)
    return Claim("SGD finds the same solution", f"best run above the certified optimum: {ours}", holds)


def study(scale: Scale, means: Context) -> Finding:
    """Whiten in three ways, run the formula and SGD, and check the claims."""
    settings = SETTINGS[scale]
    images = split_of(means.images("cifar-10"), settings.per_class)
    kinds = (Setting.CORRECTED, Setting.UNCENTRED, Setting.LITERAL)
    rows = measure([images.whitened(kind) for kind in kinds], settings)
    return Finding(rows, claims(rows), table(rows), lambda suffix: draw(rows, suffix), settings)


EXPERIMENT = Experiment(
    "R5",
    "cp_figure_2",
    "The soft-thresholded SVD against SGD on whitened CIFAR-10",
    "CP Fig. 2 and 6",
    0,
    study,
    ("cifar-10",),
)
