"""`bidual fit --distributed`: one fit over the processes that torchrun has started."""

import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from bidual.cli import training as t
from bidual.distributed.encoding import gathered_targets, is_mixed, mapped_encoder, mixed_columns, shared_encoder
from bidual.distributed.fitting import Data, Estimator, fit_shards
from bidual.distributed.rows import RowsInMemory, RowsOnDisk
from bidual.distributed.shards import check_file, mapped_shard, table_shard
from bidual.estimators.saving import save
from bidual.io.tables import TableEncoder, split_target, target_values
from bidual.operators.tiled import MappedRows
from bidual.runtime.extras import extra
from bidual.runtime.files import check_target
from bidual.runtime.ranks import Ranks

with extra("pandas"):
    import pandas as pd


class Request(NamedTuple):
    """What was asked for on the command line."""

    data: Path
    target: str
    out: Path
    task: str
    beta: str
    settings: dict[str, Any]
    checkpoint: Path | None


def fit_distributed(request: Request) -> t.Outcome | None:
    """Read, train and save together; what came out on rank 0, None on the others."""
    with t.command_ranks(request.settings["device"]) as ranks:
        ranks.together(lambda: _check(request))
        return _fit(request, ranks)


def _check(request: Request) -> None:
    """What can be refused before anything is read."""
    checkpoints = [] if request.checkpoint is None else [request.checkpoint]
    if request.beta == "cv":
        raise ValueError("a distributed run fits one network: give --beta auto, or a number.")
    if request.settings["activation"] != "gated_relu":
        raise ValueError(
            "a distributed run trains networks with fixed gates, because a relu network finds its neurons from all "
            "rows at once; add --activation gated_relu."
        )
    t.check_task(request.task)
    check_file(request.data)
    check_target(request.out, request.data, *checkpoints)
    for checkpoint in checkpoints:
        check_target(checkpoint, request.data)


def _fit(request: Request, ranks: Ranks) -> t.Outcome | None:
    data, encoder, task, reason = _read(request, ranks)
    estimator = ranks.together(lambda: t.make_estimator(task, request.beta, request.settings))
    assert isinstance(estimator, Estimator)
    began = time.perf_counter()
    score = fit_shards(estimator, data, ranks, checkpoint=request.checkpoint)
    seconds = time.perf_counter() - began
    if data.targets is None:
        return None
    save(estimator, request.out, encoder)
    return t.Outcome(estimator, encoder, task, reason, len(data.targets), score, seconds, ranks.size)


def _read(request: Request, ranks: Ranks) -> tuple[Data, TableEncoder, str, str]:
    if request.data.suffix.lower() == ".npy":
        rows, column, encoder = _read_array(request, ranks)
        data_rows: RowsOnDisk | RowsInMemory = RowsOnDisk(rows)
    else:
        features, column = _read_table(request, ranks)
        encoder = shared_encoder(features, ranks)
        X = ranks.together(lambda: encoder.transform(features).to_numpy())
        data_rows = RowsInMemory(torch.tensor(np.ascontiguousarray(X)))
    targets, task, reason = _all_targets(column, request, ranks)
    return Data(data_rows, encoder.feature_names, targets), encoder, task, reason


def _read_table(request: Request, ranks: Ranks) -> tuple[pd.DataFrame, pd.Series]:
    """A rank's rows; columns that are numbers on some ranks only are read once more, as texts."""
    frame = table_shard(request.data, ranks)
    features, column = ranks.together(lambda: split_target(frame, request.target, missing=True))
    texts = mixed_columns(features, ranks) + ([request.target] if is_mixed(column, ranks) else [])
    if texts and request.data.suffix.lower() == ".csv":  # other files say the types of their columns
        frame = table_shard(request.data, ranks, texts)
    return frame[list(features.columns)], frame[request.target]


def _read_array(request: Request, ranks: Ranks) -> tuple[MappedRows, pd.Series, TableEncoder]:
    """The rows of an array on disk, of which the target is a column."""
    rows = ranks.together(lambda: mapped_shard(request.data, ranks))
    width = rows.array.shape[1]
    target = ranks.together(lambda: _column_number(request.target, width))
    columns = [k for k in range(width) if k != target]
    encoder = mapped_encoder(rows, columns, ranks)
    numbers = torch.tensor([[c.mean, c.scale] for c in encoder.columns], dtype=torch.float64)  # type: ignore[union-attr]
    samples = MappedRows(rows.array, np.array(columns), numbers[:, 0], numbers[:, 1])
    return samples, pd.Series(np.array(rows.array[:, target]), name=request.target), encoder


def _column_number(target: str, width: int) -> int:
    try:
        number = int(target)
    except ValueError:
        number = width
    if width < 2 or not -width <= number < width:
        raise ValueError(f"the target of an array is the number of a column, -{width} to {width - 1}, got {target!r}.")
    return number % width


def _all_targets(column: pd.Series, request: Request, ranks: Ranks) -> tuple[NDArray[Any] | None, str, str]:
    """The targets of all ranks on rank 0, and the task on every rank."""
    whole = gathered_targets(column, ranks)

    def values() -> tuple[NDArray[Any] | None, str, str]:
        if whole is None:
            return None, "", ""
        task, reason = t.choose_task(request.task, whole, request.target)
        return target_values(whole, task), task, reason

    targets, task, reason = ranks.together(values)
    return (targets, *ranks.broadcast_json([task, reason]))
