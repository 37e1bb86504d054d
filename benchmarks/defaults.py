"""How defaults of ReLU networks on small tables were chosen (docs/uci.md): ``python benchmarks/defaults.py --help``.

For every split and both losses, networks are trained at sixteen betas on five folds and on the whole training part,
all in one batch (``bidual.training.relu.fold_networks``; not certified). Rules then choose among the same networks.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch start their threads

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit
from sklearn.preprocessing import StandardScaler

from bidual import ConvexMLPClassifier
from bidual.estimators.automatic_beta import automatic_beta
from uci import chosen_sets, common_parser, line_of, load_set

SHARES = np.geomspace(0.6, 6e-4, 16)  # of beta_max
LOSSES = ("squared", "log_loss")
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Networks:
    """Networks of one split and loss; arrays have a row for every beta, and scores a column for every fold.

    Attributes:
        accuracy, loss: on the held-out part of every fold.
        test: accuracy of the networks of all training samples on the test part.
        automatic: the share of beta_max that ``beta="auto"`` stands for.
    """

    name: str
    used: str
    accuracy: Numbers
    loss: Numbers
    test: Numbers
    automatic: float


def networks(name: str, X: Numbers, y: NDArray[Any], train: NDArray[Any], test: NDArray[Any], used: str) -> Networks:
    """All networks of one split."""
    scaler = StandardScaler().fit(X[train])
    estimator = ConvexMLPClassifier(loss=used)
    samples = estimator._validate_fit(scaler.transform(X[train]), y[train], None)
    program, new = estimator._program(samples), torch.from_numpy(scaler.transform(X[test]))
    count = int(np.clip(np.unique(y[train], return_counts=True)[1].min(), 2, 5))
    folds = [held_out for _, held_out in StratifiedKFold(count).split(X[train], y[train])]
    shares = torch.ones(count + 1, len(train))  # the last row is the whole training part
    for row, held_out in enumerate(folds):
        shares[row, held_out] = 0
    loss, beta_max = estimator._make_loss(), program.beta_max

    def right(module: torch.nn.Module, samples: torch.Tensor, labels: NDArray[Any]) -> float:
        return float((estimator.classes_[loss.likeliest(module(samples)).numpy()] == labels).mean())

    scores = np.empty((3, len(SHARES), count))
    with torch.no_grad():
        for k, modules in enumerate(program.fold_modules(shares, list(SHARES * beta_max), 1e-5, None)):
            for j, (module, rows) in enumerate(zip(modules[:-1], folds, strict=True)):
                scores[0, k, j] = right(module, samples.X[rows], y[train][rows])
                scores[1, k, j] = float(loss.value(module(samples.X[rows]), samples.Y[rows]).mean())
            scores[2, k] = right(modules[-1], new, y[test])
    automatic = automatic_beta(program.problem, beta_max) / beta_max
    return Networks(name, used, scores[0], scores[1], scores[2, :, 0], automatic)


def middle(found: Networks) -> int:
    scores = found.accuracy.mean(1)
    best = np.flatnonzero(scores >= scores.max() - 1e-12)
    return int(best[(len(best) - 1) // 2])


RULES: dict[str, Callable[[Networks], float]] = {
    "held-out loss": lambda found: found.test[found.loss.mean(1).argmin()],
    "held-out accuracy, the largest of equal betas": lambda found: found.test[found.accuracy.mean(1).argmax()],
    "held-out accuracy, the middle of equal betas": lambda found: found.test[middle(found)],
    'beta="auto"': lambda found: np.interp(-np.log(found.automatic), -np.log(SHARES), found.test),
} | {
    f"{share:g} beta_max": lambda found, share=share: np.interp(-np.log(share), -np.log(SHARES), found.test)
    for share in (0.3, 0.1, 0.03, 0.01)
}


def every(args: argparse.Namespace) -> Iterator[Networks]:
    folder, names = chosen_sets(args)
    for name in names:
        X, y = load_set(folder, name)
        for train, test in StratifiedShuffleSplit(args.splits, test_size=0.25, random_state=args.seed).split(X, y):
            yield from (networks(name, X, y, train, test, used) for used in LOSSES)


def table(found: list[Networks]) -> str:
    """Mean test accuracy of every rule, over splits and then over sets."""
    rows = [(rule, one.used, one.name, float(chosen(one))) for one in found for rule, chosen in RULES.items()]
    frame = pd.DataFrame(rows, columns=["rule", "loss", "set", "accuracy"])
    means = frame.groupby(["rule", "loss", "set"]).mean().groupby(["rule", "loss"]).mean()["accuracy"].unstack()
    lines = [line_of(["beta by", *LOSSES]), line_of(["---", "---:", "---:"])]
    lines += [line_of([rule, *(f"{means.loc[rule, used]:.4f}" for used in LOSSES)]) for rule in RULES]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> None:
    args = common_parser(__doc__, jobs=1).parse_args(arguments)
    torch.set_num_threads(1)
    text = table(list(every(args)))
    print(text)
    if args.markdown:
        Path(args.markdown).write_text(text)


if __name__ == "__main__":
    main()
