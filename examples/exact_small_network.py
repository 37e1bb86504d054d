"""Exact training of a small ReLU network: every activation pattern, and no luck.

Fourteen points on a line, a two-layer ReLU network, weight decay. A neuron can switch samples on and off in only 28
ways here, so the network's convex program over all of them is small, and its optimum is known to eight digits. Adam
is then given fifteen seeds to reach it with twelve neurons.

Usage: python examples/exact_small_network.py [--out FOLDER]
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn

from bidual import ConvexMLPRegressor, patterns
from bidual.reporting.plots import COLOURS, GREY, figure_bytes, new_figure, plain
from bidual.runtime.files import write_atomically

BETA = 0.01


def adam(seed: int, X: torch.Tensor, Y: torch.Tensor, steps: int) -> float:
    """The objective of a network of twelve neurons after training it by gradient descent from a random start."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(1, 12), nn.ReLU(), nn.Linear(12, 1)).double()
    decayed = [weights for name, weights in network.named_parameters() if name != "2.bias"]  # the output bias is free
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
    for _ in range(steps):
        decay = torch.stack([weights.square().sum() for weights in decayed]).sum()
        objective = (network(X) - Y).square().sum() / 2 + BETA / 2 * decay
        optimiser.zero_grad()
        objective.backward()
        optimiser.step()
    return objective.item()


def main(out: Path, seeds: int = 15, steps: int = 2000) -> tuple[ConvexMLPRegressor, np.ndarray]:
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(-1, 1, (14, 1)), axis=0)
    y = np.sin(5 * X[:, 0]) + 0.1 * rng.standard_normal(14)

    # All ways to switch the samples on and off by the sign of w x + b.
    every = patterns.enumerate(patterns.with_constant(torch.tensor(X)))
    print(f"{len(every)} activation patterns of {len(X)} samples")

    # oracle="exact" proves the optimum over all of them, or refuses; nothing is sampled and no seed matters.
    exact = ConvexMLPRegressor(beta=BETA, oracle="exact", tol=1e-8).fit(X, y)
    certificate = exact.certificate_
    print(f"optimum between {certificate.dual:.10f} and {certificate.primal:.10f}, scope {certificate.scope.name}")

    # The answer is an ordinary network: a few neurons, each with one kink on the line.
    hidden = exact.module_.hidden
    kinks = np.unique((-hidden.bias / hidden.weight[:, 0]).detach().numpy().round(3))
    print(f"{exact.n_neurons_} neurons, kinks at {', '.join(f'{kink:.3f}' for kink in kinks)}")

    # The same objective by gradient descent.
    reached = np.sort([adam(seed, torch.tensor(X), torch.tensor(y[:, None]), steps) for seed in range(seeds)])
    best, median, worst = np.quantile(reached, [0, 0.5, 1]) / certificate.primal - 1
    print(f"Adam, {seeds} seeds: best {best:.2%}, median {median:.1%}, worst {worst:.1%} above the optimum")
    print(f"runs below the certified bound: {int((reached < certificate.dual).sum())}")

    # The function with its kinks, and the seeds in order.
    figure = new_figure(9, 3.6)
    left, right = figure.subplots(1, 2, width_ratios=[1.4, 1])
    grid = np.linspace(-1.05, 1.05, 600)
    left.plot(grid, exact.predict(grid[:, None]), color=COLOURS[0], label="the optimal network")
    left.plot(kinks, exact.predict(kinks[:, None]), "D", markersize=7, color=COLOURS[1], label="its kinks")
    left.plot(X, y, "o", markersize=5, color="black", label="samples")
    left.set(xlabel="x", ylabel="y", xlim=(-1.05, 1.05))
    right.plot(np.arange(1, seeds + 1), reached, "o", color=COLOURS[3], label="Adam, one point per seed")
    right.axhline(certificate.primal, color=GREY, linestyle="--", linewidth=1, label="certified optimum")
    right.set(xlabel="seeds, best first", ylabel="objective", xticks=range(1, seeds + 1, 2))
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=9)
        plain(axes)
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "exact_small_network.png", figure_bytes(figure, ".png"))
    print(f"figure: {out / 'exact_small_network.png'}")
    return exact, reached


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the figure (default: here)")
    main(parser.parse_args().out)
