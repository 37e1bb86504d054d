"""R1, BM Fig. 2 and 4: the bound (20) and the true gap of factored training on the spiral (d=2, c=3)."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from bidual.gauges import Nuclear
from bidual.io.datasets import make_spiral
from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.operators import GatedOperator
from bidual.papers.methods.optimality import optimality_report
from bidual.papers.reproduction import Claim, Context, Experiment, Finding, Scale
from bidual.patterns import activations, sample_gates
from bidual.problems.problem import Problem
from bidual.problems.solution import Limits
from bidual.reporting.plots import COLOURS, GREY, figure_bytes, new_figure, plain
from bidual.solvers.factored import (
    Descent,
    FactoredProgram,
    Method,
    Preconditioned,
    VariableProjection,
    factored_point,
    train,
)
from bidual.solvers.plan import solve_auto

TITLES = {
    "descent": "gradient descent (BM)",
    "preconditioned": "preconditioned",
    "escape": "with saddle escape",
}
_GATES = 100
_ROUNDING = 1e-10
_FLOOR = 1e-9  # what is smaller is drawn here


@dataclass(frozen=True)
class Optimum:
    """The global optimum of the convex program over one set of gates, in the scaling of the experiment.

    Attributes:
        n, beta, seed: which program.
        gates: how many of the 100 sampled gates have distinct patterns.
        value, relative_gap, seconds: of the certified solution.
    """

    n: int
    beta: float
    seed: int
    gates: int
    value: float
    relative_gap: float
    seconds: float


@dataclass(frozen=True)
class Cell:
    """One factored training. Values and gradients are in the scaling of the experiment.

    Attributes:
        optimum: what it is compared with.
        method: descent, preconditioned or escape.
        m, final_m: factors per block at the start and at the end.
        value: the objective of (18).
        gradient_norm: how stationary the point is.
        bound: (20), an upper bound of the gap at exactly stationary points only.
        certified: the sound certificate in the same terms, (value - dual) / dual: at least the gap, everywhere.
        steps, seconds, escapes, ending: of the training.
    """

    optimum: Optimum
    method: str
    m: int
    final_m: int
    value: float
    gradient_norm: float
    bound: float
    certified: float
    steps: int
    seconds: float
    escapes: int
    ending: str

    @property
    def gap(self) -> float:
        """(value - optimum) / optimum, which (20) is meant to bound."""
        return self.value / self.optimum.value - 1

    @property
    def bound_fails(self) -> bool:
        """Whether (20) is below the true gap by more than rounding and the uncertainty of the optimum."""
        return not self.bound >= self.gap - self.optimum.relative_gap - _ROUNDING


def make_problem(n: int, beta: float, seed: int = 0, gates: int = _GATES) -> Problem:
    """Three spiral arms with one-hot labels; ``seed`` draws the gates, of which repeated patterns are dropped."""
    samples, labels = make_spiral(n)
    X, Y = torch.from_numpy(samples), torch.eye(3, dtype=torch.float64)[torch.from_numpy(labels)]
    patterns = activations(X, sample_gates(X, gates, torch.Generator().manual_seed(seed)))
    return Problem(GatedOperator(X, patterns, 3), Datafit(Squared(), Y), Nuclear(), beta)


def run(
    ns: Sequence[int] = (3, 45, 75, 150),
    betas: Sequence[float] = (1e-4, 1e-3, 1e-2, 1e-1),
    factors: Sequence[int] = (1, 2, 5),
    seeds: Sequence[int] = (0, 1, 2),
    methods: Sequence[str] = tuple(TITLES),
    epochs: int = 20_000,
    preconditioned_steps: int = 8000,
    scaling: str = "mse",
    tol: float = 1e-6,
) -> tuple[Cell, ...]:
    """Every cell with every method; the convex optimum of each (n, beta, seed) is computed once.

    A seed draws the gates and the start, as in BM C.1. The default scaling is that of ``torch.nn.MSELoss``: with a sum
    over samples the paper's learning rate of 1.0 diverges. ``tol`` is the certified relative gap at which saddle escape
    stops; the other methods run to their end.
    """
    limits = {"descent": epochs, "preconditioned": preconditioned_steps, "escape": 500}
    cells: list[Cell] = []
    for n, beta, seed in product(ns, betas, seeds):
        base = FactoredProgram.scaled(make_problem(n, beta, seed), 1, scaling)
        optimum = _optimum(base, n, beta, seed)
        cells += [_cell(base.with_m(m), optimum, method, limits[method], tol) for m in factors for method in methods]
    return tuple(cells)


def _optimum(program: FactoredProgram, n: int, beta: float, seed: int) -> Optimum:
    began = time.perf_counter()
    found = solve_auto(program.problem, Limits(1e-9)).certificate
    gates, seconds = program.problem.operator.block_shape[0], time.perf_counter() - began
    return Optimum(n, beta, seed, gates, program.unit * found.primal, found.relative_gap, seconds)


def _cell(program: FactoredProgram, optimum: Optimum, method: str, limit: int, tol: float) -> Cell:
    escape = method == "escape"
    chosen: Method = {"descent": Descent, "preconditioned": Preconditioned, "escape": VariableProjection}[method]()
    done = train(program, chosen, seed=optimum.seed, tol=tol if escape else -1.0, escape=escape, max_steps=limit)
    point, unit = factored_point(done), program.unit
    return Cell(
        optimum,
        method,
        program.m,
        point.program.m,
        unit * point.value,
        unit * point.gradient_norm,
        optimality_report(point.program, point.factors).bound,
        point.value / done.certificate.dual - 1,
        done.n_steps,
        done.seconds,
        point.escapes,
        done.status.name,
    )


def table(cells: Iterable[Cell]) -> str:
    """Markdown: one line per n, beta and method, the worst of all m and seeds; seconds are those of the fastest."""
    head = "| n | beta | method | gradient norm | true gap | bound (20) | certified | (20) below the gap | seconds |"
    return "\n".join([head, "|" + "---|" * 9, *(_line(group) for group in _groups(cells).values())])


def _line(cells: Sequence[Cell]) -> str:
    first, fails = cells[0], sum(cell.bound_fails for cell in cells)
    worst = [
        max(max(getattr(cell, key), 0.0) for cell in cells) for key in ("gradient_norm", "gap", "bound", "certified")
    ]
    numbers = " | ".join(f"{number:.1e}" for number in worst)
    seconds = min(cell.seconds for cell in cells)
    where = f"| {first.optimum.n} | {first.optimum.beta:g} | {first.method} "
    return f"{where}| {numbers} | {fails} of {len(cells)} | {seconds:.2g} |"


def _groups(cells: Iterable[Cell]) -> Mapping[tuple[int, float, str], list[Cell]]:
    groups: dict[tuple[int, float, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.optimum.n, cell.optimum.beta, cell.method), []).append(cell)
    return groups


def draw(cells: Sequence[Cell], suffix: str = ".png") -> bytes:
    """Bound and true gap against beta: a row for each method, a column for each n, a colour for each m.

    Lines are medians over seeds, whiskers reach from the least to the greatest. The m stand side by side.
    """
    methods = [name for name in TITLES if any(cell.method == name for cell in cells)]
    ns, factors = sorted({cell.optimum.n for cell in cells}), sorted({cell.m for cell in cells})
    figure = new_figure(2.4 * len(ns) + 1.2, 2.3 * len(methods) + 0.9)
    grid = figure.subplots(len(methods), len(ns), sharex=True, sharey=True, squeeze=False)
    for (row, method), (column, n) in product(enumerate(methods), enumerate(ns)):
        shown = [cell for cell in cells if cell.method == method and cell.optimum.n == n]
        for index, (m, colour) in enumerate(zip(factors, COLOURS, strict=False)):
            shift = 1.25 ** (index - (len(factors) - 1) / 2)
            _lines(grid[row][column], [cell for cell in shown if cell.m == m], shift, colour)
        _axes(grid[row][column])
    for axes, n in zip(grid[0], ns, strict=True):
        axes.set_title(f"n = {n}", fontsize=11)
    for axes, method in zip(grid[:, 0], methods, strict=True):
        axes.set_ylabel(f"{TITLES[method]}\n\nrelative gap")
    figure.supxlabel("weight decay beta", fontsize=10)
    figure.legend(handles=list(_legend(factors)), loc="outside upper center", ncols=len(factors) + 2, frameon=False)
    return figure_bytes(figure, suffix)


def _axes(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(_FLOOR / 4, 1e3)
    axes.set_yticks([_FLOOR, 1e-6, 1e-3, 1], ["$\\leq 10^{-9}$", "$10^{-6}$", "$10^{-3}$", "1"])
    axes.minorticks_off()
    plain(axes)


def _lines(axes: Axes, cells: Sequence[Cell], shift: float, colour: str) -> None:
    betas = sorted({cell.optimum.beta for cell in cells})
    places = [beta * shift for beta in betas]
    for key, style in (("bound", "o-"), ("gap", "x--")):
        values = [[max(getattr(c, key), _FLOOR) for c in cells if c.optimum.beta == beta] for beta in betas]
        axes.plot(places, [median(v) for v in values], style, color=colour, markersize=4.5, linewidth=1.2)
        axes.vlines(places, [min(v) for v in values], [max(v) for v in values], color=colour, linewidth=0.8)


def _legend(factors: Sequence[int]) -> Iterator[Line2D]:
    for m, colour in zip(factors, COLOURS, strict=False):
        yield Line2D([], [], color=colour, linewidth=3, label=f"m = {m}")
    yield Line2D([], [], color=GREY, marker="o", label="bound (20)")
    yield Line2D([], [], color=GREY, marker="x", linestyle="--", label="true gap")


SETTINGS: Mapping[Scale, Mapping[str, Any]] = {  # of run()
    "paper": {},
    "cpu": {"seeds": (0, 1, 2), "epochs": 5000, "preconditioned_steps": 1000},
    "smoke": {"ns": (3, 15), "betas": (1e-2, 1e-1), "factors": (1, 2), "seeds": (0,), "epochs": 60}
    | {"preconditioned_steps": 20},
}
_FOUND = 1e-3  # the relative gap up to which descent has found the optimum


def claims(cells: Sequence[Cell]) -> tuple[Claim, ...]:
    """What BM says in section 4.1."""
    descent = [cell for cell in cells if cell.method == "descent"]
    escape = [cell for cell in cells if cell.method == "escape"]
    fails, found = sum(cell.bound_fails for cell in descent), sum(not cell.gap > _FOUND for cell in descent)
    worst, slack = max(cell.certified for cell in escape), min(cell.certified - cell.gap for cell in cells)
    certified = f"{worst:.0e} at most; over all cells, certified minus true gap is at least {slack:.0e}"
    return (
        Claim(
            "the bound (20) is above the true gap of what gradient descent finds",
            f"below it in {fails} of {len(descent)} cells",
            fails == 0,
            "(20) is proved for exactly stationary points; the sound certificate is never below" if fails else "",
        ),
        _easier(descent),
        _minor(descent),
        Claim(
            "gradient descent almost never finds the global minimum",
            f"within {_FOUND:g} in {found} of {len(descent)} cells",
            found < 0.1 * len(descent),
            f"read as: in less than a tenth of the cells, to a relative gap of {_FOUND:g}",
        ),
        Claim(
            "Theorem 3.3: with enough factors no local minimum is spurious, so leaving saddles leads to the optimum",
            f"certified gap after saddle escape: {certified}",
            worst <= 1.01e-6 and slack >= -_ROUNDING,
            "with factors added where a saddle has no way out",
        ),
    )


def _easier(cells: Sequence[Cell]) -> Claim:
    betas = sorted({cell.optimum.beta for cell in cells})
    gaps = [median(max(cell.gap, 0.0) for cell in cells if cell.optimum.beta == beta) for beta in betas]
    ours = ", ".join(f"{gap:.1e} at {beta:g}" for beta, gap in zip(betas, gaps, strict=True))
    paper = "for larger beta it becomes much easier for gradient descent to find an optimal solution"
    return Claim(paper, f"median true gap {ours}", gaps[-1] < gaps[0])


def _minor(cells: Sequence[Cell]) -> Claim:
    factors = sorted({cell.m for cell in cells})
    gaps = [max(median(max(cell.gap, 0.0) for cell in cells if cell.m == m), _FLOOR) for m in factors]
    ours = ", ".join(f"{gap:.1e} for m = {m}" for m, gap in zip(factors, gaps, strict=True))
    paper = "there is only a minor relationship between the optimality gap and m"
    return Claim(paper, f"median true gap {ours}", max(gaps) <= 10 * min(gaps), "read as: within a factor of ten")


def study(scale: Scale, means: Context) -> Finding:
    """Run every cell, and check the claims."""
    cells = run(**SETTINGS[scale])
    return Finding(cells, claims(cells), table(cells), lambda suffix: draw(cells, suffix), SETTINGS[scale])


EXPERIMENT = Experiment(
    "R1",
    "bm_figure_2",
    "The optimality bound and the true gap of factored training on the spiral",
    "BM Fig. 2 and 4",
    0,
    study,
)
