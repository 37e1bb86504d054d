"""How defaults of ReLU networks on small tables were chosen (docs/uci.md): ``python benchmarks/defaults.py --help``.

For every split and both losses, networks are trained at sixteen betas on five folds and on the whole training part,
all in one batch (``bidual.training.relu.fold_networks``; not certified). Rules then choose among the same networks.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch start their threads

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from bidual import ConvexMLPClassifier
from bidual.estimators.automatic_beta import automatic_beta
from splits import Split, chosen_sets, line_of, on_splits, parser_of_sets, write_outcomes

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


def networks(split: Split, used: str, options: dict[str, Any]) -> Networks:
    """All networks of one split."""
    X, y, X_test, y_test = split.parts
    estimator = ConvexMLPClassifier(**options | {"loss": used})
    samples = estimator._validate_fit(X, y, None)
    program, new = estimator._program(samples), torch.from_numpy(X_test)
    count = int(np.clip(np.unique(y, return_counts=True)[1].min(), 2, 5))
    folds = [held_out for _, held_out in StratifiedKFold(count).split(X, y)]
    shares = torch.ones(count + 1, len(y))  # the last row is the whole training part
    for row, held_out in enumerate(folds):
        shares[row, held_out] = 0
    loss, beta_max = estimator.loss_, program.beta_max

    def right(module: torch.nn.Module, samples: torch.Tensor, labels: NDArray[Any]) -> float:
        return float((estimator.classes_[loss.likeliest(module(samples)).numpy()] == labels).mean())

    scores = np.empty((3, len(SHARES), count))
    with torch.no_grad():
        for k, modules in enumerate(program.fold_modules(shares, list(SHARES * beta_max), 1e-5, None)):
            for j, (module, rows) in enumerate(zip(modules[:-1], folds, strict=True)):
                scores[0, k, j] = right(module, samples.X[rows], y[rows])
                scores[1, k, j] = float(loss.value(module(samples.X[rows]), samples.Y[rows]).mean())
            scores[2, k] = right(modules[-1], new, y_test)
    automatic = automatic_beta(program.problem, beta_max) / beta_max
    return Networks(split.name, used, scores[0], scores[1], scores[2, :, 0], automatic)


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


def run_split(options: dict[str, Any], split: Split) -> list[Networks]:
    """Networks of both losses."""
    return [networks(split, used, options) for used in LOSSES]


def table(found: list[Networks]) -> str:
    """Mean test accuracy of every rule, over splits and then over sets."""
    rows = [(rule, one.used, one.name, float(chosen(one))) for one in found for rule, chosen in RULES.items()]
    frame = pd.DataFrame(rows, columns=["rule", "loss", "set", "accuracy"])
    means = frame.groupby(["rule", "loss", "set"]).mean().groupby(["rule", "loss"]).mean()["accuracy"].unstack()
    lines = [line_of(["beta by", *LOSSES]), line_of(["---", "---:", "---:"])]
    lines += [line_of([rule, *(f"{means.loc[rule, used]:.4f}" for used in LOSSES)]) for rule in RULES]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> None:
    args = parser_of_sets(__doc__).parse_args(arguments)
    found = on_splits(partial(run_split, dict(args.option)), chosen_sets(args), args)
    write_outcomes(found, table(found), args)


if __name__ == "__main__":
    main()
