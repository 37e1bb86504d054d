"""R6, CP Fig. 3: on the spiral, the relaxation (19) and every way to train, over a range of beta."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from matplotlib.ticker import LogLocator, NullFormatter
from torch import Tensor

from bidual.io.datasets import make_spiral
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.papers.experiments.descent import GradientDescent
from bidual.papers.reproduction import Claim, Context, Experiment, Finding, Scale
from bidual.polar import Faces
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits
from bidual.reporting.plots import COLOURS, GREY, figure_bytes, new_figure, plain
from bidual.solvers.driver import solve
from bidual.training.copositive import Copositive, relax
from bidual.training.relu.column_generation import ColumnGeneration
from bidual.training.relu.cutting_planes import CuttingPlanes
from bidual.training.relu.frank_wolfe import FrankWolfe

BETAS = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
TOL = 1e-6
_FLOOR = 1e-10  # what is smaller is drawn here


class Found(NamedTuple):
    """The objective that a method came to, or the relaxation's lower bound, and its seconds of the processor."""

    value: float
    seconds: float


@dataclass(frozen=True)
class SpiralRow:
    """One beta: the certified optimum by column generation, its relative gap and seconds, and the other methods.

    Attributes:
        t: the price of the optimal network, the budget that Algorithm 1 is given.
        algorithm_1: by number of iterations.
        relaxation: the lower bound that CP (19) proves.
        rounded: the network that is made from it; its seconds are for both.
    """

    beta: float
    optimum: float
    lower_bound: float
    gap: float
    seconds: float
    neurons: int
    t: float
    gradient_descent: Found
    algorithm_1: Mapping[int, Found]
    cutting_planes: Found
    relaxation: Found
    rounded: Found

    @property
    def descent(self) -> float:
        return self.gradient_descent.value

    @property
    def excess(self) -> float:
        """How far descent stayed above the lower bound, relatively."""
        return self.above(self.gradient_descent)

    def above(self, found: Found) -> float:
        """How far a network is above the certified lower bound, relatively."""
        return found.value / self.lower_bound - 1

    @property
    def looseness(self) -> float:
        """How far the relaxation may be below the optimum, relatively."""
        return 1 - self.relaxation.value / self.optimum


def run(
    betas: Sequence[float] = BETAS,
    n: int = 60,
    n_neurons: int = 1000,
    epochs: int = 8000,
    trials: int = 1,
    seed: int = 0,
    iterations: Sequence[int] = (1000, 5000),
) -> list[SpiralRow]:
    """The spiral with one-hot labels and squared loss; epochs and the fewer iterations are those of CP A.1.5."""
    samples, labels = make_spiral(n, seed=seed)
    X, Y = torch.from_numpy(samples), torch.eye(3, dtype=torch.float64)[torch.from_numpy(labels)]
    descent, seeds = GradientDescent(n_neurons, epochs), tuple(range(seed + 1, seed + 1 + trials))
    rows = []
    for beta in betas:
        problem = ReluProblem(X, Datafit(Squared(), Y), beta)
        began = time.process_time()
        lowest = float(descent.run(X, Y, beta, seeds).final.min())
        rows.append(_row(problem, Found(lowest, time.process_time() - began), iterations))
    return rows


def _row(problem: ReluProblem, descent: Found, iterations: Sequence[int]) -> SpiralRow:
    clock = _Clock()
    done = solve(problem, ColumnGeneration(Faces(problem.X)), Limits(TOL))
    certificate, seconds = done.certificate, clock.lap()
    t = done.problem.gauge.value(done.Z)
    planes = solve(problem, CuttingPlanes(Faces(problem.X)), Limits(TOL)).certificate.primal
    by_planes = Found(planes, clock.lap())
    relaxation = Found(relax(problem, "patterns").dual, clock.lap())
    network = solve(problem, Copositive("patterns"), Limits(TOL)).certificate.primal
    rounded = Found(network, clock.lap())
    return SpiralRow(
        problem.beta,
        certificate.primal,
        certificate.dual,
        certificate.relative_gap,
        seconds,
        len(done.neurons),
        t,
        descent,
        _algorithm_1(problem, t, iterations),
        by_planes,
        relaxation,
        rounded,
    )


def _algorithm_1(problem: ReluProblem, t: float, iterations: Sequence[int]) -> dict[int, Found]:
    found, clock = {}, _Clock()
    for steps in iterations:
        run = solve(problem, FrankWolfe(Faces(problem.X), t), Limits(0.0, steps))
        found[steps] = Found(run.certificate.primal, clock.lap())
    return found


class _Clock:
    """Seconds of the processor since the last lap; other programs do not lengthen them."""

    def __init__(self) -> None:
        self._began = time.process_time()

    def lap(self) -> float:
        before, self._began = self._began, time.process_time()
        return self._began - before


def table(rows: Sequence[SpiralRow]) -> str:
    """Markdown: a line for each beta; a distance to the certified optimum, and seconds in brackets."""
    counts = list(rows[0].algorithm_1)
    head = [
        "beta",
        "certified optimum",
        "gap",
        "relaxation (19) below",
        "rounded above",
        "cutting planes above",
        *(f"Algorithm 1, {count:,} its, above" for count in counts),
        "descent above",
    ]
    lines = [_cells(row, counts) for row in rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *lines))


def _cells(row: SpiralRow, counts: Sequence[int]) -> list[str]:
    others = [row.rounded, row.cutting_planes, *(row.algorithm_1[k] for k in counts), row.gradient_descent]
    return [
        f"{row.beta:g}",
        f"{row.optimum:.7f} ({row.seconds:.2f} s)",
        f"{row.gap:.1e}",
        f"{row.looseness:.1e} ({row.relaxation.seconds:.1f} s)",
        *(f"{row.above(found):.1e} ({found.seconds:.1f} s)" for found in others),
    ]


def draw(rows: Sequence[SpiralRow], suffix: str = ".png") -> bytes:
    """Objectives against beta, and how far each method is from the certified optimum."""
    figure = new_figure(11.5, 4.6)
    left, right = figure.subplots(1, 2)
    betas = [row.beta for row in rows]
    left.plot(betas, [row.optimum for row in rows], "-", color=GREY, linewidth=1.4, label="certified optimum")
    right.plot(betas, _drawn([row.gap for row in rows]), "--", color=GREY, linewidth=1.4, label="certified gap")
    for name, marker, colour, values, distances in _series(rows):
        style = {"color": colour, "markersize": 7, "mfc": "none"}
        left.plot(betas, values, marker, linestyle="", **style)
        right.plot(betas, _drawn(distances), marker, linestyle="-", linewidth=0.8, label=name, **style)
    left.set_ylabel("objective")
    right.set_ylabel("relative distance to the certified optimum")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel(r"weight decay $\beta$")
        plain(axes)
    left.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    left.yaxis.set_major_formatter("{x:g}")
    left.yaxis.set_minor_formatter(NullFormatter())
    handles = zip(left.get_legend_handles_labels(), right.get_legend_handles_labels(), strict=True)
    figure.legend(*(one + two for one, two in handles), loc="outside upper center", ncols=4, frameon=False)
    return figure_bytes(figure, suffix)


def _series(rows: Sequence[SpiralRow]) -> list[tuple[str, str, str, list[float], list[float]]]:
    """(name, marker, colour, values, distances) of every method."""
    methods = {
        "rounded network": [row.rounded for row in rows],
        "cutting planes": [row.cutting_planes for row in rows],
        "gradient descent": [row.gradient_descent for row in rows],
    }
    for count in rows[0].algorithm_1:
        methods[f"Algorithm 1, {count:,} its"] = [row.algorithm_1[count] for row in rows]
    relaxed = [row.relaxation.value for row in rows], [row.looseness for row in rows]
    series = [("relaxation (19), below", "v", COLOURS[0], *relaxed)]
    for (name, found), marker, colour in zip(methods.items(), "osx^D", COLOURS[1:], strict=False):
        distances = [row.above(one) for row, one in zip(rows, found, strict=True)]
        series.append((name, marker, colour, [one.value for one in found], distances))
    return series


def _drawn(distances: Sequence[float]) -> Tensor:
    return torch.tensor(distances).clamp(min=_FLOOR)


SETTINGS: Mapping[Scale, Mapping[str, Any]] = {  # of run()
    "paper": {},
    "cpu": {},
    "smoke": {"betas": (1e-1, 1.0), "n": 24, "n_neurons": 60, "epochs": 600, "iterations": (50, 200)},
}
_COINCIDE = 1e-2  # relatively, about what a printed curve shows


def claims(rows: Sequence[SpiralRow]) -> tuple[Claim, ...]:
    """What CP says in section 5.3: three curves that coincide."""
    looseness, paper_count = max(abs(row.looseness) for row in rows), min(rows[0].algorithm_1)
    wide = max(rows[0].algorithm_1)
    return (
        Claim(
            "the copositive relaxation (19) is tight in the plane",
            f"at most {looseness:.1e} from the certified optimum, over {len(rows)} beta",
            looseness <= 1e-5,
        ),
        _coincides("SGD coincides with the optimum over all beta", {r.beta: r.excess for r in rows}),
        _coincides(
            f"Algorithm 1 coincides with the optimum over all beta, after {paper_count:,} iterations",
            {row.beta: row.above(row.algorithm_1[paper_count]) for row in rows},
            f"after {wide:,}: {max(row.above(row.algorithm_1[wide]) for row in rows):.1e} at worst; cutting planes "
            f"reach {max(row.above(row.cutting_planes) for row in rows):.0e}",
        ),
    )


def _coincides(paper: str, excess: Mapping[float, float], more: str = "") -> Claim:
    far = {beta: value for beta, value in excess.items() if not value <= _COINCIDE}
    worst = max(excess.values())
    ours = f"within {_COINCIDE:.0%} at {len(excess) - len(far)} of {len(excess)} beta, at worst {worst:.1%} above"
    why = f"far at beta = {', '.join(f'{beta:g} ({value:.1%})' for beta, value in far.items())}; " if far else ""
    return Claim(paper, ours, not far, (why + more).removesuffix("; "))


def study(scale: Scale, means: Context) -> Finding:
    """Run every beta, and check the claims."""
    rows = run(**SETTINGS[scale])
    return Finding(rows, claims(rows), table(rows), lambda suffix: draw(rows, suffix), SETTINGS[scale])


EXPERIMENT = Experiment(
    "R6",
    "cp_figure_3",
    "The spiral over beta: SGD, Algorithm 1, the copositive relaxation and exact training",
    "CP Fig. 3",
    0,
    study,
)
