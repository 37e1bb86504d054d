"""R12, PR Fig. 5: test accuracy over time of the penalty form and of networks, on CIFAR-10 and Fashion-MNIST."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from matplotlib.axes import Axes

from bidual.papers.experiments.image_panels import race_on
from bidual.papers.experiments.noise import clearly_above
from bidual.papers.experiments.race_results import TITLES, Config, Panel
from bidual.papers.reproduction import Claim, Context, Experiment, Finding, Scale
from bidual.reporting.plots import COLOURS, figure_bytes, new_figure, plain

NAMES = ("cifar-10", "fashion-mnist")
CONFIGS: Mapping[Scale, Config] = {
    "paper": Config("paper", 40, 100, None, 1000, 600.0),
    "cpu": Config("cpu", 20, 10, 10_000, 500, 16.0, 2000, 2.0, "processor", True, 1000),
    "smoke": Config("smoke", 3, 4, 50, 20, 0.5, 20, 0.02, "processor", True, 20, max_epochs=5),
}


@dataclass(frozen=True)
class Result:
    """A panel for each data set."""

    config: Config
    device: str
    panels: tuple[Panel, ...]


def run(scale: Scale, means: Context, names: Sequence[str] = NAMES, seed: int = 0) -> Result:
    """Race all methods on every data set; ``seed`` is that of images, cells, starts and batches."""
    config = CONFIGS[scale]
    data = [means.images(name) for name in names]  # missing files are reported before any race
    panels = [race_on(images, config, means.device, seed, means.say) for images in data]
    return Result(config, means.device, tuple(panels))


def table(result: Result) -> str:
    """Markdown: a line per method for every data set, and what the penalty form is worth as a network."""
    c = result.config
    head = (
        f"Configuration `{c.name}` on {result.device}: K = {c.n_networks}, m_1 = {c.width}, batches of {c.batch_size}"
    )
    return "\n\n".join([f"{head}, {c.clock} clock.", *(_panel_table(panel) for panel in result.panels)])


def _panel_table(panel: Panel) -> str:
    level = _level(panel)
    heads = ["method", "optimiser", "rate", "epochs", "objective", "test accuracy", "highest"]
    heads.append(f"seconds to {level:.3f}")
    note = f" ({panel.note})" if panel.note else ""
    lines = [f"**{panel.name}**, n = {panel.n}, d = {panel.d}{note}", "", _line(heads)]
    lines.append(_line(["---", "---", *["---:"] * (len(heads) - 2)]))
    for curve in panel.curves:
        last, reached = curve.points[-1], curve.seconds_to(level)
        cells = [TITLES[curve.method], curve.optimiser, f"{curve.rate:.2g}", f"{last.epochs:.1f}"]
        cells += [f"{last.objective:.4f}", f"{last.accuracy:.4f}", f"{curve.highest:.4f}"]
        cells.append(f"{reached:.1f}" if reached < inf else "never")
        lines.append(_line(cells))
    for more in (panel.decoded, panel.certified):
        lines += [] if more is None else ["", str(more)]
    return "\n".join(lines)


def _level(panel: Panel) -> float:
    """The accuracy that times are taken to: 95 % of the best final one."""
    return 0.95 * max(curve.points[-1].accuracy for curve in panel.curves)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def draw(result: Result, suffix: str = ".png") -> bytes:
    """Test accuracy against seconds, a panel for each data set; a cross is the decoded ReLU network."""
    figure = new_figure(5.2 * len(result.panels), 4.2)
    panels = figure.subplots(1, len(result.panels), squeeze=False)[0]
    for axes, panel in zip(panels, result.panels, strict=True):
        _curves(axes, panel)
        axes.set_title(f"{panel.name}, {panel.n} images, configuration {result.config.name}", loc="left", fontsize=11)
        axes.set_xlabel(f"seconds ({result.config.clock})")
        plain(axes)
    panels[0].set_ylabel("test accuracy")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False)
    return figure_bytes(figure, suffix)


def _curves(axes: Axes, panel: Panel) -> None:
    for curve, colour in zip(panel.curves, COLOURS, strict=True):
        style = "o-" if curve.method == "convex" else "o--" if curve.method == "decay" else "o:"
        seconds, heights = zip(*((p.seconds, p.accuracy) for p in curve.points[1:]), strict=True)
        axes.plot(seconds, heights, style, color=colour, markersize=3.5, linewidth=1.5, label=TITLES[curve.method])
    if panel.decoded is not None:
        end, label = panel.curves[0].points[-1].seconds, "decoded from (11), a ReLU network"
        axes.plot([end], [panel.decoded.test], "x", color=COLOURS[0], markersize=8, label=label)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")


def claims(result: Result) -> tuple[Claim, ...]:
    """What PR says of Fig. 5, for each data set."""
    return tuple(claim for panel in result.panels for claim in _panel_claims(panel))


def _panel_claims(panel: Panel) -> tuple[Claim, ...]:
    level = _level(panel)
    seconds = {curve.method: curve.seconds_to(level) for curve in panel.curves}
    ends = {curve.method: curve.points[-1].accuracy for curve in panel.curves}
    rival = min((method for method in seconds if method != "convex"), key=lambda method: seconds[method])
    best = max((method for method in ends if method != "convex"), key=lambda method: ends[method])
    return (
        Claim(
            f"{panel.name}: the convex form converges faster",
            f"{_when(seconds['convex'])} to an accuracy of {level:.3f}, {TITLES[rival]} {_when(seconds[rival])}",
            seconds["convex"] < seconds[rival],
            "a step of (11) costs 2 c times one of the network",
        ),
        Claim(
            f"{panel.name}: the convex form has a higher final accuracy",
            f"{ends['convex']:.4f}, {TITLES[best]} {ends[best]:.4f}",
            clearly_above(ends["convex"], ends[best], panel.n_test),
            f"at the end of the same seconds, by more than the noise of {panel.n_test:,} test images",
        ),
        Claim(
            f"{panel.name}: path regularisation yields a higher final accuracy than weight decay",
            f"SGD: {ends['sgd']:.4f} against {ends['decay']:.4f}",
            clearly_above(ends["sgd"], ends["decay"], panel.n_test),
            "by more than noise",
        ),
        Claim(
            f"{panel.name}: weight decay converges faster than path regularisation",
            f"to an accuracy of {level:.3f}: {_when(seconds['decay'])} against {_when(seconds['sgd'])}",
            seconds["decay"] < seconds["sgd"],
            "by the first mark above it; marks are a factor of 1.5 apart",
        ),
    )


def _when(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < inf else "never"


def study(scale: Scale, means: Context) -> Finding:
    """Race, and check the claims."""
    result = run(scale, means)
    return Finding(result, claims(result), table(result), lambda suffix: draw(result, suffix), CONFIGS[scale])


EXPERIMENT = Experiment(
    "R12",
    "pr_figure_5",
    "Test accuracy over time: the penalty form against SGD, Adam, Adagrad, Adadelta and weight decay",
    "PR Fig. 5",
    0,
    study,
    NAMES,
)
