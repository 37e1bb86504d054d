"""R4, CP Fig. 1: gradient descent with 10 and 50 neurons against the global optimum (n=25, d=2, c=5, beta=1e-2)."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import Tensor

from bidual.losses import Squared
from bidual.losses.datafit import Datafit
from bidual.papers.experiments.descent import DescentRun, GradientDescent
from bidual.papers.reproduction import Claim, Context, Experiment, Finding, Scale
from bidual.polar import Faces
from bidual.problems.problem import ReluProblem
from bidual.problems.solution import Limits, Record
from bidual.reporting.plots import COLOURS, GREY, figure_bytes, new_figure, plain
from bidual.solvers.driver import solve
from bidual.training.relu.column_generation import ColumnGeneration
from bidual.training.relu.frank_wolfe import FrankWolfe


@dataclass(frozen=True, eq=False)
class Figure1:
    """What the figure shows.

    Attributes:
        optimum, lower_bound, gap: of the network that column generation found, over all activation patterns.
        seconds: that it took, from the data to the certificate.
        t: its price, the budget that Algorithm 1 is given.
        descent: gradient descent by number of neurons.
        frank_wolfe: records of Algorithm 1 at that t.
        columns: records of column generation.
        speedup: seconds of Algorithm 1 to its last gap, over those of column generation to the same gap or a better; 0
            if the latter was never reached.
    """

    optimum: float
    lower_bound: float
    gap: float
    seconds: float
    t: float
    descent: Mapping[int, DescentRun]
    frank_wolfe: tuple[Record, ...]
    columns: tuple[Record, ...]

    @property
    def speedup(self) -> float:
        last = self.frank_wolfe[-1]
        return last.seconds / next((r.seconds for r in self.columns if r.relative_gap <= last.relative_gap), inf)


def make_data(seed: int = 0) -> tuple[Tensor, Tensor]:
    """X (25, 2) standard normal, Y (25, 5) from a network with 100 neurons, drawn as torch draws linear layers."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(25, 2, generator=generator, dtype=torch.float64)
    U = (2 * torch.rand(2, 100, generator=generator, dtype=torch.float64) - 1) / 2**0.5
    W = (2 * torch.rand(100, 5, generator=generator, dtype=torch.float64) - 1) / 100**0.5
    return X, (X @ U).clamp(min=0) @ W


def run(
    seed: int = 0,
    beta: float = 1e-2,
    neurons: tuple[int, ...] = (10, 50),
    trials: int = 5,
    epochs: int = 20_000,
    frank_wolfe_steps: int = 30_000,
) -> Figure1:
    """Train by columns, by Algorithm 1 at the optimal budget, and by gradient descent."""
    X, Y = make_data(seed)
    problem = ReluProblem(X, Datafit(Squared(), Y), beta)
    began = time.perf_counter()
    oracle = Faces(X)
    done = solve(problem, ColumnGeneration(oracle), Limits(1e-6))
    seconds = time.perf_counter() - began
    t = done.problem.gauge.value(done.Z)
    slow = solve(problem, FrankWolfe(oracle, t), Limits(0.0, frank_wolfe_steps))
    seeds = tuple(range(seed + 1, seed + 1 + trials))
    descent = {m: GradientDescent(m, epochs).run(X, Y, beta, seeds) for m in neurons}
    certificate = done.certificate
    return Figure1(
        certificate.primal,
        certificate.dual,
        certificate.relative_gap,
        seconds,
        t,
        descent,
        slow.history,
        done.history,
    )


def draw(result: Figure1, suffix: str = ".png") -> bytes:
    """Objectives against epochs, and certified gaps against seconds."""
    figure = new_figure(10.5, 4.4)
    left, right = figure.subplots(1, 2)
    for (m, runs), colour in zip(result.descent.items(), COLOURS, strict=False):
        epochs = torch.arange(runs.objective.shape[1]) * runs.every
        for index, trial in enumerate(runs.objective):
            left.plot(epochs, trial, color=colour, linewidth=1, label=f"descent, {m} neurons" if not index else None)
    left.axhline(result.optimum, color=GREY, linestyle="--", label=f"global optimum, gap {result.gap:.0e}")
    left.set_yscale("log")
    left.set_ylim(0.97 * result.optimum, 3 * result.optimum)
    left.set_xlabel("epoch")
    left.set_ylabel("objective")
    for records, name, colour in (
        (result.columns, "column generation", COLOURS[2]),
        (result.frank_wolfe, "Algorithm 1 (Frank-Wolfe)", COLOURS[3]),
    ):
        right.plot([r.seconds for r in records], [r.relative_gap for r in records], ".-", color=colour, label=name)
    right.set_xscale("log")
    right.set_yscale("log")
    right.set_xlabel("seconds")
    right.set_ylabel("certified relative gap")
    for axes in (left, right):
        plain(axes)
        axes.legend(frameon=False)
    return figure_bytes(figure, suffix)


SETTINGS: Mapping[Scale, Mapping[str, Any]] = {  # of run()
    "paper": {},
    "cpu": {},
    "smoke": {"trials": 2, "epochs": 600, "frank_wolfe_steps": 100},
}
_NEAR = 1e-2  # relatively; descent this close counts as having found the optimum


def claims(result: Figure1) -> tuple[Claim, ...]:
    """What CP says in section 5.1."""
    few, many = min(result.descent), max(result.descent)
    ends = {m: [float(value) for value in result.descent[m].final] for m in (few, many)}
    above = {m: ", ".join(f"{value / result.lower_bound - 1:.1%}" for value in ends[m]) for m in ends}
    lowest = min(min(values) for values in ends.values())
    return (
        Claim(
            f"with {few} neurons, none of the runs of SGD converges to the global optimum",
            f"{above[few]} above the certified lower bound",
            min(ends[few]) > (1 + _NEAR) * result.optimum,
            f"read as: all runs stay more than {_NEAR:.0%} above",
        ),
        Claim(
            f"shown in the figure: with {many} neurons they do",
            f"{above[many]} above",
            max(ends[many]) <= (1 + _NEAR) * result.optimum,
            f"read as: all runs come within {_NEAR:.0%}; the text does not say it",
        ),
        Claim(
            "the convex program finds the global minimum",
            f"{result.optimum:.6f}, certified gap {result.gap:.0e} over all patterns, in {result.seconds:.2f} s; the "
            f"best descent is {lowest:.6f}, Algorithm 1 has a gap of {result.frank_wolfe[-1].relative_gap:.0e} after "
            f"{result.frank_wolfe[-1].seconds:.0f} s",
            result.gap <= 1e-6 and lowest >= result.lower_bound,
        ),
    )


def table(result: Figure1) -> str:
    """Markdown: a line for each method."""
    lines = [
        f"| column generation | {result.optimum:.6f} | {result.gap:.1e} | {result.seconds:.2f} |",
        f"| Algorithm 1, t = {result.t:.4f} | | {result.frank_wolfe[-1].relative_gap:.1e} "
        f"| {result.frank_wolfe[-1].seconds:.1f} |",
    ]
    for m, runs in result.descent.items():
        spread = f"{float(runs.final.min()):.6f} to {float(runs.final.max()):.6f}"
        lines.append(f"| gradient descent, {m} neurons, {len(runs.final)} runs | {spread} | | |")
    return "\n".join(["| method | objective | certified relative gap | seconds |", "|---|---|---|---|", *lines])


def study(scale: Scale, means: Context) -> Finding:
    """Run all methods, and check the claims."""
    result = run(**SETTINGS[scale])
    return Finding(result, claims(result), table(result), lambda suffix: draw(result, suffix), SETTINGS[scale])


EXPERIMENT = Experiment(
    "R4",
    "cp_figure_1",
    "Gradient descent with 10 and 50 neurons against the global optimum",
    "CP Fig. 1",
    0,
    study,
)
