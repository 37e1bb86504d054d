"""Multipliers that show many cones at once to be harmless."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from bidual.copositive.cones import Forms, Multipliers, largest_eigenvalues

_SMOOTHING = 0.01  # of the level; the maximum of eigenvalues is smoothed by it
_LOOK_EVERY = 10


def harmless(
    forms: Forms, facets: Float[ndarray, "p f r"], level: float, start: Multipliers, steps: int = 200
) -> Multipliers:
    r"""For every cone an N >= 0 that brings lambda_max(form + K^T N K) to ``level`` or as low as was found.

    Accelerated projected gradients on the smoothed maximum mu log tr exp((form + K^T N K) / mu), all cones in step;
    those that have come down are left alone.
    """
    best = start.copy()
    least = largest_eigenvalues(forms, facets, best)
    open_ = np.flatnonzero(least > level)
    N, ahead, t = best[open_], best[open_], 1.0
    for step in range(1, steps + 1):
        if not len(open_):
            break
        new = np.maximum(ahead - _step(forms[open_], facets[open_], ahead, level), 0)
        faster = 0.5 * (1 + (1 + 4 * t * t) ** 0.5)
        ahead, N, t = new + (t - 1) / faster * (new - N), new, faster
        if step % _LOOK_EVERY == 0 or step == steps:
            value = largest_eigenvalues(forms[open_], facets[open_], N)
            better = value < least[open_]
            best[open_[better]], least[open_[better]] = N[better], value[better]
            left = least[open_] > level
            open_, N, ahead = open_[left], N[left], ahead[left]
    return best


def _step(forms: Forms, facets: Float[ndarray, "p f r"], N: Multipliers, level: float) -> Multipliers:
    """The gradient K E K^T off its diagonal, E the softmax of the eigenvalues, over its Lipschitz constant."""
    mu = _SMOOTHING * level
    values, vectors = np.linalg.eigh(forms + facets.transpose(0, 2, 1) @ N @ facets)
    share = np.exp((values - values[:, -1:]) / mu)
    share /= share.sum(1, keepdims=True)
    turned = facets @ vectors
    slope = (turned * share[:, None, :]) @ turned.transpose(0, 2, 1)
    diagonal = np.arange(slope.shape[1])
    slope[:, diagonal, diagonal] = 0
    spread = np.linalg.norm(facets, 2, axis=(1, 2)) ** 4
    return np.asarray(slope * (mu / np.maximum(spread, 1e-12))[:, None, None])
