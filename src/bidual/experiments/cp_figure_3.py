"""R6, CP Fig. 3: on the spiral, gradient descent and the certified optimum over a range of beta."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from bidual.column_generation import ColumnGeneration
from bidual.datafit import Datafit
from bidual.datasets import make_spiral
from bidual.experiments.descent import GradientDescent
from bidual.figures import COLOURS, figure_bytes, new_figure, plain
from bidual.losses import Squared
from bidual.polar import Faces
from bidual.relu import ReluProblem


@dataclass(frozen=True)
class SpiralRow:
    """One beta: the certified optimum, its relative gap and seconds, and the best objective of gradient descent."""

    beta: float
    optimum: float
    lower_bound: float
    gap: float
    seconds: float
    neurons: int
    descent: float

    @property
    def excess(self) -> float:
        """How far descent stayed above the lower bound, relatively."""
        return self.descent / self.lower_bound - 1


def run(
    betas: Sequence[float] = (1e-3, 1e-2, 1e-1, 1.0),
    n: int = 60,
    n_neurons: int = 1000,
    epochs: int = 8000,
    trials: int = 1,
    seed: int = 0,
) -> list[SpiralRow]:
    """The spiral with one-hot labels and squared loss, exactly and by descent with ``n_neurons`` neurons."""
    samples, labels = make_spiral(n, seed=seed)
    X, Y = torch.from_numpy(samples), torch.eye(3, dtype=torch.float64)[torch.from_numpy(labels)]
    oracle, rows = Faces(X), []
    for beta in betas:
        done = ColumnGeneration().train(ReluProblem(X, Datafit(Squared(), Y), beta), oracle, tol=1e-6)
        certificate = done.solution.certificate
        runs = GradientDescent(n_neurons, epochs).run(X, Y, beta, tuple(range(seed + 1, seed + 1 + trials)))
        rows.append(
            SpiralRow(
                beta,
                certificate.primal,
                certificate.dual,
                certificate.relative_gap,
                done.solution.seconds,
                len(done.neurons),
                float(runs.final.min()),
            )
        )
    return rows


def draw(rows: Sequence[SpiralRow], suffix: str = ".png") -> bytes:
    """Objective against beta, and how far gradient descent is above the certified bound."""
    figure = new_figure(9.5, 4.0)
    left, right = figure.subplots(1, 2)
    betas = [row.beta for row in rows]
    left.plot(betas, [row.optimum for row in rows], "o-", color=COLOURS[0], label="certified optimum")
    left.plot(betas, [row.descent for row in rows], "x", color=COLOURS[1], markersize=9, label="gradient descent")
    left.set_ylabel("objective")
    right.plot(betas, [row.excess for row in rows], "x-", color=COLOURS[1], label="descent above the bound")
    right.plot(betas, [row.gap for row in rows], "o-", color=COLOURS[0], label="certified gap")
    right.set_yscale("log")
    right.set_ylabel("relative distance")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xlabel("weight decay beta")
        axes.legend(frameon=False)
        plain(axes)
    return figure_bytes(figure, suffix)
