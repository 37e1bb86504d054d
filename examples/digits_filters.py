"""Handwritten digits by a convolutional network at its certified optimum, and a picture of its filters.

Usage: python examples/digits_filters.py [--out FOLDER]
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor

from bidual import ConvexCNNClassifier
from bidual.reporting.plots import COLOURS, GREY, figure_bytes, new_figure, plain
from bidual.runtime.files import write_atomically

SHOWN = 24  # filters
MAPS = 5  # activation maps of a digit


@dataclass(frozen=True, eq=False)
class Result:
    """A trained network, its test images (n, 1, 8, 8) and labels, accuracy on them, and seconds of training."""

    network: ConvexCNNClassifier
    images: NDArray[np.float64]
    labels: NDArray[np.int64]
    accuracy: float
    seconds: float

    @property
    def importance(self) -> Tensor:
        """|u_j| |V_j| of every filter j, bias included: what it adds to the weight decay."""
        module = self.network.module_
        hidden = torch.cat([module.hidden.weight.flatten(1), module.hidden.bias[:, None]], 1)
        output = module.output.weight.reshape(len(module.output.weight), len(hidden), -1)
        lengths = torch.linalg.vector_norm(hidden, dim=1) * torch.linalg.vector_norm(output, dim=(0, 2))
        return lengths.detach()

    @property
    def order(self) -> Tensor:
        """Filters, the most important one first."""
        return torch.argsort(self.importance, descending=True)

    @property
    def sign(self) -> Tensor:
        """How filters are shown: u_j and V_j may change sign together, here most weights are positive."""
        return torch.where(self.network.module_.hidden.weight.detach().sum((1, 2, 3)) < 0, -1.0, 1.0)


def run(n_gates: int = 30, tol: float = 1e-6, samples: int | None = None) -> Result:
    """Train on three quarters of the digits (or the first ``samples`` of those), test on the rest."""
    X, y = load_digits(return_X_y=True)
    train, test, y_train, y_test = train_test_split(X / 16, y, stratify=y, random_state=0)
    network = ConvexCNNClassifier(image_shape=(1, 8, 8), kernel_size=3, padding=1, n_gates=n_gates, tol=tol)
    began = time.perf_counter()
    network.fit(train[:samples], y_train[:samples])
    seconds = time.perf_counter() - began
    return Result(network, test.reshape(-1, 1, 8, 8), y_test, network.score(test, y_test), seconds)


def report(result: Result) -> str:
    """What was reached, in words."""
    network, share = result.network, result.importance.sort(descending=True).values
    certificate, used, gates = network.certificate_, network.module_.gates.out_channels, network.architecture_.gates
    shown = float(share[:SHOWN].sum() / share.sum())
    return (
        f"test accuracy {result.accuracy:.4f} on {len(result.labels)} digits\n"
        f"primal {certificate.primal:.9g}, dual {certificate.dual:.9g}, relative gap {certificate.relative_gap:.2e}, "
        f"scope {certificate.scope.name}\n"
        f"{network.n_neurons_} filters on {used} of {gates.shape[1]} gates; "
        f"the {min(SHOWN, len(share))} most important ones carry {shown:.0%} of the weight decay\n"
        f"{result.seconds:.1f} seconds, beta {network.beta_:.4g} of beta_max {network.beta_max_:.4g}"
    )


def activations(result: Result, images: NDArray[np.float64]) -> Tensor:
    """1{x * g + h >= 0} (x * u_j + a_j) for every image and filter."""
    module, x = result.network.module_, torch.tensor(images)
    with torch.no_grad():
        on = (module.gates(x) >= 0)[:, module.gate_index]
        return result.sign[:, None, None] * module.hidden(x) * on


def draw(result: Result) -> bytes:
    """Filters and gates, activation maps of some digits, and the gap against time."""
    figure = new_figure(13, 6.6)
    left, right = figure.subfigures(1, 2, width_ratios=[1.12, 1], wspace=0.03)
    upper, lower = right.subfigures(2, 1, height_ratios=[1.75, 1], hspace=0.03)
    _filters(left, result)
    _maps(upper, result)
    _gap(lower.subplots(), result)
    return figure_bytes(figure, ".png")


def _filters(part: SubFigure, result: Result) -> None:
    module, order, share = result.network.module_, result.order[:SHOWN], result.importance / result.importance.sum()
    part.suptitle(
        f"The {len(order)} most important of {result.network.n_neurons_} filters (left) with their gates (right)\n"
        "and their share of the weight decay",
        fontsize=11,
    )
    filters, gates = (
        result.sign[:, None, None] * module.hidden.weight.detach()[:, 0],
        module.gates.weight[module.gate_index][:, 0],
    )
    gates = gates / gates.abs().amax((1, 2), keepdim=True)
    limit = float(filters[order].abs().max())
    grid = part.subplots(SHOWN // 4, 4).ravel()
    for axes in grid:
        axes.set_axis_off()
    for place, (axes, j) in enumerate(zip(grid, order.tolist(), strict=False)):
        weights = axes.imshow(filters[j].numpy(), cmap="RdBu_r", vmin=-limit, vmax=limit, extent=(0, 3, 0, 3))
        gate = axes.imshow(gates[j].numpy(), cmap="PuOr", vmin=-1, vmax=1, extent=(3.4, 6.4, 0, 3))
        axes.set(xlim=(-0.2, 6.6), ylim=(0, 3))
        axes.set_title(f"{place + 1}: {float(share[j]):.1%}", fontsize=9, pad=3)
    for shown, label in ((gate, "gate weights, largest = 1"), (weights, "filter weights, one scale for all")):
        bar = part.colorbar(shown, ax=grid.tolist(), location="bottom", shrink=0.5, aspect=32, pad=0.02)
        bar.set_label(label, fontsize=9)
        bar.locator = MaxNLocator(5)
        bar.update_ticks()
        bar.ax.tick_params(labelsize=8)


def _maps(part: SubFigure, result: Result) -> None:
    order = result.order[:MAPS]
    digits = [int(np.argmax(result.labels == label)) for label in (0, 3, 4, 7)]
    maps = activations(result, result.images[digits])[:, order]
    guesses = result.network.predict(result.images[digits])
    limit = float(maps.abs().max())
    part.suptitle("Test digits, and what the first filters make of them before pooling", fontsize=11)
    grid = part.subplots(len(digits), 1 + MAPS)
    for axes in grid.flat:
        axes.set(xticks=[], yticks=[])
    for row, digit, guess, seen in zip(grid, digits, guesses, maps, strict=True):
        row[0].imshow(result.images[digit, 0], cmap="gray_r")
        row[0].set_ylabel(f"predicted\n{guess}", fontsize=9, rotation=0, ha="right", va="center")
        for axes, one in zip(row[1:], seen, strict=False):
            shown = axes.imshow(one.numpy(), cmap="RdBu_r", vmin=-limit, vmax=limit)
    grid[0, 0].set_title("digit", fontsize=9)
    for place, axes in enumerate(grid[0, 1 : 1 + len(order)]):
        axes.set_title(f"filter {place + 1}", fontsize=9)
    bar = part.colorbar(shown, ax=grid.ravel().tolist(), location="right", shrink=0.9, aspect=28)
    bar.set_label("activation", fontsize=9)
    bar.ax.tick_params(labelsize=8)


def _gap(axes: Axes, result: Result) -> None:
    history, tol = result.network.history_, result.network.tol
    seconds, gaps = zip(*((r.seconds, max(r.relative_gap, 1e-16)) for r in history), strict=True)
    axes.step(seconds, gaps, where="post", color=COLOURS[0], linewidth=1.2, alpha=0.5)
    axes.plot(seconds, gaps, "o", markersize=5, color=COLOURS[0], label="certificates of one run")
    axes.axhline(tol, color=GREY, linestyle="--", linewidth=1, label=f"tolerance {tol:.0e}")
    axes.set_yscale("log")
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds")
    axes.set_ylabel("certified relative gap")
    axes.set_title(f"How far from the optimum, at most; test accuracy {result.accuracy:.3f}", loc="left", fontsize=11)
    axes.legend(frameon=False, fontsize=9)
    plain(axes)


def main(out: Path, **settings: float) -> Result:
    """Train, print and draw; the figure goes to ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    result = run(**settings)
    print(report(result))
    write_atomically(out / "digits_filters.png", draw(result))
    print(f"figure: {out / 'digits_filters.png'}")
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the figure (default: here)")
    main(parser.parse_args().out)
