"""Non-negative least squares, as a guess that somebody checks."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.optimize import nnls


def nonnegative_multipliers(rows: Float[ndarray, "f k"], b: Float[ndarray, " k"]) -> Float[ndarray, " f"]:
    """About the l >= 0 with the least |rows^T l - b|; zero where scipy's method runs in circles."""
    try:
        return np.maximum(nnls(rows.T, b, maxiter=50 * max(rows.shape))[0], 0)
    except RuntimeError:
        return np.zeros(len(rows))
