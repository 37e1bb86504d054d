"""What the tests of sweeps run elsewhere, and what they run it on."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from bidual import ConvexMLPClassifierCV
from bidual.papers.uci.models import Settings
from bidual.papers.uci.study import OnRow, Row, run_study

NAMES = ("one", "other")
# a time limit that nothing here reaches: results that depend on a clock are not the same twice
SETTINGS = Settings(splits=1, n_networks=4, width=3, steps=10, min_steps=10, batch_size=8, relu_seconds=60.0)


def square(k: int) -> int:
    time.sleep(0.02 * (k == 0))  # the first ends last
    return k * k


def square_but_die_first(k: int, folder: Path) -> int:
    """The worker that is given the number 2 for the first time is gone."""
    if k == 2 and not (folder / "died").exists():
        (folder / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return k * k


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refuse() -> None:
    raise ValueError("no")


def threads() -> int:
    return torch.get_num_threads()


def write_sets(folder: Path) -> Path:
    """Two sets of 16 samples."""
    random = np.random.default_rng(0)
    for name in NAMES:
        X = random.standard_normal((16, 2))
        label = (X[:, 0] + 0.3 * random.standard_normal(16) > 0).astype(int)
        pd.DataFrame(X, columns=["f0", "f1"]).assign(label=label).to_csv(folder / f"{name}.csv", index=False)
    return folder


def study(folder: Path, on_row: OnRow | None = None) -> list[Row]:
    """All rows, without the seconds they took."""
    rows = run_study(folder, NAMES, SETTINGS, workers=None, on_row=on_row)
    return [replace(row, seconds=0.0) for row in rows]


def cross_validated(
    n_jobs: int | None = None, random_state: object = 0
) -> tuple[list[list[float]], float, list[float]]:
    """Scores of all folds, the beta that was chosen, and predictions of the last fit."""
    random = np.random.default_rng(0)
    X = random.standard_normal((30, 3))
    y = X[:, 0] * X[:, 1] + 0.1 * random.standard_normal(30) > 0
    gated = {"activation": "gated_relu", "n_gates": 12, "loss": "log_loss"}
    fit = ConvexMLPClassifierCV(n_betas=4, cv=3, n_jobs=n_jobs, random_state=random_state, **gated).fit(X, y)
    return fit.cv_scores_.tolist(), float(fit.beta_), fit.decision_function(X).tolist()
