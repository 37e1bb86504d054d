"""Convolutional and attention networks on scikit-learn's digits, trained with Adam and judged by `bidual.certify`.

    OMP_NUM_THREADS=1 python benchmarks/processor_clock.py benchmarks/certify_shared.py [--samples 200]
        [--shares 0.3 0.1] [--seconds 60] [--kinds cnn attention] [--epochs 1500]

Both are trained on the sum of cross-entropies and beta/2 times the sum of squares of all weights but the output biases;
beta is a share of the steepest unit that a search finds at the zero network. Tokens are the rows of an image, by two
principal components. Prints a row of a table per network.
"""

import argparse
import time
from collections.abc import Sequence

import torch
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from bidual import certify
from bidual.architectures.modules import ReluAttentionNetwork
from bidual.estimators.certifying.reading import given_network
from bidual.losses import Softmax
from bidual.losses.datafit import Datafit

_CLASSES, _TOKEN = 10, 2
HEAD = (
    "| network | beta / beta_max | trained | objective | best found | lower bound | improvable | unproved | seconds |"
)


def cnn(n: int) -> tuple[nn.Module, Tensor, Tensor]:
    """Sixteen filters of 3 x 3, averages over windows of 3 x 3, and the digits as images."""
    X, y = load_digits(return_X_y=True)
    layers = nn.Conv2d(1, 16, 3), nn.ReLU(), nn.AvgPool2d(3), nn.Flatten(), nn.Linear(64, _CLASSES)
    return nn.Sequential(*layers), torch.tensor(X[:n] / 16).float().reshape(-1, 1, 8, 8), torch.tensor(y[:n])


def attention(n: int) -> tuple[nn.Module, Tensor, Tensor]:
    """Eight heads on sequences of eight tokens."""
    X, y = load_digits(return_X_y=True)
    tokens = PCA(_TOKEN, whiten=True).fit_transform(X[:n].reshape(-1, 8))
    module = ReluAttentionNetwork(_TOKEN, 8, _CLASSES, average=1)
    for part in (module.mixing, module.value):
        nn.init.normal_(part, std=0.3)
    return module, torch.tensor(tokens).reshape(n, 8, _TOKEN), torch.tensor(y[:n])


KINDS = {"cnn": cnn, "attention": attention}


def beta_max(module: nn.Module, X: Tensor, y: Tensor) -> float:
    """The steepest unit at the zero network, by a search."""
    given = given_network(module)
    targets = nn.functional.one_hot(y, _CLASSES).double()
    problem = given.problem(X.double(), Datafit(Softmax(), targets, None, True), 1.0)
    return given.plan(problem, "search", "auto").beta_max(problem)


def trained(module: nn.Module, X: Tensor, y: Tensor, beta: float, epochs: int) -> nn.Module:
    """By Adam on all samples at once, with a learning rate that falls along a cosine."""
    decayed = [part for name, part in module.named_parameters() if name not in ("4.bias", "bias")]
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        optimizer.zero_grad()
        decay = torch.stack([part.square().sum() for part in decayed]).sum()
        (cross_entropy(module(X), y, reduction="sum") + beta / 2 * decay).backward()
        optimizer.step()
        schedule.step()
    return module.eval()


def row(kind: str, n: int, share: float, seconds: float, epochs: int) -> str:
    """One network: trained, and judged by the public function."""
    torch.manual_seed(0)
    module, X, y = KINDS[kind](n)
    beta = share * beta_max(module, X, y)
    began = time.perf_counter()
    trained(module, X, y, beta, epochs)
    middle = time.perf_counter()
    found = certify(module, X, y, beta, "log_loss", max_time=seconds)
    improvable = 1 - found.better_objective / found.objective
    unproved = 1 - found.lower_bound / found.better_objective
    numbers = f"{found.objective:.6g} | {found.better_objective:.6g} | {found.lower_bound:.6g}"
    shares = f"{100 * improvable:.2g} % | {100 * unproved:.3g} %"
    took = f"{time.perf_counter() - middle:.0f}"
    return f"| {kind}, n = {n} | {share:g} | {middle - began:.0f} s | {numbers} | {shares} | {took} |"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.3, 0.1])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--epochs", type=int, default=1500)
    given = parser.parse_args(arguments)
    print(HEAD, "|" + "---|" * HEAD.count(" | ") + "---|", sep="\n")
    for kind in given.kinds:
        for share in given.shares:
            print(row(kind, given.samples, share, given.seconds, given.epochs), flush=True)


if __name__ == "__main__":
    main()
