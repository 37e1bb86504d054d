"""Every method on every set and split of R13 (PR Table 3), in several processes, with the rows kept as they come."""

import json
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from bidual.papers.uci.data import read_uci
from bidual.papers.uci.models import METHODS, RATES, TUNED, Fit, Settings, Split, accuracy
from bidual.runtime.files import check_target, write_atomically
from bidual.runtime.jobs import Task, run_all
from bidual.runtime.threads import one_thread

SCALINGS = ("sum", "mean")
OnRow = Callable[["Row"], None]


class Job(NamedTuple):
    """What a row is for."""

    name: str
    scaling: str
    method: str


@dataclass(frozen=True)
class Row:
    """One method on one set.

    Attributes:
        name, n, d: the set.
        scaling: "sum" or "mean", the loss over samples; "tuned" where beta or another constant is tuned instead.
        method: one of :data:`METHODS`.
        accuracies, train_accuracies: of every split.
        objectives: on the training part, in this scaling; None if it is not finite, empty if there is none.
        gap: the worst certified relative gap, where there is one.
        choices: what was tuned, for every split. A learning rate is tuned on the first split's training part; on a
            split where descent ended above the zero network the next lower one of the grid was taken.
        seconds: of all splits, tuning included.
    """

    name: str
    n: int
    d: int
    scaling: str
    method: str
    accuracies: tuple[float, ...]
    train_accuracies: tuple[float, ...]
    objectives: tuple[float | None, ...]
    gap: float | None
    choices: tuple[float, ...]
    seconds: float

    @property
    def job(self) -> Job:
        return Job(self.name, self.scaling, self.method)


def run_study(
    folder: str | Path,
    names: Sequence[str],
    settings: Settings,
    *,
    out: str | Path | None = None,
    workers: int | None = 2,
    on_row: OnRow | None = None,
) -> list[Row]:
    """Every method on every set in both scalings, the largest sets first.

    Args:
        folder: of the CSV files, with the columns ``f0, f1, ..., label``.
        out: a JSON file where rows are kept as they come; those that it holds are not computed again.
        workers: processes, of one thread each; a joblib backend that the caller has chosen has its own.
        on_row: called with every computed row.
    """
    folder = _check_folder(Path(folder), names)
    rows = [] if out is None else read_rows(out, settings)
    done = {row.job for row in rows}
    jobs = _jobs(folder, names)
    left = [job for job in jobs if job not in done]

    def keep(_: int, row: Row) -> None:
        rows.append(row)
        if out is not None:
            _write_rows(out, rows, settings)
        if on_row is not None:
            on_row(row)

    run_all([Task(measure, (folder.resolve(), *job, settings)) for job in left], workers, keep)
    by_job = {row.job: row for row in rows}
    return [by_job[job] for job in sorted(jobs, key=lambda job: job.name)]


def _check_folder(folder: Path, names: Sequence[str]) -> Path:
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}; give the one that holds the UCI sets as CSV files.")
    lost = [name for name in names if not (folder / f"{name}.csv").is_file()]
    if lost:
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        raise FileNotFoundError(f"{folder} lacks {lost[0]}.csv{more}; add the files, or name the sets to run.")
    return folder


def _jobs(folder: Path, names: Sequence[str]) -> list[Job]:
    """The slowest first, so that no worker is left with one of them at the end."""
    sizes = {name: load_set(folder, name)[0].numel() for name in names}
    ordered = sorted(names, key=lambda name: -sizes[name])
    return [
        Job(name, scaling, method)
        for name in ordered
        for method in METHODS
        for scaling in (("tuned",) if method in TUNED else SCALINGS)
    ]


def read_rows(path: str | Path, settings: Settings) -> list[Row]:
    """The rows of a file, none if there is no such file; refused if they were made with other settings."""
    path = check_target(path)
    if not path.exists():
        return []
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        made_with, rows = kept["settings"], [_row(row) for row in kept["rows"]]
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{path} does not hold rows of this study; give another file.") from error
    if made_with != asdict(settings):
        raise ValueError(f"{path} was made with other settings, {made_with}; delete it, or run with --force.")
    return rows


def _row(kept: Mapping[str, Any]) -> Row:
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in kept.items()}
    return Row(**values)


def _write_rows(path: str | Path, rows: Sequence[Row], settings: Settings) -> None:
    kept = {"settings": asdict(settings), "rows": [asdict(row) for row in rows]}
    write_atomically(path, (json.dumps(kept, indent=1, allow_nan=False) + "\n").encode())


def load_set(folder: Path, name: str) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n 1"]]:
    """Samples and labels +1, -1 of one CSV file with the columns ``f0, f1, ..., label``."""
    X, y = read_uci(folder / f"{name}.csv")
    signs = np.where(y == y.max(), 1.0, -1.0)
    return torch.from_numpy(X), torch.from_numpy(signs)[:, None]


def measure(folder: Path, name: str, scaling: str, method: str, settings: Settings) -> Row:
    """One method on all splits of one set, on one thread."""
    X, y = load_set(folder, name)
    splits = [Split.draw(X, y, seed) for seed in range(settings.splits)]
    began = time.perf_counter()
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's, about folds of tiny sets
        fits = list(_fits(splits, settings, scaling, method))
    seconds = time.perf_counter() - began
    pairs = list(zip(fits, splits, strict=True))
    gaps, choices = ([value for value in column if value is not None] for column in list(zip(*fits, strict=True))[3:])
    return Row(
        name,
        X.shape[0],
        X.shape[1],
        scaling,
        method,
        tuple(accuracy(fit.test, split.y_test) for fit, split in pairs),
        tuple(accuracy(fit.train, split.y) for fit, split in pairs),
        tuple(fit.objective if math.isfinite(fit.objective) else None for fit in fits if fit.objective is not None),
        max(gaps, default=None),
        tuple(choices),
        seconds,
    )


def _fits(splits: Sequence[Split], settings: Settings, scaling: str, method: str) -> Iterator[Fit]:
    """Every split; a learning rate is tuned on the training part of the first, and lowered where descent fails."""
    fit, rates = METHODS[method], RATES.get(method, (0.0,))
    if method in RATES:
        inner = splits[0].inner
        best = max(rates, key=lambda rate: fit(inner, settings, scaling, rate).rank(inner, scaling))
        rates = [rate for rate in sorted(rates, reverse=True) if rate <= best]
    for split in splits:
        for rate in rates:
            found = fit(split, settings, scaling, rate)
            if method not in RATES or not found.failed(split, scaling):
                break
        yield found
