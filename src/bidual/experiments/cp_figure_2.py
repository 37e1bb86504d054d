"""R5, CP Fig. 2 and 6: the soft-thresholded SVD of Theorem 2 against SGD on whitened images, certified."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor

from bidual.certificate import Certificate, Scope, judge
from bidual.closed_form import ClosedForm, closed_form, closed_form_demeaned
from bidual.datafit import Datafit
from bidual.experiments.whitened_descent import SGD, Coordinates, Pixels, Point, Samples
from bidual.experiments.whitened_images import Setting, Whitened, split_of
from bidual.figures import COLOURS, GREY, figure_bytes, new_figure, plain
from bidual.losses import Squared
from bidual.polar import bound_near
from bidual.relu import ReluProblem
from bidual.reproduction import Claim, Experiment, Finding, Means, Scale

_FLOOR = 1e-8  # distances that are smaller are drawn here
_FORMULA = "s", COLOURS[3], "CP (16), the SVD alone"
_CERTIFIED = "D", COLOURS[2], "closed form, checked and certified"
_CLOSE = 1e-3  # SGD is there when its objective is relatively that close to the optimum


@dataclass(frozen=True)
class Settings:
    """What is run on each kind of data.

    Attributes:
        name: of the configuration, which the results carry.
        timed: runs of SGD in pixels, with test accuracy: these are what the closed form is faster than.
        others: runs in the coordinates of the samples, where the same iterates cost much less.
        beta: weight decay.
        per_class: training images of each class.
    """

    name: str
    timed: tuple[SGD, ...]
    others: tuple[SGD, ...]
    beta: float = 1.0
    per_class: int = 300


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


@dataclass(frozen=True)
class Run:
    """One run of SGD and the coordinates in which it was timed."""

    sgd: SGD
    coordinates: str
    points: tuple[Point, ...]

    @property
    def lowest(self) -> float:
        """The least objective that was recorded."""
        return min((point.objective for point in self.points if math.isfinite(point.objective)), default=math.inf)

    def first_below(self, objective: float) -> Point | None:
        """The first record at most so high, or None."""
        return next((point for point in self.points if point.objective <= objective), None)


@dataclass(frozen=True)
class Thresholded:
    r"""CP (16) as printed: V = sum_i (sigma_i - beta)_+ a_i b_i^T from the SVD of X^T Y.

    Attributes:
        linear: 1/2 |X V - Y|^2 + beta |V|_*, what V costs as a linear network.
        relu: what the ReLU network of its factors costs, u_i = a_i and w_i = (sigma_i - beta)_+ b_i.
        accuracy: of X V on the test samples.
        seconds: for V alone, as CP times it: X^T Y, its SVD, and the threshold. Whitening is not in it.
    """

    linear: float
    relu: float
    accuracy: float
    seconds: float


@dataclass(frozen=True)
class Row:
    """One kind of data.

    Attributes:
        configuration: which settings ran.
        setting, n, defect: which data, how many, and |X X^T - I|_F.
        theorem_2: sum_k beta sigma_k - beta^2 / 2 over the singular values of Y: the optimum where X X^T = I.
        svd: the paper's formula, evaluated.
        optimum, dual, gap: of the closed form's network and its certificate over all activation patterns.
        neurons, accuracy: of that network.
        form_seconds: for the closed form with its checks of X X^T and the bound of the polar, without whitening.
        certificate_seconds: for judging it.
        runs: of SGD.
    """

    configuration: str
    setting: Setting
    n: int
    defect: float
    theorem_2: float
    svd: Thresholded
    optimum: float
    dual: float
    gap: float
    neurons: int
    accuracy: float
    form_seconds: float
    certificate_seconds: float
    runs: tuple[Run, ...]

    def above(self, value: float) -> float:
        """How far a value is above the certified optimum, relatively."""
        return value / self.optimum - 1

    def reached(self, run: Run) -> Point | None:
        """Where a run first is within 1e-3."""
        return run.first_below(self.optimum * (1 + _CLOSE))

    @property
    def sgd_seconds(self) -> float:
        """When the first of the timed runs is within 1e-3, infinity if none is."""
        points = [self.reached(run) for run in self.runs if run.coordinates == "pixels"]
        return min((point.seconds for point in points if point is not None), default=math.inf)

    @property
    def times_faster(self) -> tuple[float, float]:
        """That over the seconds of the SVD alone, and over those of the closed form with checks and certificate."""
        return self.sgd_seconds / self.svd.seconds, self.sgd_seconds / (self.form_seconds + self.certificate_seconds)

    @property
    def best(self) -> Run | None:
        """The run with the least objective."""
        return min(self.runs, key=lambda run: run.lowest, default=None)


def run(data: Sequence[Whitened], settings: Settings = CPU) -> list[Row]:
    """The closed form and every run of SGD on each kind of data; labels are one-hot, the loss is squared."""
    return [_row(samples, settings) for samples in data]


def _row(data: Whitened, settings: Settings) -> Row:
    problem = ReluProblem(data.X, Datafit(Squared(), data.one_hot), settings.beta)
    began = time.process_time()
    form = (closed_form_demeaned if data.setting is Setting.LITERAL else closed_form)(problem)
    formed = time.process_time()
    if not form.applies:
        raise ValueError(f"the closed form does not apply to {data.setting.name} data: {form.reason}")
    certificate = certified(problem, form)
    judged = time.process_time()
    return Row(
        settings.name,
        data.setting,
        len(data.X),
        data.defect,
        theorem_2(data.one_hot, settings.beta),
        thresholded(data, settings.beta),
        certificate.primal,
        certificate.dual,
        certificate.relative_gap,
        len(form.neurons),
        data.accuracy((data.X_test @ form.neurons.T).clamp(min=0) @ form.weights),
        formed - began,
        judged - formed,
        _runs(data, settings),
    )


def certified(problem: ReluProblem, form: ClosedForm) -> Certificate:
    """The formula's network and dual point before the one judge, over all activation patterns."""
    Z = (torch.linalg.vector_norm(form.neurons, dim=1, keepdim=True) * form.weights)[:, None]
    polar = bound_near(problem.X, form.dual_point, form.polar)
    return judge(problem.over(form.neurons), Z, form.dual_point, polar, Scope.ALL_PATTERNS)


def theorem_2(Y: Float[Tensor, "n c"], beta: float) -> float:
    """The optimum that CP (16) has on X X^T = I: the singular values of Y, soft-thresholded."""
    sigma = torch.linalg.svdvals(Y)
    return float(torch.where(sigma > beta, beta * sigma - beta**2 / 2, sigma**2 / 2).sum())


def thresholded(data: Whitened, beta: float) -> Thresholded:
    """CP (16), and what becomes of it."""
    X, Y, began = data.X, data.one_hot, time.process_time()
    left, sigma, right = torch.linalg.svd(X.T @ Y, full_matrices=False)
    kept = (sigma - beta).clamp(min=0)
    seconds = time.process_time() - began
    W, before, price = kept[:, None] * right, X @ left, beta * float(kept.sum())
    linear, relu = (0.5 * float((H @ W - Y).square().sum()) + price for H in (before, before.clamp(min=0)))
    return Thresholded(linear, relu, data.accuracy(data.X_test @ left @ W), seconds)


def _runs(data: Whitened, settings: Settings) -> tuple[Run, ...]:
    Y, beta, found = data.one_hot, settings.beta, []
    if settings.timed:
        pixels = Pixels(data.X, data.X_test)
        found += [_run(sgd, pixels, Y, beta, data) for sgd in settings.timed]
    if settings.others:
        samples = Samples.of(data.X, data.X_test)
        found += [_run(sgd, samples, Y, beta, data) for sgd in settings.others]
    return tuple(found)


def _run(sgd: SGD, where: Coordinates, Y: Tensor, beta: float, data: Whitened) -> Run:
    score = data.accuracy if isinstance(where, Pixels) else None
    return Run(sgd, where.name, sgd.run(where, Y, beta, score).points)


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
    axes.axhline(_CLOSE, color=GREY, linestyle="--", linewidth=1, label="1e-3")
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
        f"SGD comes within {_CLOSE:g} after {seconds:.0f} s, {svd:.0f} times as long, and {certified:.1f} times as "
        "long as the formula with its check of X X^T = I and its certificate"
        if math.isfinite(seconds)
        else f"no run of SGD comes within {_CLOSE:g}"
    )
    return Claim("in far shorter time: 0.018 s", ours, svd >= 10, "whitening is not counted on either side")


def _same(rows: Sequence[Row]) -> Claim:
    lowest = [(row, min(run.lowest for run in row.runs)) for row in rows]
    ours = ", ".join(f"{row.setting.name.lower()} {row.above(value):.1e}" for row, value in lowest)
    holds = all(row.dual <= value <= (1 + _CLOSE) * row.optimum for row, value in lowest)
    return Claim("SGD finds the same solution", f"best run above the certified optimum: {ours}", holds)


def study(scale: Scale, means: Means) -> Finding:
    """Whiten in three ways, run the formula and SGD, and check the claims."""
    settings = SETTINGS[scale]
    images = split_of(means.images("cifar-10"), settings.per_class)
    rows = run([images.whitened(kind) for kind in (Setting.CORRECTED, Setting.UNCENTRED, Setting.LITERAL)], settings)
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
