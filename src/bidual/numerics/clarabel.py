"""Where Clarabel stops, also where it breaks down."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import clarabel
import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy import sparse


class Answer(NamedTuple):
    """The point x and the multipliers z, good or not; NaN where the solver was lost."""

    x: Float[ndarray, " n"]
    z: Float[ndarray, " m"]
    value: float
    iterations: int

    @property
    def lost(self) -> bool:
        return bool(np.isnan(self.x).any() or np.isnan(self.z).any())


def clarabel_answer(
    P: sparse.csc_array,
    q: Float[ndarray, " n"],
    A: sparse.csc_array,
    b: Float[ndarray, " m"],
    cones: Sequence[Any],
    settings: clarabel.DefaultSettings,
) -> Answer:
    """min 1/2 x^T P x + q^T x subject to b - A x in the cones.

    On nearly singular semidefinite cones Clarabel panics (seen with 0.11: "Eigval error"), which Python sees as an
    exception that is no Exception.
    """
    try:
        found = clarabel.DefaultSolver(P, q, A, b, cones, settings).solve()
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        return Answer(np.full(len(q), np.nan), np.full(len(b), np.nan), np.nan, 0)
    return Answer(np.asarray(found.x), np.asarray(found.z), float(found.obj_val), int(found.iterations))
