"""A race as a Markdown table and as a figure: the gap over time, a panel for each problem, a line for each system."""

import math
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from bidual.reporting.plots import COLOURS, GREY, figure_bytes, new_figure, plain
from race_results import CaseResult, Ending, Race, Run
from race_table import row
from systems import OURS, SYSTEMS

_FLOOR = 1e-12  # what is smaller is drawn here
_COLUMNS = 4
_BLUE, _ORANGE, _GREEN, _PINK, _VIOLET, _OLIVE = COLOURS
_STYLES = {
    OURS: (_BLUE, "o-"),
    "bidual fista": (_BLUE, "v:"),
    "bidual last point": (_BLUE, "s:"),
    "pyscnn": (_ORANGE, "o-"),
    "adelie": (_GREEN, "o-"),
    "celer": (_PINK, "o-"),
    "skglm": (_VIOLET, "o-"),
    "clarabel": (_OLIVE, "o-"),
    "cvxpy clarabel": (_OLIVE, "v--"),
    "cvxpy scs": (_OLIVE, "s:"),
}


def markdown(race: Race) -> str:
    """The table, with a column for every system that took part, below what was measured where."""
    rivals = [name for name in SYSTEMS if any(run.system == name for case in race.cases for run in case.rivals)]
    head = ["work", "target", OURS, *rivals, "ratio", "met"]
    rows = [row(case) for case in race.cases]
    lines = [
        [words.work, words.target, words.ours, *(words.rivals.get(name, "") for name in rivals), words.ratio, words.met]
        for words in rows
    ]
    table = [head, ["---"] * len(head), *lines]
    return "\n".join([*_preface(race), *("| " + " | ".join(map(_escaped, line)) + " |" for line in table), ""])


def _preface(race: Race) -> list[str]:
    machine, commit = race.facts["machine"], race.facts["commit"]
    met = sum(case.met is True for case in race.cases)
    installed = sorted({f"{k} {v}" for found in race.facts["versions"].values() for k, v in found.items()})
    return [
        "# Time to equal gaps",
        "",
        f"{race.facts['date']}, commit {commit[:12]}{'+' * commit.endswith('+')}, {machine['processor']}, one thread. "
        f"Versions: {', '.join(installed)}.",
        "",
        "CPU seconds of the fastest solve whose relative gap, by the best dual value that anybody found, is at most "
        "the target. The ratio is that of the rival which comes closest to the demand. "
        f"Met: {met} of {len(race.cases)}.",
        "",
    ]


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def curves(cases: Sequence[CaseResult], suffix: str = ".png") -> bytes:
    columns = min(_COLUMNS, len(cases))
    rows = math.ceil(len(cases) / columns)
    figure = new_figure(max(3.3 * columns, 7.0), 2.7 * rows + 0.8)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, case in zip(grid, cases, strict=False):
        _panel(axes, case)
    for axes in grid[len(cases) :]:
        axes.set_visible(False)
    figure.supxlabel("CPU seconds of a solve", fontsize=10)
    figure.supylabel("relative gap", fontsize=10)
    shown = {run.system for case in cases for run in case.runs}
    figure.legend(handles=_legend(shown), loc="outside upper center", ncols=min(len(shown) + 2, 7), frameon=False)
    return figure_bytes(figure, suffix)


def _panel(axes: Axes, case: CaseResult) -> None:
    axes.axhline(case.target, color=GREY, linestyle="--", linewidth=1)
    for run in case.runs:
        _line(axes, run, case.limit)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(_decade(axes.get_xlim()[0], math.floor), _decade(axes.get_xlim()[1], math.ceil))
    axes.set_ylim(_FLOOR / 3, 3)
    axes.set_title(case.name, loc="left", fontsize=9)
    axes.tick_params(labelsize=8)
    axes.minorticks_off()
    plain(axes)


def _decade(seconds: float, rounded: Callable[[float], int]) -> float:
    return 10.0 ** rounded(math.log10(seconds))


def _line(axes: Axes, run: Run, limit: float) -> None:
    """Every solve a faint point, a line along the best so far; a cross where a solve was stopped."""
    colour, style = _STYLES[run.system]
    points = sorted((rung.cpu, max(rung.gap, _FLOOR)) for rung in run.rungs if rung.gap is not None)
    best = [point for i, point in enumerate(points) if all(point[1] < other[1] for other in points[:i])]
    if points:
        axes.plot(*zip(*points, strict=True), style[0], color=colour, markersize=3, alpha=0.3)
        axes.plot(*zip(*best, strict=True), style, color=colour, markersize=3.5, linewidth=1.1)
    if run.ending is Ending.LIMIT:
        gap = 1.0 if run.best_gap is None else max(run.best_gap, _FLOOR)
        axes.plot(limit, gap, "x", color=colour, markersize=7, markeredgewidth=1.8)


def _legend(shown: set[str]) -> list[Line2D]:
    systems = [(name, *_STYLES[name]) for name in _STYLES if name in shown]
    lines = [
        Line2D([], [], color=colour, marker=s[0], linestyle=s[1:], markersize=4, label=n) for n, colour, s in systems
    ]
    target = Line2D([], [], color=GREY, linestyle="--", linewidth=1, label="target")
    stopped = Line2D([], [], color=GREY, marker="x", linestyle="", label="stopped")
    return [*lines, target, stopped]
