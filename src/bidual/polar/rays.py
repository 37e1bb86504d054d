"""The corners of all activation cones, cut off by a polyhedral norm."""

from math import comb

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from bidual.memory import available_bytes, human_bytes
from bidual.norms import L2, LINF, Norm
from bidual.patterns.arrangement import Arrangement

_DIGITS = 13  # directions that agree to so many are listed once


def corner_directions(X: Float[Tensor, "n d"], norm: Norm) -> tuple[Float[Tensor, "q d"], float]:
    r"""Directions u of norm one where convex functions peak, one of each pair +-u; and how coarse they are, relatively.

    Let the norm be l1 or linf, and cut R^d by the hyperplanes of X and by the norm's creases (:meth:`Norm.creases`).
    A cell of that arrangement is a cone K with no line in it, since the creases span R^d; on K the pattern is
    constant, and so is the linear function that equals |u|. So K cut to |u| <= 1 is the convex hull of 0 and of K's
    extreme rays cut to norm one. An extreme ray lies on d - 1 independent hyperplanes: it is a flat of dimension one,
    and in any plane of the arrangement that holds it, it is where some row changes sign. The cells that share a
    pattern fill its cone, so a function that is convex on every activation cone is largest at one of these points.
    """
    d = X.shape[1]
    if d == 1:
        return torch.ones(1, 1, dtype=torch.float64), 0.0
    check_corners(len(X), d, norm)
    rows = L2.unit(LINF.unit(X))  # hyperplanes have no length
    arrangement = Arrangement(torch.cat([rows.cpu(), norm.creases(d)]).numpy())
    rays = [_rays(flat.basis, flat.rows[~flat.vanishing]) for flat in arrangement.flats(2)]
    directions = norm.unit(torch.from_numpy(np.concatenate(rays)))
    return _once(directions), max(arrangement.coarseness, 10.0**-_DIGITS)


def corner_count(n: int, d: int, norm: Norm) -> int:
    """The most directions that :func:`corner_directions` computes before those that agree are dropped."""
    rows = n + len(norm.creases(d))
    return comb(rows, d - 2) * (rows - d + 2) if d > 1 else 1


def check_corners(n: int, d: int, norm: Norm) -> None:
    """Refuse before any work if the directions would need more memory than there is."""
    rows = n + len(norm.creases(d))
    need = corner_count(n, d, norm) * 8 * (5 * d + 8) + comb(rows, d - 2) * 40 * rows
    there = available_bytes(torch.device("cpu"))
    if need > there:
        raise ValueError(
            f"{n} samples of {d} features have up to {corner_count(n, d, norm):,} corners under the {norm.name} norm, "
            f"whose enumeration would need {human_bytes(need)}, and {human_bytes(there)} are free; use NormSearch."
        )


def _rays(basis: Float[ndarray, "d 2"], rows: Float[ndarray, "k 2"]) -> Float[ndarray, "k d"]:
    """The directions of a plane at which its rows vanish."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return (np.column_stack([-rows[:, 1], rows[:, 0]]) / lengths) @ basis.T


def _once(directions: Float[Tensor, "q d"]) -> Float[Tensor, "k d"]:
    """One of every group of directions that are equal or opposite, to some digits; near-copies may be left."""
    rounded = directions.numpy().round(_DIGITS)
    leading = np.take_along_axis(rounded, (rounded != 0).argmax(1)[:, None], 1)
    kept = np.unique(rounded * np.sign(leading) + 0.0, axis=0, return_index=True)[1]
    return directions[torch.from_numpy(kept)]
