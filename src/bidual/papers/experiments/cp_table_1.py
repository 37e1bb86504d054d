"""CP Table 1, measured: seconds against the number of samples, exact and relaxed, one output and several."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter

from bidual import patterns
from bidual.estimators.whitening import ZCAWhitening
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.papers.reproduction import Claim, Context, Experiment, Finding, Scale
from bidual.polar import Faces
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits
from bidual.reporting.plots import COLOURS, figure_bytes, new_figure, plain
from bidual.solvers.conic.cone_program import solve_cone_program
from bidual.solvers.driver import solve
from bidual.training.copositive import relax
from bidual.training.relu.column_generation import ColumnGeneration

OUTPUTS, TEACHERS, SHARE = 3, 10, 0.1
Sizes = Mapping[tuple[str, int], Sequence[int]]  # numbers of samples to try by method and rank; rank 0 is white data
SIZES: Sizes = {
    ("scalar", 2): (10, 20, 40, 80, 160, 320, 640),
    ("vector", 2): (20, 40, 80, 160, 320, 640, 1280, 2560, 5120),
    ("relaxation", 2): (10, 20, 40, 80, 160, 320, 480),
    ("scalar", 3): (6, 9, 13, 19, 27, 38, 54, 76),
    ("vector", 3): (9, 13, 19, 27, 38, 54, 76, 108, 152),
    ("relaxation", 3): (6, 9, 13, 19, 27, 38, 54, 76, 108),
    ("scalar", 0): (10, 20, 40, 80, 160, 320),
    ("vector", 0): (2, 3, 4, 5, 6, 7, 8),
    ("relaxation", 0): (5, 10, 20, 40, 80, 160),
}
TITLES = {"scalar": "one output, exact", "vector": "three outputs, exact", "relaxation": "three outputs, relaxation"}


@dataclass(frozen=True)
class Point:
    """Seconds of the processor for n samples, the median over seeds.

    ``gap`` is the largest over seeds: of column generation the certified one, of a relaxation that between its bound
    and its value, NaN of the cone program.
    """

    n: int
    seconds: float
    gap: float


@dataclass(frozen=True)
class Curve:
    """One entry of the table, for data of rank r; r = 0 stands for whitened data with n = d = r.

    Attributes:
        points: by n.
        ended: why there are no more.
    """

    method: str
    rank: int
    points: tuple[Point, ...]
    ended: str

    @property
    def slope(self) -> float:
        """Of log seconds against log n, by least squares over the larger half of the sizes, at least three of them."""
        tail = self.points[min(len(self.points) // 2, max(len(self.points) - 3, 0)) :]
        if len(tail) < 2:
            return math.nan
        n, seconds = (np.log([getattr(point, name) for point in tail]) for name in ("n", "seconds"))
        return float(np.polyfit(n, seconds, 1)[0])

    @property
    def printed(self) -> str:
        """The exponent of n in CP Table 1."""
        if self.rank == 0:
            return {"scalar": "3", "vector": "n", "relaxation": "6"}[self.method]
        return str({"scalar": 3, "vector": 4, "relaxation": 3}[self.method] * self.rank)


def make_data(n: int, rank: int, outputs: int, seed: int) -> ReluProblem:
    """Normal X (n, rank), or white X (n, n) for rank 0, labels of a network with ten neurons, and a tenth of about
    the beta at which the zero network is optimal: of the largest |Y^T (X u)_+| for u along a sample or its opposite."""
    generator = torch.Generator().manual_seed(seed)
    X, U, W = (
        torch.randn(shape, generator=generator, dtype=torch.float64)
        for shape in ((n, rank or n), (rank or n, TEACHERS), (TEACHERS, outputs))
    )
    if not rank:
        X = torch.from_numpy(ZCAWhitening(center=False).fit_transform(X.numpy()))
    Y = (X @ U).clamp(min=0) @ W
    along = X / torch.linalg.vector_norm(X, dim=1, keepdim=True)
    steepest = torch.linalg.vector_norm((X @ torch.cat([along, -along]).T).clamp(min=0).T @ Y, dim=1).max()
    return ReluProblem(X, Datafit(Squared(), Y), SHARE * float(steepest))


def run(sizes: Sizes = SIZES, seeds: Sequence[int] = (0, 1, 2), longest: float = 10) -> list[Curve]:
    """Every curve until a point is expected to take more than ``longest`` seconds, or is refused."""
    return [_curve(method, rank, ns, seeds, longest) for (method, rank), ns in sizes.items()]


def _curve(method: str, rank: int, sizes: Sequence[int], seeds: Sequence[int], longest: float) -> Curve:
    points: list[Point] = []
    for n in sizes:
        if points and _expected(points, n) > longest:
            return Curve(method, rank, tuple(points), f"n = {n} would take about {_expected(points, n):.0f} s")
        problems = [make_data(n, rank, 1 if method == "scalar" else OUTPUTS, seed) for seed in seeds]
        try:
            seconds, gaps = zip(*map(_METHODS[method, bool(rank)], problems), strict=True)
        except ValueError as refusal:
            return Curve(method, rank, tuple(points), str(refusal))
        points.append(Point(n, median(seconds), max(gaps)))
    return Curve(method, rank, tuple(points), "")


def _expected(points: Sequence[Point], n: int) -> float:
    """By the slope between the last two points."""
    rates = [math.log(b.seconds / a.seconds) / math.log(b.n / a.n) for a, b in pairwise(points)]
    return points[-1].seconds * (n / points[-1].n) ** max([0.0, *rates[-1:]])


def _timed(work: Callable[[ReluProblem], float]) -> Callable[[ReluProblem], tuple[float, float]]:
    def measure(problem: ReluProblem) -> tuple[float, float]:
        began = time.process_time()
        gap = work(problem)
        return time.process_time() - began, gap

    return measure


def _scalar(problem: ReluProblem) -> float:
    """CP (9), all patterns."""
    solve_cone_program(problem, patterns.enumerate(problem.X).active, complete=True)
    return math.nan


def _scalar_white(problem: ReluProblem) -> float:
    """CP (10), the one pattern of ones."""
    solve_cone_program(problem, torch.ones(1, len(problem.X), dtype=torch.bool))
    return math.nan


def _vector(problem: ReluProblem) -> float:
    done = solve(problem, ColumnGeneration(Faces(problem.X)), Limits(1e-6))
    return done.certificate.relative_gap


def _relaxation(form: str) -> Callable[[ReluProblem], float]:
    def work(problem: ReluProblem) -> float:
        found = relax(problem, form)
        return abs(1 - found.dual / found.value)

    return work


_METHODS = {
    ("scalar", True): _timed(_scalar),
    ("scalar", False): _timed(_scalar_white),
    ("vector", True): _timed(_vector),
    ("vector", False): _timed(_vector),
    ("relaxation", True): _timed(_relaxation("patterns")),
    ("relaxation", False): _timed(_relaxation("spike_free")),
}


def table(curves: Sequence[Curve]) -> str:
    """Markdown: a line for each curve."""
    head = "| data | entry | printed exponent of n | measured | seconds at n | largest n: seconds |"
    return "\n".join([head, "|" + "---|" * 6, *map(_line, curves)])


def _line(curve: Curve) -> str:
    middle, last = curve.points[len(curve.points) // 2], curve.points[-1]
    exponent = "n, exponential" if curve.printed == "n" else curve.printed
    return (
        f"| {_data(curve.rank)} | {TITLES[curve.method]} | {exponent} | {curve.slope:.1f} "
        f"| {middle.n}: {middle.seconds:.2g} | {last.n}: {last.seconds:.2g} |"
    )


def _data(rank: int) -> str:
    return f"rank {rank}" if rank else "white, n = d"


def draw(curves: Sequence[Curve], suffix: str = ".png") -> bytes:
    """Seconds against n, a panel for each kind of data; legends have the measured and the printed exponent."""
    ranks = list(dict.fromkeys(curve.rank for curve in curves))
    figure = new_figure(4.3 * len(ranks) + 0.4, 4.6)
    panels = figure.subplots(1, len(ranks), squeeze=False, sharey=True)[0]
    for axes, rank in zip(panels, ranks, strict=True):
        _panel(axes, [curve for curve in curves if curve.rank == rank])
        axes.set_title(
            "spike-free data, n = d" if not rank else f"general data of rank {rank}", loc="left", fontsize=11
        )
    panels[0].set_ylabel("seconds of the processor")
    return figure_bytes(figure, suffix)


def _panel(axes: Axes, curves: Sequence[Curve]) -> None:
    for curve, marker, colour in zip(curves, "os^", COLOURS, strict=False):
        label = f"{TITLES[curve.method]}: {curve.slope:.1f} (CP: {curve.printed})"
        axes.plot(*zip(*_pairs(curve), strict=True), f"{marker}-", color=colour, markersize=5, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("samples $n$")
    axes.legend(frameon=False, fontsize=8.5, loc="upper center", bbox_to_anchor=(0.5, -0.14), title="exponent of $n$")
    plain(axes)


def _pairs(curve: Curve) -> Iterator[tuple[int, float]]:
    return ((point.n, point.seconds) for point in curve.points)


SETTINGS: Mapping[Scale, tuple[Sizes, Sequence[int], float]] = {  # sizes, seeds, longest
    "paper": (SIZES, (0, 1, 2), 60),
    "cpu": (SIZES, (0, 1, 2), 3),
    "smoke": ({(method, rank): (4, 6) for method in TITLES for rank in (2, 0)}, (0,), 60),
}


def claims(curves: Sequence[Curve]) -> tuple[Claim, ...]:
    """CP Table 1: upper bounds of the exponents of n, where they do not depend on n."""
    return tuple(
        Claim(
            f"{TITLES[curve.method]}, {_data(curve.rank)}: O(n^{curve.printed})",
            f"n^{curve.slope:.1f} up to n = {curve.points[-1].n}",
            curve.slope <= float(curve.printed),
            "a local exponent; constant costs of small problems flatten it",
        )
        for curve in curves
        if curve.printed != "n"
    )


def study(scale: Scale, means: Context) -> Finding:
    """Time every curve, and compare exponents."""
    sizes, seeds, longest = SETTINGS[scale]
    curves = run(sizes, seeds, longest)
    configuration = {"sizes": sizes, "seeds": seeds, "longest": longest}
    return Finding(curves, claims(curves), table(curves), lambda suffix: draw(curves, suffix), configuration)


EXPERIMENT = Experiment(
    "T1",
    "cp_table_1",
    "How training time grows with the number of samples",
    "CP Table 1",
    0,
    study,
)
