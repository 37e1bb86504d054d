"""The table as samples and targets of a network that is already there."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import is_classifier
from torch import Tensor

from bidual.cli.training import check_task, choose_task
from bidual.estimators.class_weights import class_weighted
from bidual.estimators.saving import SavedModel
from bidual.io.foreign import TwoLayerWeights, class_codes, number_targets
from bidual.io.tables import TableEncoder, read_table, split_target, target_values
from bidual.losses import Loss, resolve_loss
from bidual.runtime.extras import extra

with extra("pandas"):
    import pandas as pd


@dataclass(frozen=True)
class Samples:
    """What a network is judged on, and how it came about."""

    X: Tensor
    Y: Tensor
    loss: Loss
    task: str
    reason: str
    features: str
    weight: NDArray[np.float64] | None  # of the samples, by their classes
    weighting: str  # how classes were weighted, if they were


def load_samples(
    path: Path, target: str, task: str, loss: str, weights: TwoLayerWeights, saved: SavedModel | None, standardise: bool
) -> Samples:
    """Samples and targets of a table for a network.

    A ``saved`` model knows its own task, loss, weights of classes and encoding. With ``standardise`` the table is
    encoded anew, as ``bidual fit`` does.
    """
    frame, column = split_target(read_table(path), target)
    task, reason = _task(task, column, weights.n_outputs, saved)
    judged = _loss(loss, task, weights.n_outputs, saved)
    X, features = _features(frame, saved, standardise)
    if X.shape[1] != weights.n_features:
        raise ValueError(
            f"the network takes {weights.n_features} features, but the table gives {X.shape[1]} besides {target!r}; "
            "give the columns it was trained on."
        )
    values, model, weight, words = target_values(column, task), None if saved is None else saved.estimator, None, ""
    if task == "regression":
        Y = number_targets(values, weights.n_outputs)
    else:
        classes, codes = class_codes(values, weights.n_outputs, getattr(model, "classes_", None))
        Y, weighting = judged.encode(codes, weights.n_outputs), getattr(model, "class_weight", None)
        weight = class_weighted(weighting, classes, codes, None)
        words = "" if weight is None else f", class weights {weighting}"
    return Samples(torch.tensor(X), torch.tensor(Y), judged, task, reason, features, weight, words)


def _task(task: str, column: pd.Series, n_outputs: int, saved: SavedModel | None) -> tuple[str, str]:
    check_task(task)
    if task == "auto" and saved is not None:
        return ("classification" if is_classifier(saved.estimator) else "regression"), "as the model was trained"
    guessed, reason = choose_task(task, column, str(column.name))
    if task != "auto":
        return guessed, reason
    if n_outputs == 1 and column.nunique() != 2 and pd.api.types.is_numeric_dtype(column):
        guessed = "regression"  # one output tells two classes apart, not more
    coding = ", as -1 and +1" if guessed == "classification" and n_outputs == 1 else ""
    return guessed, reason + coding


def _loss(loss: str, task: str, n_outputs: int, saved: SavedModel | None) -> Loss:
    if loss == "auto" and saved is not None:
        return saved.estimator.loss_
    found = resolve_loss(loss, n_outputs)
    if task == "regression" and found.classification:
        raise ValueError(
            f"{found.name} loss is for classification; use squared, huber, absolute, quantile or poisson for numbers."
        )
    return found


def _features(frame: pd.DataFrame, saved: SavedModel | None, standardise: bool) -> tuple[NDArray[np.float64], str]:
    """The matrix X, and a line about how it was made."""
    if standardise:
        encoder = TableEncoder().fit(frame)
        return encoder.transform(frame).to_numpy(np.float64), encoder.summary
    if saved is not None and saved.encoder is not None:
        return saved.encoder.transform(frame).to_numpy(np.float64), "encoded as the model was trained"
    chosen = frame if saved is None else _named(frame, saved)
    return _numbers(chosen), f"{chosen.shape[1]} columns as they are"


def _named(frame: pd.DataFrame, saved: SavedModel) -> pd.DataFrame:
    """The columns that a model was trained with, if it knows their names."""
    names = list(getattr(saved.estimator, "feature_names_in_", frame.columns))
    lost = [name for name in names if name not in frame.columns]
    if lost:
        raise ValueError(f"the table lacks {lost[0]!r}; the model was trained with {len(names)} columns.")
    return frame[names]


def _numbers(frame: pd.DataFrame) -> NDArray[np.float64]:
    for name in frame.columns:
        column = frame[name]
        if not pd.api.types.is_numeric_dtype(column):  # truth values count as numbers
            raise ValueError(
                f"column {name!r} holds {column.iloc[0]!r}, but a network takes numbers; give the table it was trained "
                "on, or use --standardise if that is how it was encoded."
            )
        if not np.isfinite(column.to_numpy(np.float64, na_value=np.nan)).all():
            raise ValueError(f"column {name!r} has missing or infinite values; fill them in, or drop those rows.")
    return frame.to_numpy(np.float64)


def model_samples(saved: SavedModel, frame: pd.DataFrame) -> pd.DataFrame | NDArray[Any]:
    """The table as the model's samples; without an encoder, the columns must be its features already."""
    if saved.encoder is not None:
        return saved.encoder.transform(frame)
    return _named(frame, saved) if hasattr(saved.estimator, "feature_names_in_") else frame.to_numpy()
