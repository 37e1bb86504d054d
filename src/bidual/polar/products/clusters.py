"""Rows that share a multiplier."""

import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn.cluster import KMeans
from torch import Tensor

from bidual.types import Matrix

_ROUNDS = 8


def labels_of(x: Float[Tensor, "n d"], V: Matrix, count: int) -> Int[Tensor, " n"]:
    """About ``count`` clusters of rows that point the same way and have like rows of V, as k-means finds them.

    With one output the signs of v are kept apart. Any clusters give a valid bound.
    """
    directions = torch.nn.functional.normalize(x, dim=1).numpy()
    weight = (torch.linalg.vector_norm(x, dim=1) * torch.linalg.vector_norm(V, dim=1)).numpy() + 1e-12
    if V.shape[1] > 1:
        features = np.concatenate([directions, torch.nn.functional.normalize(V, dim=1).numpy()], 1)
        return torch.from_numpy(_clustered(features, weight, count))
    labels = np.zeros(len(x), dtype=np.int64)
    for side in (V[:, 0] > 0, V[:, 0] <= 0):
        rows = side.numpy()
        if rows.any():
            share = max(1, round(count * rows.mean()))
            labels[rows] = labels.max() + 1 + _clustered(directions[rows], weight[rows], share)
    return torch.from_numpy(np.unique(labels, return_inverse=True)[1])


def _clustered(features: np.ndarray, weight: np.ndarray, count: int) -> np.ndarray:
    if count >= len(features):
        return np.arange(len(features))
    found = KMeans(count, n_init=1, max_iter=_ROUNDS, random_state=0).fit(features, sample_weight=weight)
    return found.labels_.astype(np.int64)
