"""Small data sets that are generated, not stored."""

import numpy as np
from numpy.typing import NDArray


def make_spiral(
    n: int = 150, n_classes: int = 3, noise: float = 0.2, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Interleaved spiral arms in the plane, one per class (BM section 4.1): samples (n, 2) and labels (n,).

    The radius runs from 0.05 to 1, the angle of class j from 4j to 4(j + 1) with normal noise. n must be a multiple of
    n_classes.
    """
    if n_classes < 1 or n < n_classes or n % n_classes:
        raise ValueError(f"n must be a positive multiple of n_classes, got n={n} and n_classes={n_classes}.")
    rng = np.random.default_rng(seed)
    m = n // n_classes
    radius = np.linspace(0.05, 1, m)
    arms = []
    for j in range(n_classes):
        angle = np.linspace(4 * j, 4 * (j + 1), m) + noise * rng.standard_normal(m)
        arms.append(np.column_stack([radius * np.sin(angle), radius * np.cos(angle)]))
    return np.vstack(arms), np.repeat(np.arange(n_classes), m)
