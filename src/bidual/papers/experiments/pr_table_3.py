"""R13, PR Table 3: parallel networks by descent and by convex programs on 21 small UCI sets."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from bidual.papers.reproduction import Claim, Context, Experiment, Finding, Scale
from bidual.papers.uci.duels import PAIRS, Count, Duel, duels
from bidual.papers.uci.models import TUNED, Settings
from bidual.papers.uci.study import SCALINGS, OnRow, Row, run_study
from bidual.reporting.plots import COLOURS, GREY, figure_bytes, new_figure, plain

TITLES = {
    "sgd": "SGD, non-convex",
    "convex_sgd": "SGD, convex",
    "adam": "Adam, non-convex",
    "convex_adam": "Adam, convex",
    "exact": "exact, convex",
    "relu": "ReLU network",
    "gated_tuned": "exact, convex",
    "svc": "SVC",
    "logistic": "logistic regression",
}
CAPTIONS = {
    "sum": "Loss summed over samples, beta = 0.5",
    "mean": "Loss averaged over samples, beta = 0.5",
    "tuned": "Tuned baselines",
}
_DRAWN = {"SGD": "o", "Adam": "s", "exact against Adam": "D"}
_REACH = 0.26  # of the figure's axis; wider bars leave the frame


SETTINGS: Mapping[Scale, Settings] = {
    "paper": Settings(),
    "cpu": Settings(splits=3, steps=400),
    "smoke": Settings(splits=2, n_networks=4, width=3, steps=10, min_steps=10, batch_size=8, relu_seconds=0.2),
}


class Paper(NamedTuple):
    """Test accuracies of PR Table 3 (p. 16)."""

    sgd: float
    convex_sgd: float
    adam: float
    convex_adam: float


PAPER: Mapping[str, Paper] = {
    "acute-inflammation": Paper(1.000, 1.000, 1.000, 1.000),
    "acute-nephritis": Paper(1.000, 1.000, 1.000, 1.000),
    "balloons": Paper(1.000, 1.000, 1.000, 1.000),
    "breast-cancer": Paper(0.690, 0.707, 0.655, 0.672),
    "breast-cancer-wisc-prog": Paper(0.750, 0.800, 0.800, 0.825),
    "congressional-voting": Paper(0.667, 0.667, 0.551, 0.597),
    "conn-bench-sonar-mines-rocks": Paper(0.714, 0.786, 0.738, 0.833),
    "echocardiogram": Paper(0.704, 0.704, 0.666, 0.703),
    "fertility": Paper(0.750, 0.800, 0.800, 0.800),
    "haberman-survival": Paper(0.710, 0.774, 0.677, 0.709),
    "heart-hungarian": Paper(0.831, 0.831, 0.779, 0.813),
    "hepatitis": Paper(0.645, 0.710, 0.709, 0.741),
    "ionosphere": Paper(0.887, 0.901, 0.929, 0.887),
    "molec-biol-promoter": Paper(0.818, 0.818, 0.727, 0.772),
    "musk-1": Paper(0.958, 0.927, 0.947, 0.927),
    "parkinsons": Paper(0.974, 1.000, 0.923, 1.000),
    "pittsburg-bridges-T-OR-D": Paper(0.952, 0.952, 0.809, 0.857),
    "planning": Paper(0.541, 0.568, 0.649, 0.703),
    "statlog-heart": Paper(0.759, 0.796, 0.759, 0.833),
    "trains": Paper(1.000, 1.000, 1.000, 1.000),
    "vertebral-column-2clases": Paper(0.806, 0.839, 0.758, 0.822),
}


def run(
    folder: str | Path,
    out: str | Path | None = None,
    names: Sequence[str] | None = None,
    settings: Settings | None = None,
    workers: int | None = 2,
    on_row: OnRow | None = None,
) -> list[Row]:
    """All methods in both scalings on the sets of Table 3, or on those named; see :func:`run_study`."""
    chosen = tuple(PAPER) if names is None else names
    return run_study(folder, chosen, settings or Settings(), out=out, workers=workers, on_row=on_row)


def table(rows: Sequence[Row]) -> str:
    """Markdown: for both scalings and for what is tuned, a line per set with mean accuracies +- standard errors."""
    return "\n\n".join(_accuracies(rows, scaling) for scaling in CAPTIONS)


def _accuracies(rows: Sequence[Row], scaling: str) -> str:
    paper = scaling in SCALINGS
    methods = [method for method in TITLES if (method in TUNED) != paper]
    found = {(row.name, row.method): row.accuracies for row in rows if row.scaling == scaling}
    sizes = {row.name: (str(row.n), str(row.d)) for row in rows if row.scaling == scaling}
    heads = ["set", "n", "d", *(["PR: SGD", "PR: Adam"] if paper else []), *(TITLES[method] for method in methods)]
    lines = [f"**{CAPTIONS[scaling]}**", "", _line(heads), _line(["---", *["---:"] * (len(heads) - 1)])]
    for name in sorted(sizes):
        theirs = _theirs(PAPER.get(name)) if paper else []
        lines.append(_line([name, *sizes[name], *theirs, *(_spread(found.get((name, one))) for one in methods)]))
    theirs = _theirs(Paper(*(fmean(column) for column in zip(*PAPER.values(), strict=True)))) if paper else []
    means = [[fmean(each) for (_, kind), each in found.items() if kind == method] for method in methods]
    return "\n".join([*lines, _line(["**mean**", "", "", *theirs, *(f"{fmean(m):.3f}" if m else "" for m in means)])])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _theirs(paper: Paper | None) -> list[str]:
    """Non-convex / convex, for each optimiser."""
    if paper is None:
        return ["", ""]
    return [f"{paper.sgd:.3f} / {paper.convex_sgd:.3f}", f"{paper.adam:.3f} / {paper.convex_adam:.3f}"]


def _spread(accuracies: tuple[float, ...] | None) -> str:
    return "" if accuracies is None else f"{fmean(accuracies):.3f} ± {Duel('', accuracies).error:.3f}"


def counts(rows: Sequence[Row]) -> dict[tuple[str, str], Count]:
    """Every pair in every scaling."""
    pairs = {(scaling, pair): duels(rows, scaling, pair) for scaling, pair in product(SCALINGS, PAIRS)}
    return {key: Count.of(several) for key, several in pairs.items() if several}


def counts_table(rows: Sequence[Row]) -> str:
    """Markdown: wins, ties and losses of the convex method, and which of them are more than noise."""
    heads = ["loss", "pair", "wins / ties / losses", "at least as good", "on single splits"]
    heads += ["wins / losses beyond two errors", "sign test p", "mean difference"]
    lines = [_line(heads), _line(["---", "---", *["---:"] * (len(heads) - 2)])]
    for (scaling, pair), count in counts(rows).items():
        total = count.wins + count.ties + count.losses
        cells = [scaling, pair, f"{count.wins} / {count.ties} / {count.losses}"]
        cells += [f"{count.wins + count.ties} of {total}", f"{min(count.at_least)} to {max(count.at_least)}"]
        cells += [f"{count.clear_wins} / {count.clear_losses}", f"{count.p_value:.2g}"]
        lines.append(_line([*cells, f"{count.mean:+.4f} ± {count.error:.4f}"]))
    return "\n".join(lines)


def clear_table(rows: Sequence[Row]) -> str:
    """Markdown: the differences beyond two standard errors, by name."""
    lines = [_line(["loss", "pair", "set", "difference"]), _line(["---", "---", "---", "---:"])]
    for scaling, pair in product(SCALINGS, PAIRS):
        clear = (duel for duel in duels(rows, scaling, pair) if duel.clear)
        for duel in sorted(clear, key=lambda duel: duel.name):
            lines.append(_line([scaling, pair, duel.name, f"{duel.mean:+.3f} ± {duel.error:.3f}"]))
    return "\n".join(lines)


def draw(rows: Sequence[Row], suffix: str = ".png") -> bytes:
    """Accuracy of convex minus non-convex for every set with two standard errors, a panel for each scaling; PR's
    differences are hollow."""
    names = sorted({row.name for row in rows if row.scaling in SCALINGS})
    sizes = {row.name: row.n for row in rows}
    figure = new_figure(10.5, 0.36 * len(names) + 1.6)
    panels = figure.subplots(1, len(SCALINGS), sharey=True)
    for axes, scaling in zip(panels, SCALINGS, strict=True):
        for place, (pair, colour) in enumerate(zip(_DRAWN, COLOURS, strict=False)):
            _points(axes, duels(rows, scaling, pair), names, pair, 0.24 * (place - 1), colour)
        axes.axvline(0, color=GREY, linewidth=1)
        axes.set_xlim(-_REACH, _REACH)
        axes.set_title(CAPTIONS[scaling], fontsize=11)
        plain(axes)
    panels[0].set_yticks(range(len(names)), [f"{name} ({sizes[name]})" for name in names])
    panels[0].set_ylim(len(names) - 0.4, -0.6)
    figure.supxlabel("test accuracy, convex minus non-convex", fontsize=10)
    figure.legend(handles=list(_legend()), loc="outside upper center", ncols=5, frameon=False)
    return figure_bytes(figure, suffix)


def _points(axes: Axes, found: Sequence[Duel], names: Sequence[str], pair: str, shift: float, colour: str) -> None:
    places = [names.index(duel.name) + shift for duel in found]
    means, errors = [duel.mean for duel in found], [2 * duel.error for duel in found]
    axes.errorbar(means, places, xerr=errors, fmt=_DRAWN[pair], color=colour, markersize=4, elinewidth=1)
    first, second = PAIRS[pair]
    if first in Paper._fields:
        shown = [(duel.name, place) for duel, place in zip(found, places, strict=True) if duel.name in PAPER]
        theirs = [getattr(PAPER[name], first) - getattr(PAPER[name], second) for name, _ in shown]
        heights = [place for _, place in shown]
        axes.plot(theirs, heights, _DRAWN[pair], color=colour, markerfacecolor="none", markersize=7)


def _legend() -> Iterator[Line2D]:
    for (pair, marker), colour in zip(_DRAWN.items(), COLOURS, strict=False):
        yield Line2D([], [], color=colour, marker=marker, markersize=4, linewidth=1, label=pair)
    for pair, colour in zip(("SGD", "Adam"), COLOURS, strict=False):
        marker, label = _DRAWN[pair], f"{pair}, PR Table 3"
        yield Line2D(
            [], [], color=colour, marker=marker, markersize=7, markerfacecolor="none", linestyle="", label=label
        )


def claims(rows: Sequence[Row]) -> tuple[Claim, ...]:
    """The counts that PR gives below Table 3, for both readings of its loss."""
    found, total = counts(rows), len({row.name for row in rows})
    printed = {"SGD": sum(p.convex_sgd >= p.sgd for p in PAPER.values())}
    printed["Adam"] = sum(p.convex_adam >= p.adam for p in PAPER.values())
    pairs = {key: count for key, count in found.items() if key[1] in printed}
    return (
        *(_as_good(pair, scaling, count, printed[pair], total) for (scaling, pair), count in pairs.items()),
        *(_beyond_chance(pair, scaling, count) for (scaling, pair), count in pairs.items()),
    )


def _as_good(pair: str, scaling: str, count: Count, printed: int, total: int) -> Claim:
    good = count.wins + count.ties
    ours = (
        f"loss {CAPTIONS[scaling].split()[1]}: on {good} of {total} by the mean over splits, on "
        f"{min(count.at_least)} to {max(count.at_least)} by single splits"
    )
    paper = f"{pair}: convex training is at least as good on {printed} of {len(PAPER)} sets"
    holds = good * len(PAPER) >= printed * total
    why = "" if holds else "PR has one split; over several, wins and losses are about as many"
    return Claim(paper, ours, holds, why)


def _beyond_chance(pair: str, scaling: str, count: Count) -> Claim:
    """The two-sided sign test over sets, at 5 %."""
    ours = (
        f"loss {CAPTIONS[scaling].split()[1]}: {count.wins} wins, {count.losses} losses, sign test p = "
        f"{count.p_value:.2g}; beyond two errors {count.clear_wins} and {count.clear_losses}; mean difference "
        f"{count.mean:+.4f} ± {count.error:.4f}"
    )
    holds = count.wins > count.losses and count.p_value < 0.05
    why = "" if holds else "the sign test does not reject a coin at 5 %"
    return Claim(f"our reading, {pair}: it wins on more sets than chance gives", ours, holds, why)


def study(scale: Scale, means: Context) -> Finding:
    """Go on from the rows of an earlier run, and check the claims."""
    settings, names = SETTINGS[scale], tuple(PAPER)[:2] if scale == "smoke" else tuple(PAPER)
    folder = means.tables(names)
    rows = run(folder, means.folder / "rows.json", names, settings, means.workers, on_row=_teller(means))
    text = "\n\n".join([counts_table(rows), clear_table(rows), table(rows)])
    return Finding(rows, claims(rows), text, lambda suffix: draw(rows, suffix), settings)


def _teller(means: Context) -> Callable[[Row], None]:
    return lambda row: means.say(f"{row.name}, {row.method}, {row.scaling}: {row.seconds:.1f} s")


EXPERIMENT = Experiment(
    "R13",
    "pr_table_3",
    "21 UCI sets: parallel networks by descent and by the convex program",
    "PR Table 3",
    0,
    study,
    ("uci",),
)
