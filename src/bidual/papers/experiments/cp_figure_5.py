"""R8, CP Fig. 5 (A.1.2): ReLU against linear networks on whitened images, for labels of a random ReLU network."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from matplotlib.axes import Axes

from bidual.papers.experiments.generated_labels import Fit, Task, judged, labelled, linear_optimum, relu_certificate
from bidual.papers.experiments.whitened_descent import SGD, Samples, Trained
from bidual.papers.experiments.whitened_images import Setting, Whitened, split_of
from bidual.papers.reproduction import Claim, Context, Experiment, Finding, Scale
from bidual.problems.solution import Limits
from bidual.reporting.plots import COLOURS, GREY, figure_bytes, new_figure, plain
from bidual.solvers.driver import solve
from bidual.training.copositive import Copositive
from bidual.training.relu.closed_form import closed_form

_PROTOCOL = SGD(4000, 400, 1e-2, 0.95, records=1)
_DESCENTS = (SGD(1000, 1000, 1.0, 0.95, size=0.1, records=1), SGD(1000, 1000, 1.0, 0.9, size=0.3, records=1))
_RELAXABLE = 200  # samples, up to which the relaxation CP (20) is affordable


@dataclass(frozen=True)
class Settings:
    """What is run.

    Attributes:
        name: of the configuration, which the results carry.
        betas: weight decays.
        hidden: neurons of the network that makes the labels.
        sgd: the protocol of CP A.1.2, for both activations. CP does not say of what size its batches are.
        descents: runs that are meant to come close to the optimum of the ReLU network; the best is kept.
        relaxation: on at most 200 samples with X X^T = I, also train by CP (20), which bounds the optimum more tightly.
        max_time: seconds of that, for each beta.
        seed: of the label network.
        per_class: training images of each class.
    """

    name: str
    betas: tuple[float, ...] = (1e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
    hidden: int = 4000
    sgd: SGD = _PROTOCOL
    descents: tuple[SGD, ...] = _DESCENTS
    relaxation: bool = False
    max_time: float | None = 40
    seed: int = 0
    per_class: int = 300


PAPER = Settings("paper")
CPU = Settings("cpu", per_class=100)
SMOKE = Settings(
    "smoke",
    (1e-2, 1.0),
    50,
    SGD(50, 20, 1e-2, 0.95, records=1),
    (SGD(30, 30, 1.0, 0.95, size=0.1, records=1),),
    relaxation=True,
    max_time=2,
    per_class=2,
)
SETTINGS: Mapping[Scale, Settings] = {"paper": PAPER, "cpu": CPU, "smoke": SMOKE}


@dataclass(frozen=True)
class Row:
    """One kind of data and one beta.

    Attributes:
        configuration, setting, n, beta: what was run.
        zero: the network zero.
        linear, linear_gap: the optimal linear network, a soft-thresholded SVD, and its certified gap.
        lower_bound: of the ReLU network's objective, over all activation patterns.
        theorem_2: the optimum of the ReLU network by CP Theorem 2, NaN where its hypothesis fails.
        relu: the ReLU network of least objective that was found.
        linear_sgd, relu_sgd: what the paper's protocol ends with.
    """

    configuration: str
    setting: Setting
    n: int
    beta: float
    zero: Fit
    linear: Fit
    linear_gap: float
    lower_bound: float
    theorem_2: float
    relu: Fit
    linear_sgd: Fit
    relu_sgd: Fit

    @property
    def gap(self) -> float:
        """How far the ReLU network can be from its optimum, relatively."""
        return max(self.relu.objective - self.lower_bound, 0.0) / self.relu.objective


def run(data: Sequence[Whitened], settings: Settings = CPU) -> list[Row]:
    """Every beta on each kind of data, smallest beta first."""
    return [row for samples in data for row in _rows(samples, settings)]


def _rows(data: Whitened, settings: Settings) -> list[Row]:
    task, where = labelled(data, settings.hidden, seed=settings.seed), Samples.of(data.X, data.X_test)
    return [_row(task, where, beta, settings) for beta in settings.betas]


def _row(task: Task, where: Samples, beta: float, settings: Settings) -> Row:
    start = 0.5 * float(task.Y.square().sum())
    zero = Fit(start, start, task.test_loss(torch.zeros_like(task.Y_test)))
    linear, certificate = linear_optimum(task, beta)
    runs = [sgd.run(where, task.Y, beta, task.test_loss) for sgd in settings.descents]
    networks = [_network(task, beta, trained) for trained in runs]
    if settings.relaxation and task.data.setting is not Setting.LITERAL and len(task.Y) <= _RELAXABLE:
        networks.append(_relaxed(task, beta, settings))
    found = [(zero, 0.0), *networks]
    protocol = (replace(settings.sgd, linear=True), settings.sgd)
    return Row(
        settings.name,
        task.data.setting,
        len(task.Y),
        beta,
        zero,
        linear,
        certificate.relative_gap,
        max(bound for _, bound in found),
        closed_form(task.relu(beta)).objective,
        min((fit for fit, _ in found), key=lambda fit: fit.objective),
        *(_last(sgd.run(where, task.Y, beta, task.test_loss)) for sgd in protocol),
    )


def _last(trained: Trained) -> Fit:
    end = trained.points[-1]
    return Fit(end.objective, end.loss, end.score)


def _network(task: Task, beta: float, trained: Trained) -> tuple[Fit, float]:
    """The network of a run with balanced neurons, and the certified lower bound."""
    neurons, weights = trained.U.double().T @ task.data.X, trained.W.double()
    return judged(task, relu_certificate(task, beta, neurons, weights), neurons, weights)


def _relaxed(task: Task, beta: float, settings: Settings) -> tuple[Fit, float]:
    """The network that CP (20) is rounded to, and the bound that it proves."""
    done = solve(task.relu(beta), Copositive("spike_free"), Limits(1e-4, max_time=settings.max_time))
    return judged(task, done.certificate, done.neurons, done.Z[:, 0])


def table(rows: Sequence[Row]) -> str:
    """Markdown: a line for each beta; losses are shares of the zero network's."""
    head = (
        "| data | beta | linear optimum | its gap | ReLU at least | ReLU found | gap | Theorem 2 "
        "| train loss: linear, ReLU | test loss: linear, ReLU | SGD train: linear, ReLU | SGD test: linear, ReLU |"
    )
    return "\n".join([head, "|" + "---|" * 12, *map(_line, rows)])


def _line(row: Row) -> str:
    optimal, protocol = (row.linear, row.relu), (row.linear_sgd, row.relu_sgd)
    formula = "does not apply" if math.isnan(row.theorem_2) else f"{row.theorem_2:.5f}"
    pairs = (_shares(row, fits, name) for fits in (optimal, protocol) for name in ("loss", "test"))
    return (
        f"| {row.setting.name.lower()} ({row.configuration}, n = {row.n}) | {row.beta:g} | {row.linear.objective:.5f} "
        f"| {row.linear_gap:.0e} | {row.lower_bound:.5f} | {row.relu.objective:.5f} | {row.gap:.1e} | {formula} "
        f"| {' | '.join(pairs)} |"
    )


def _shares(row: Row, fits: Sequence[Fit], name: str) -> str:
    return ", ".join(f"{getattr(fit, name) / getattr(row.zero, name):.4f}" for fit in fits)


def draw(rows: Sequence[Row], suffix: str = ".png") -> bytes:
    """Train and test loss as shares of the zero network's against beta; a column for each kind of data."""
    kinds = list(dict.fromkeys((row.setting, row.n) for row in rows))
    figure = new_figure(4.8 * len(kinds) + 0.6, 6.4)
    panels = figure.subplots(2, len(kinds), sharex=True, sharey="row", squeeze=False)
    for (setting, n), above, below in zip(kinds, *panels, strict=True):
        chosen = [row for row in rows if (row.setting, row.n) == (setting, n)]
        for axes, name in ((above, "loss"), (below, "test")):
            _curves(axes, chosen, name)
        above.set_title(f"{setting.name.lower()}, n = {n}", loc="left", fontsize=11)
        below.set_xlabel(r"weight decay $\beta$")
    panels[0][0].set_ylabel("train loss / that of zero")
    panels[1][0].set_ylabel("test loss / that of zero")
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
    return figure_bytes(figure, suffix)


def _curves(axes: Axes, rows: Sequence[Row], name: str) -> None:
    betas = [row.beta for row in rows]
    axes.axhline(1, color=GREY, linestyle=":", linewidth=1, label="zero network")
    for kind, (title, colour, style) in _SERIES.items():
        shares = [getattr(getattr(row, kind), name) / getattr(row.zero, name) for row in rows]
        axes.plot(betas, shares, style, color=colour, lw=1.4, ms=5, mfc="none", label=title)
    axes.set_xscale("log")
    plain(axes)


_SERIES: Mapping[str, tuple[str, str, str]] = {
    "linear": ("linear, optimum", COLOURS[0], "o-"),
    "relu": ("ReLU, least objective found", COLOURS[1], "s-"),
    "linear_sgd": ("linear, SGD of CP A.1.2", COLOURS[0], "o--"),
    "relu_sgd": ("ReLU, SGD of CP A.1.2", COLOURS[1], "s--"),
}


PROTOCOL, OPTIMA = ("linear_sgd", "relu_sgd"), ("linear", "relu")  # two ways to judge what CP says of SGD
_WAYS = {PROTOCOL: "by SGD as in CP", OPTIMA: "linear optimum, best ReLU network found"}


def claims(rows: Sequence[Row]) -> tuple[Claim, ...]:
    """What CP says in A.1.2, on its de-meaned data and, where that differs, on X X^T = I."""
    right, literal = ([row for row in rows if row.setting is s] for s in (Setting.CORRECTED, Setting.LITERAL))
    zero = [row for row in rows if row.beta >= 1]
    return (
        Claim(
            "for beta >= 1 the optimum of both networks is zero",
            f"certified on {len(zero)} rows",
            bool(zero) and all(_is_zero(row) for row in zero),
        ),
        *(_less(literal, "de-meaned data, as printed", way) for way in _WAYS),
        _less(right, "data with a constant column", OPTIMA),
        _orders(literal),
        *(_best_is_zero(literal, way) for way in _WAYS),
        *(_half(literal, way) for way in _WAYS),
    )


def _is_zero(row: Row) -> bool:
    """Whether no ReLU network is better than zero, by the certified bound, and the linear optimum is zero."""
    return row.lower_bound >= (1 - 1e-6) * row.zero.objective and row.linear.loss == row.zero.loss


def _share(row: Row, kind: str) -> float:
    """The test loss of a network over that of the zero network."""
    return float(getattr(row, kind).test) / row.zero.test


def _less(rows: Sequence[Row], data: str, way: tuple[str, str]) -> Claim:
    linear, relu = way
    more = [row.beta for row in rows if not getattr(row, linear).loss <= getattr(row, relu).loss + 1e-4 * row.zero.loss]
    ours = f"{_WAYS[way]}: larger at {len(more)} of {len(rows)} beta"
    why = "without a constant, linear networks cannot fit the mean of the labels" if more else ""
    return Claim(f"linear networks have equal or less training loss for all beta, on {data}", ours, not more, why)


def _orders(rows: Sequence[Row]) -> Claim:
    ratios = [row.relu_sgd.test / row.linear_sgd.test for row in rows if row.beta < 1]
    paper = "ReLU networks generalise significantly better, by orders of magnitude of the test loss, for all beta < 1"
    ours = f"{_WAYS[PROTOCOL]}: {min(ratios):.2f} to {max(ratios):.2f} of the linear network's test loss"
    return Claim(paper, ours, max(ratios) <= 0.1, "read as: at most a tenth")


def _best_is_zero(rows: Sequence[Row], way: tuple[str, str]) -> Claim:
    best = min(_share(row, way[0]) for row in rows)
    paper = "the best test loss of a linear network is that of the zero network"
    holds = best >= 1 - 1e-9
    why = "" if holds else "some beta below 1 is better than zero"
    return Claim(paper, f"{_WAYS[way]}: {best:.3f} of it", holds, why)


def _half(rows: Sequence[Row], way: tuple[str, str]) -> Claim:
    linear, relu = (min(_share(row, kind) for row in rows) for kind in way)
    return Claim(
        "the best test loss of the ReLU network is nearly half that of the linear one, 0.503 of the zero network's",
        f"{_WAYS[way]}: {relu:.3f} against {linear:.3f}, {relu / linear:.2f} times",
        relu <= 0.6 * linear,
        "read as: at most 0.6 times",
    )


def study(scale: Scale, means: Context) -> Finding:
    """Both kinds of data, and the claims."""
    settings = SETTINGS[scale]
    images = split_of(means.images("cifar-10"), settings.per_class)
    rows = run([images.whitened(kind) for kind in (Setting.CORRECTED, Setting.LITERAL)], settings)
    return Finding(rows, claims(rows), table(rows), lambda suffix: draw(rows, suffix), settings)


EXPERIMENT = Experiment(
    "R8",
    "cp_figure_5",
    "ReLU against linear networks on whitened CIFAR-10 with generated labels",
    "CP Fig. 5",
    0,
    study,
    ("cifar-10",),
)
