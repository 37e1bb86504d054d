"""Small data for theorems about parallel networks."""

import numpy as np
import torch


def data(n: int, seed: int, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Samples in the plane with the labels of a three-layer teacher, random ones, or +1 and -1 in turn."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    if kind == "alternating":
        y = (-1.0) ** np.arange(n)
    elif kind == "random":
        y = rng.standard_normal(n)
    else:
        W, w = rng.standard_normal((5, 2, 2)), rng.standard_normal((5, 2, 1))
        y = np.maximum(np.maximum(X @ W, 0) @ w, 0).sum((0, 2))
    return torch.from_numpy(X), torch.from_numpy(y)[:, None]
