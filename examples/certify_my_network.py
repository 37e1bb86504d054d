"""Certify my PyTorch network: how much better could any network be?

Networks of 2, 5 and 50 hidden units are trained by Adam on two measurements of scikit-learn's diabetes patients. The
loss curves flatten, but a flat curve says nothing about what lies below. `bidual.certify` does: it bounds from below
what any two-layer ReLU network, of any width, can reach with this weight decay on these data.

Usage: python examples/certify_my_network.py [--out FOLDER]
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import StandardScaler
from torch import nn

from bidual import NetworkCertificate, certify
from bidual.reporting.plots import COLOURS, GREY, figure_bytes, new_figure, plain
from bidual.runtime.files import write_atomically

BETA = 1.0  # weight decay: the objective is a sum over samples plus BETA/2 times the sum of squared weights


def train(width: int, X: torch.Tensor, Y: torch.Tensor, steps: int) -> tuple[nn.Sequential, list[float]]:
    """An ordinary training loop; nothing in it knows of Bidual."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(X.shape[1], width), nn.ReLU(), nn.Linear(width, 1)).double()
    decayed = [weights for name, weights in network.named_parameters() if name != "2.bias"]  # the output bias is free
    optimiser, curve = torch.optim.Adam(network.parameters(), lr=1e-2), []
    for _ in range(steps):
        decay = torch.stack([weights.square().sum() for weights in decayed]).sum()
        objective = (network(X) - Y).square().sum() / 2 + BETA / 2 * decay
        optimiser.zero_grad()
        objective.backward()
        optimiser.step()
        curve.append(objective.item())
    return network, curve


def main(
    out: Path, widths: tuple[int, ...] = (2, 5, 50), steps: int = 2000, patients: int | None = None
) -> dict[int, NetworkCertificate]:
    # Body mass index and blood serum s5, against the disease's progression, all standardised.
    X, y = load_diabetes(return_X_y=True)
    X, y = StandardScaler().fit_transform(X[:patients, [2, 8]]), (y - y.mean())[:patients] / y.std()
    samples, targets = torch.tensor(X), torch.tensor(y[:, None])

    # Train each network, then ask how far it is from the best one there is. The data have rank 3 (two features and the
    # hidden bias), for which all activation patterns can be gone through, so that the answer is a proof.
    trained = {width: train(width, samples, targets, steps) for width in widths}
    certificates = {width: certify(network, X, y, BETA) for width, (network, _) in trained.items()}
    for width, found in certificates.items():
        print(
            f"width {width:2d}: objective {found.objective:.4f}, no network is below {found.lower_bound:.4f}: "
            f"at most {found.relative_gap:.2%} to gain"
        )

    # `better` is a network that Bidual found on its way to the proof: a torch module again.
    found = certificates[widths[0]]
    print(f"width {widths[0]} is beaten by a network of objective {found.better_objective:.4f}: {found.status}")

    # The curves over the region that is proved empty.
    bound = max(found.lower_bound for found in certificates.values())
    figure = new_figure(7, 3.8)
    axes = figure.subplots()
    for (width, (_, curve)), colour in zip(trained.items(), COLOURS, strict=False):
        axes.plot(np.arange(1, 1 + steps), curve, color=colour, label=f"Adam, {width} hidden units")
    low, high = bound * 0.985, bound * 1.09
    axes.axhspan(low, bound, color=GREY, alpha=0.18, linewidth=0, label="proved empty, for any width")
    axes.set(xscale="log", ylim=(low, high), xlim=(10, steps), xlabel="steps", ylabel="objective")
    axes.set_title(f"No network is below {bound:.2f}", loc="left", fontsize=11)
    axes.legend(frameon=False, fontsize=9)
    plain(axes)
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "certify_my_network.png", figure_bytes(figure, ".png"))
    print(f"figure: {out / 'certify_my_network.png'}")
    return certificates


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the figure (default: here)")
    main(parser.parse_args().out)
