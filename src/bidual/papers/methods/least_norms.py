"""The shortest vectors that satisfy linear equations, by Clarabel."""

import clarabel
import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy import sparse

from bidual.numerics.clarabel import clarabel_answer


def least_norms(
    equations: sparse.sparray, offset: Float[ndarray, " e"], size: int, halfspaces: sparse.sparray | None = None
) -> tuple[Float[ndarray, "q k"], Float[ndarray, " e"]]:
    r"""min sum_j |x_j| subject to E x = b and H x >= 0, where x stacks vectors x_j of the given size.

    Returns the x_j as rows, and the g of the dual max <g, b> subject to |(E^T g + H^T l)_j| <= 1 and l >= 0.
    """
    H = sparse.csr_array((0, equations.shape[1])) if halfspaces is None else halfspaces
    count = equations.shape[1] // size
    take = sparse.kron(
        sparse.eye_array(count), sparse.eye_array(size, 1 + size, k=1)
    )  # x_j of (s_j, x_j), |x_j| <= s_j
    cost = np.tile(np.eye(1 + size)[0], count)
    rows = sparse.csc_array(sparse.vstack([equations @ take, -sparse.eye_array(len(cost)), -(H @ take)]))
    cones = [clarabel.ZeroConeT(len(offset)), *[clarabel.SecondOrderConeT(1 + size)] * count]
    cones += [clarabel.NonnegativeConeT(H.shape[0])] if H.shape[0] else []
    zero, right = sparse.csc_array((len(cost), len(cost))), np.pad(offset, (0, rows.shape[0] - len(offset)))
    answer = clarabel_answer(zero, cost, rows, right, cones, _settings())
    if answer.lost:
        raise FloatingPointError("the interior-point method broke down on the least norms of this block.")
    return answer.x.reshape(count, 1 + size)[:, 1:], -answer.z[: len(offset)]


def _settings() -> clarabel.DefaultSettings:
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads = False, 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    return settings
