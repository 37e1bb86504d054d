"""Finish the head of my CNN: how much did Adam leave on the table?

A small convolutional network learns which of scikit-learn's digits are five or more, by Adam with weight decay. Its
last two layers are a two-layer ReLU network on the features of the convolution. `bidual.torch.finish` finds better
weights for them, with a proof of how much better any other head could be. Adam that goes on with the head alone does
not get there.

Usage: python examples/finish_a_head.py [--out FOLDER]
"""

import argparse
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import DataLoader, TensorDataset

from bidual.reporting.plots import COLOURS, GREY, figure_bytes, new_figure, plain
from bidual.runtime.files import write_atomically
from bidual.torch import Finished, finish

DECAY = 4e-3  # Adam's weight_decay, beside the mean of the losses


class SmallCNN(nn.Module):
    """A convolution with its pooling, and a head of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.pool = nn.Conv2d(1, 4, 3, padding=1), nn.AvgPool2d(4)
        self.fc1, self.fc2 = nn.Linear(16, 16), nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        features = self.pool(torch.relu(self.conv(x))).flatten(1)
        return self.fc2(torch.relu(self.fc1(features)))


def digits() -> tuple[Tensor, Tensor]:
    """Images and whether they show a five or more."""
    X, y = load_digits(return_X_y=True)
    return torch.tensor(X / 16, dtype=torch.float32).view(-1, 1, 8, 8), torch.tensor(y >= 5, dtype=torch.float32)


def train(model: nn.Module, parameters: list[nn.Parameter], X: Tensor, y: Tensor, steps: int) -> list[float]:
    """An ordinary training loop; what it descends on in the head is written down."""
    optimiser, curve = torch.optim.Adam(parameters, lr=1e-2, weight_decay=DECAY), []
    for _ in range(steps):
        loss = binary_cross_entropy_with_logits(model(X)[:, 0], y)
        squares = [weights.square().sum() for name, weights in model.named_parameters() if name.startswith("fc")]
        curve.append(float((loss + DECAY / 2 * torch.stack(squares).sum()).detach()))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return curve


def main(out: Path, samples: int = 300, steps: int = 300, more: int = 3000, seconds: float = 15.0) -> Finished:
    X, y = digits()
    torch.manual_seed(0)
    model = SmallCNN()
    curve = train(model, list(model.parameters()), X[:samples], y[:samples], steps)

    # The two layers by their names, the samples as a loader, and the weight decay in the words of the loop above.
    loader = DataLoader(TensorDataset(X[:samples], y[:samples]), batch_size=50)
    done = finish(
        model, loader, head=("fc1", "fc2"), loss="log_loss", weight_decay=DECAY, optimizer="adam", max_time=seconds
    )
    print(done.verdict)
    print(f"head: {model.fc1} becomes {done.model.fc1}, {done.model.fc1.weight.dtype}")
    for name, network in (("Adam", model), ("finished", done.model)):
        right = (network(X[samples:])[:, 0] > 0) == (y[samples:] > 0)
        print(f"{name}: test accuracy {right.float().mean():.3f}")

    # Adam goes on, on the head alone.
    unit, bound = done.certificate.unit, done.certificate.lower_bound
    head = [weights for name, weights in model.named_parameters() if name.startswith("fc")]
    later = train(model, head, X[:samples], y[:samples], more)
    figure = new_figure(7, 3.8)
    axes = figure.subplots()
    axes.plot(range(1, steps + 1), curve, color=COLOURS[0], label="Adam on the whole network")
    axes.plot(range(steps, steps + more), later, color=COLOURS[1], label="then on the head alone")
    axes.axhline(unit * done.objective, color=COLOURS[2], linestyle="--", label="finished")
    axes.axhspan(0, unit * bound, color=GREY, alpha=0.18, linewidth=0, label="proved empty, for heads of any width")
    axes.set(xscale="log", ylim=(0, 1.1 * curve[0]), xlim=(1, steps + more), xlabel="steps", ylabel="objective")
    axes.legend(frameon=False, fontsize=9)
    plain(axes)
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "finish_a_head.png", figure_bytes(figure, ".png"))
    print(f"figure: {out / 'finish_a_head.png'}")
    return done


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the figure (default: here)")
    main(parser.parse_args().out)
