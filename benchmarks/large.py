"""Default fits of 50,000 samples of 12 features, gated and ReLU, with their certificates.

    python benchmarks/processor_clock.py benchmarks/large.py [--rows 50000] [--activations gated_relu relu]

Samples are normal, labels the signs of a network of ten neurons with noise; a fifth of the rows more test the accuracy.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch start their threads

import argparse
import time
import warnings

import numpy as np
import torch

from bidual import ConvexMLPClassifier
from splits import Table, line_of

FEATURES, NEURONS, NOISE = 12, 10, 0.5
HEAD = ("fit", "rows", "seconds", "certified gap", "search gap", "neurons", "accuracy")


def table(rows: int) -> Table:
    rng = np.random.default_rng(0)
    X, U = rng.standard_normal((rows, FEATURES)), rng.standard_normal((FEATURES, NEURONS)) / FEATURES**0.5
    outputs = np.maximum(X @ U, 0) @ np.sign(rng.standard_normal(NEURONS)) + NOISE * rng.standard_normal(rows)
    return X, (outputs > np.median(outputs)).astype(int)


def row(activation: str, rows: int) -> list[str]:
    X, y = table(rows + rows // 5)
    model = ConvexMLPClassifier(activation=activation, random_state=0)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a gap that was not reached is in the table
        model.fit(X[:rows], y[:rows])
    seconds, search = time.perf_counter() - began, model.search_gap_ if activation == "relu" else None
    gaps = [f"{model.certificate_.relative_gap:.1e}", "" if search is None else f"{search:.1e}"]
    return [
        activation,
        f"{rows} x {FEATURES}",
        f"{seconds:.1f}",
        *gaps,
        str(model.n_neurons_),
        f"{model.score(X[rows:], y[rows:]):.3f}",
    ]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--activations", nargs="+", default=["gated_relu", "relu"], choices=["gated_relu", "relu"])
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    print(line_of(HEAD) + "\n" + line_of(["---"] * len(HEAD)))
    for activation in given.activations:
        print(line_of(row(activation, given.rows)), flush=True)


if __name__ == "__main__":
    main()
