"""R4, CP Fig. 1: gradient descent with 10 and 50 neurons against the global optimum (n=25, d=2, c=5, beta=1e-2)."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from bidual.column_generation import ColumnGeneration
from bidual.datafit import Datafit
from bidual.driver import Record
from bidual.experiments.descent import DescentRun, GradientDescent
from bidual.figures import COLOURS, GREY, figure_bytes, new_figure, plain
from bidual.frank_wolfe import FrankWolfe
from bidual.losses import Squared
from bidual.polar import Faces
from bidual.relu import ReluProblem


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
    done = ColumnGeneration().train(problem, oracle, tol=1e-6)
    seconds = time.perf_counter() - began
    t = done.problem.gauge.value(done.solution.Z)
    slow = FrankWolfe(max_steps=frank_wolfe_steps).run(problem, oracle, t)
    seeds = tuple(range(seed + 1, seed + 1 + trials))
    descent = {m: GradientDescent(m, epochs).run(X, Y, beta, seeds) for m in neurons}
    certificate = done.solution.certificate
    return Figure1(
        certificate.primal,
        certificate.dual,
        certificate.relative_gap,
        seconds,
        t,
        descent,
        slow.history,
        done.solution.history,
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
