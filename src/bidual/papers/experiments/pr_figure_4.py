"""R10, PR Fig. 4: training on the rank-r part of the samples, the bound of PR Theorem 2, and activation patterns.

The figure has m_1 = m_2 = 1. A sub-network is then one ReLU neuron (the second ReLU does nothing to what is not
negative, or removes it) and the path norm is |u_k| |w_k|: the "three-layer" network is a two-layer one, and the optimum
is found, and certified over all patterns, by the exact training of two-layer networks.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from torch import Tensor

from bidual.losses import LOSSES, Squared
from bidual.losses.datafit import Datafit
from bidual.papers.methods.low_rank import guarantee, truncated
from bidual.papers.reproduction import Claim, Context, Experiment, Finding, Scale
from bidual.patterns import count_bound
from bidual.patterns import enumerate as all_patterns
from bidual.problems.certificate import Certificate
from bidual.problems.parallel import ParallelProblem
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits
from bidual.reporting.plots import COLOURS, GREY, figure_bytes, new_figure, plain
from bidual.training.relu.plan import ReluPlan

N, BETA, SIGMA = 15, 0.1, 1.0
PRINTED_R = 1.0  # PR Remark 2 takes it for "l2 loss"; squared loss has no Lipschitz constant at all
Style = Literal["-", "--", ":"]
_MOST_PATTERNS = 10_000  # that are listed; beyond, the count of samples in general position


@dataclass(frozen=True)
class RankRow:
    """One loss on one data set: p_r of the network trained on X_r, and bounds of the optimum p* on X.

    Attributes:
        d, rank, loss, seed: what was trained.
        low: p_r, the objective on X of the network trained on X_r.
        optimum, lower_bound, gap: of the training on X, certified.
        factor: 1 + R sigma / beta, which bounds p_r / p* (PR Theorem 2, corrected); None without a Lipschitz constant.
        zero: the objective of the zero network.
    """

    d: int
    rank: int
    loss: str
    seed: int
    low: float
    optimum: float
    lower_bound: float
    gap: float
    factor: float | None
    zero: float

    @property
    def ratio(self) -> float:
        """p_r over the lower bound of p*: no less than p_r / p*."""
        return self.low / self.lower_bound

    @property
    def printed(self) -> float:
        """The factor of PR eq. 10, squared; for squared loss with the R = 1 that PR Remark 2 takes."""
        return (1 + PRINTED_R * SIGMA / BETA if self.factor is None else self.factor) ** 2

    @property
    def vacuous(self) -> bool:
        """Whether the zero network satisfies the corrected bound too; no where there is none."""
        return self.factor is not None and self.zero <= self.factor * self.lower_bound


@dataclass(frozen=True)
class PatternRow:
    """How many activation patterns X and X_r have; ``listed`` if those of X were enumerated."""

    d: int
    rank: int
    full: int
    low: int
    listed: bool


@dataclass(frozen=True)
class Figure4:
    """Both panels."""

    ratios: tuple[RankRow, ...]
    patterns: tuple[PatternRow, ...]


@dataclass(frozen=True)
class ScaledRow:
    """Squared loss with targets ``size`` times as large: p_r / p* against the printed bound with R = 1."""

    size: float
    ratio: float
    printed: float


def make_data(
    d: int, rank: int, seed: int = 0, n: int = N, n_networks: int = 5
) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n 1"]]:
    """Normal X with sigma_(r+1) = ... = sigma_d = 1, and a random teacher with m_1 = m_2 = 1 plus 0.1 noise (PR 4)."""
    generator = torch.Generator().manual_seed(seed)
    shapes = (n, d), (n_networks, d, 1), (n_networks, 1, 1), (n_networks, 1, 1), (n, 1)
    X, first, second, third, noise = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    U, s, Vt = torch.linalg.svd(X, full_matrices=False)
    s[rank:] = SIGMA
    X = (U * s) @ Vt
    return X, ((X @ first).relu() @ second).relu().matmul(third).sum(0) + 0.1 * noise


def run(
    dimensions: Sequence[int] = (2, 4, 6, 8),
    seeds: Sequence[int] = (0, 1, 2),
    losses: Sequence[str] = ("squared", "huber", "absolute", "logistic"),
    n: int = N,
    tol: float = 1e-4,
    max_time: float | None = 60,
) -> Figure4:
    """Train on X and on X_r, r = d / 2, for every loss; logistic loss takes the signs of the targets."""
    ratios = [_ratio(d, seed, loss, n, tol, max_time) for d, seed, loss in product(dimensions, seeds, losses)]
    return Figure4(tuple(ratios), tuple(_patterns(d, seeds[0], n) for d in dimensions))


def _ratio(d: int, seed: int, loss: str, n: int, tol: float, max_time: float | None) -> RankRow:
    rank = d // 2
    X, y = make_data(d, rank, seed, n)
    targets = torch.where(y > 0, 1.0, -1.0).to(y) if LOSSES[loss].classification else y
    data = Datafit(LOSSES[loss](), targets)
    low, best = low_rank_value(X, data, rank, tol), optimum(X, data, tol, max_time)
    known = guarantee(ParallelProblem(X, data, BETA, 1), rank)
    factor = None if data.lipschitz is None else known.factor
    return RankRow(d, rank, loss, seed, low, best.primal, best.dual, best.relative_gap, factor, known.zero)


def optimum(X: Float[Tensor, "n d"], data: Datafit, tol: float, max_time: float | None = None) -> Certificate:
    """p*, certified over all patterns of X."""
    return ReluPlan(X).train(ReluProblem(X, data, BETA), Limits(tol, max_time=max_time)).certificate


def low_rank_value(X: Float[Tensor, "n d"], data: Datafit, rank: int, tol: float) -> float:
    """p_r: the objective on X of the network that is best on X_r."""
    small = truncated(X, rank)
    done = ReluPlan(small).train(ReluProblem(small, data, BETA), Limits(tol))
    return ReluProblem(X, data, BETA).restricted_to(done.neurons).primal(done.Z)


def _patterns(d: int, seed: int, n: int) -> PatternRow:
    rank = d // 2
    X = make_data(d, rank, seed, n)[0]
    full, listed = count_bound(n, d), count_bound(n, d) <= _MOST_PATTERNS
    if listed:
        full = len(all_patterns(X).active)
    return PatternRow(d, rank, full, len(all_patterns(truncated(X, rank)).active), listed)


def run_scaled(sizes: Sequence[float] = (1.0, 10.0, 100.0, 1000.0), n: int = 6) -> list[ScaledRow]:
    """A counterexample to PR eq. 10 for squared loss with R = 1: targets along the direction that X_r lacks.

    X (n, 2) has singular values 3 and sigma = 1, and y = size * (X v_2)_+. The loss that remains on X_1 grows with the
    square of the size, the optimum on X with the size itself.
    """
    draw_of_X = torch.randn(n, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    U, _, Vt = torch.linalg.svd(draw_of_X, full_matrices=False)
    X = (U * torch.tensor([3.0, SIGMA]).to(U)) @ Vt
    rows = []
    for size in sizes:
        data = Datafit(Squared(), size * (X @ Vt[1:].T).relu())
        ratio = low_rank_value(X, data, 1, 1e-6) / optimum(X, data, 1e-6).dual
        rows.append(ScaledRow(size, ratio, (1 + PRINTED_R * SIGMA / BETA) ** 2))
    return rows


def table(result: Figure4) -> str:
    """Markdown: a line for each d and loss over all seeds, then one for each d with its patterns."""
    kinds = dict.fromkeys((row.d, row.loss) for row in result.ratios)
    lines = [_line([row for row in result.ratios if (row.d, row.loss) == kind]) for kind in kinds]
    counts = [
        f"| {row.d} | {row.rank} | {row.full:,} | {row.low:,} | {'yes' if row.listed else 'no, general position'} |"
        for row in result.patterns
    ]
    head = "| d | r | loss | p_r / p* | L(0) / p* | corrected bound | printed bound | vacuous | certified gap of p* |"
    below = "| d | r | patterns of X | patterns of X_r | enumerated |"
    return "\n".join([head, "|" + "---|" * 9, *lines, "", below, "|" + "---|" * 5, *counts])


def _line(rows: Sequence[RankRow]) -> str:
    first, ratios, zeros = rows[0], [row.ratio for row in rows], [row.zero / row.lower_bound for row in rows]
    bound = "none" if first.factor is None else f"{first.factor:.1f}"
    vacuous = "-" if first.factor is None else f"{sum(row.vacuous for row in rows)} of {len(rows)}"
    return (
        f"| {first.d} | {first.rank} | {first.loss} | {min(ratios):.2f} to {max(ratios):.2f} "
        f"| {min(zeros):.2g} to {max(zeros):.2g} | {bound} | {first.printed:.0f} "
        f"| {vacuous} | {max(row.gap for row in rows):.1e} |"
    )


def scaled_table(rows: Sequence[ScaledRow]) -> str:
    """Markdown: a line for each size of the targets."""
    lines = [f"| {row.size:g} | {row.ratio:.4g} | {row.printed:g} |" for row in rows]
    return "\n".join(["| size of y | p_r / p* | printed bound, R = 1 |", "|---|---|---|", *lines])


def draw(result: Figure4, suffix: str = ".png") -> bytes:
    """(a) the ratio p_r / p* and what bounds it, (b) the patterns of X and X_r, against d."""
    figure = new_figure(10.5, 4.8)
    left, right = figure.subplots(1, 2, width_ratios=[1.35, 1])
    _draw_ratios(left, result.ratios)
    _draw_patterns(right, result.patterns)
    for axes in (left, right):
        axes.set_yscale("log")
        axes.set_xlabel("features $d$, rank $r = d/2$")
        plain(axes)
    figure.suptitle("$m_1 = m_2 = 1$: these parallel networks are two-layer networks", fontsize=11)
    handles = list(_legend(result.ratios))
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, fontsize=8.5)
    return figure_bytes(figure, suffix)


def _draw_ratios(axes: Axes, rows: Sequence[RankRow]) -> None:
    losses, ds = list(dict.fromkeys(row.loss for row in rows)), sorted({row.d for row in rows})
    for row in rows:
        index = losses.index(row.loss)
        place = ds.index(row.d) + 0.2 * (index - (len(losses) - 1) / 2)
        colour, marker = COLOURS[index], "x" if row.factor is None else "o"
        filled = colour if row.factor is None or not row.vacuous else "none"
        axes.scatter([place], [row.zero / row.lower_bound], s=60, marker="_", color=GREY, linewidth=0.9)
        axes.scatter([place], [row.ratio], s=30, marker=marker, color=colour, facecolor=filled, zorder=3)
    for height, style, _ in _bounds(rows):
        axes.axhline(height, color=GREY, linewidth=1, linestyle=style)
    axes.set_xticks(range(len(ds)), [str(d) for d in ds])
    axes.set_xlim(-0.5, len(ds) - 0.5)
    axes.set_ylabel("objective / $p^*$")
    axes.set_title("(a) networks trained on the rank-$r$ part, judged on all of $X$", loc="left", fontsize=11)


def _bounds(rows: Sequence[RankRow]) -> list[tuple[float, Style, str]]:
    """Height, style and label of every bound; equal ones once, whatever their rounding."""
    lines: dict[str, tuple[float, Style]] = {}
    for row in rows:
        if row.factor is None:
            lines[f"printed bound {row.printed:.4g}, $R = 1$ (false)"] = row.printed, ":"
        else:
            lines[f"corrected bound {row.factor:.3g}, $R = \\sqrt{{n}}$"] = row.factor, "-"
            lines[f"printed bound {row.printed:.4g}, $R = \\sqrt{{n}}$"] = row.printed, "--"
    return [(height, style, label) for label, (height, style) in lines.items()]


def _legend(rows: Sequence[RankRow]) -> Iterator[Line2D]:
    kinds = dict.fromkeys((row.loss, row.factor is None) for row in rows)
    for (loss, unbounded), colour in zip(kinds, COLOURS, strict=False):
        marker, note = ("x", " (no bound)") if unbounded else ("o", "")
        yield Line2D([], [], color=colour, marker=marker, linestyle="", label=f"$p_r$, {loss}{note}")
    yield Line2D([], [], color=GREY, marker="o", markerfacecolor="none", linestyle="", label="hollow: bound vacuous")
    yield Line2D([], [], color=GREY, marker="_", linestyle="", markersize=9, label="zero network")
    for _, style, label in _bounds(rows):
        yield Line2D([], [], color=GREY, linewidth=1, linestyle=style, label=label)


def _draw_patterns(axes: Axes, rows: Sequence[PatternRow]) -> None:
    places = range(len(rows))
    for key, label, colour in (("full", "$X$", COLOURS[0]), ("low", "$X_r$", COLOURS[1])):
        counts = [getattr(row, key) for row in rows]
        axes.plot(places, counts, "o-", color=colour, label=f"patterns of {label}")
        for place, count in zip(places, counts, strict=True):
            below = (0, -14) if key == "low" else (0, 7)
            axes.annotate(f"{count:,}", (place, count), below, textcoords="offset points", ha="center", fontsize=8.5)
    axes.set_xticks(places, [str(row.d) for row in rows])
    axes.margins(x=0.12, y=0.12)
    axes.set_ylabel("activation patterns")
    axes.set_title("(b) activation patterns", loc="left", fontsize=11)
    axes.legend(frameon=False, loc="upper left")


SETTINGS: Mapping[Scale, Mapping[str, Any]] = {  # of run()
    "paper": {},
    "cpu": {"seeds": (0, 1), "max_time": 20},
    "smoke": {"dimensions": (2, 4), "seeds": (0,), "losses": ("squared", "logistic"), "n": 8},
}


def claims(result: Figure4, scaled: Sequence[ScaledRow]) -> tuple[Claim, ...]:
    """What PR says of Theorem 2, in section 4 and Remark 2."""
    squared = [row for row in result.ratios if row.factor is None]
    counts = "; ".join(f"d = {row.d}: {row.low:,} instead of {row.full:,}" for row in result.patterns)
    return (
        Claim(
            "p_r is closer to the optimum than the bound of Remark 2, with l2 loss",
            f"ratios of {min(row.ratio for row in squared):.3g} to {max(row.ratio for row in squared):.3g}, bound "
            f"{squared[0].printed:g}, in {len(squared)} runs of squared loss",
            all(row.ratio <= row.printed for row in squared),
        ),
        _in_general(scaled),
        _corrected([(row, row.factor) for row in result.ratios if row.factor is not None]),
        Claim(
            "the rank-r part has significantly fewer activation patterns",
            counts,
            all(row.low < row.full for row in result.patterns),
        ),
    )


def _in_general(scaled: Sequence[ScaledRow]) -> Claim:
    worst = max(scaled, key=lambda row: row.ratio / row.printed)
    return Claim(
        "Remark 2: for l2 loss the bound holds with R = 1, whatever the data",
        f"with targets {worst.size:g} times as large the ratio is {worst.ratio:.3g}, the bound {worst.printed:g}",
        worst.ratio <= worst.printed,
        "squared loss has no Lipschitz constant" if worst.ratio > worst.printed else "",
    )


def _corrected(rows: Sequence[tuple[RankRow, float]]) -> Claim:
    exceeded, empty = sum(row.ratio > factor for row, factor in rows), sum(row.vacuous for row, _ in rows)
    return Claim(
        "Theorem 2 as corrected, 1 + R sigma / beta, for losses that have a Lipschitz constant R",
        f"exceeded in {exceeded} of {len(rows)} runs; largest ratio {max(row.ratio for row, _ in rows):.3g}, bound "
        f"{max(factor for _, factor in rows):.3g}",
        exceeded == 0,
        f"in {empty} runs the zero network satisfies it too",
    )


def study(scale: Scale, means: Context) -> Finding:
    """Train on X and X_r, and check the bounds."""
    result, scaled = run(**SETTINGS[scale]), run_scaled()
    text = "\n\n".join([table(result), "Squared loss with larger targets:", scaled_table(scaled)])
    data = {"figure": result, "scaled": scaled}
    return Finding(data, claims(result, scaled), text, lambda suffix: draw(result, suffix), SETTINGS[scale])


EXPERIMENT = Experiment(
    "R10",
    "pr_figure_4",
    "Training on the rank-r part of the data, and the bound of Theorem 2",
    "PR Fig. 4",
    0,
    study,
)
