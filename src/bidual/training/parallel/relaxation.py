r"""The dual point at which the relaxed bound proves the most, for one output and squared loss.

The bound of :mod:`bidual.polar.subnetworks.bound` holds for any split v = a - b into non-negative parts: N(v) <= beta
if for both signs of v, with beta' = beta / sqrt(m_1 m_2 ...),

    e >= v,   c >= 0,   c >= -e,   e^T (X u)_+ <= beta',   c^T (X u)_+ <= beta'   for all |u| <= 1     (e = a - theta b)

have a solution: convex in v, e and c together. Maximising the dual over it is a quadratic program with one constraint
for every two-layer neuron u, of which few are active. Its own dual replaces each second-layer unit h_+ by any
p with (h)_+ <= p <= h_(+), the part of h from units of sign +1: the linear relaxation of the ReLU.
"""

from math import sqrt

import clarabel
import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from scipy import sparse

from bidual.numerics.clarabel import clarabel_answer
from bidual.polar.base import NeuronOracle, Neurons
from bidual.problems.parallel import ParallelProblem
from bidual.types import Matrix

_ROUNDS, _CUTS = 8, 15
_CLOSE = 1e-4
_LARGEST = 60  # samples; the program has five variables for each


def relaxed_dual(problem: ParallelProblem, oracle: NeuronOracle, neurons: Neurons) -> Matrix | None:
    """The dual point, by cutting planes that start with the given two-layer neurons; None where it does not apply."""
    data = problem.datafit
    if data.targets.shape[1] != 1 or not data.loss.half_square or len(problem.X) > _LARGEST:
        return None
    n, level, known = len(problem.X), problem.beta / sqrt(problem.units), [_features(problem, neurons)]
    best = None
    for _ in range(_ROUNDS):
        x = _solve(problem, np.concatenate(known), level)
        if x is None:
            break
        best = torch.from_numpy(x[:n].copy()).to(problem.X)[:, None]
        found = [oracle.steepest(torch.from_numpy(part)[:, None]) for part in x.reshape(5, n)[1:]]
        known += [_features(problem, one.neurons[:_CUTS]) for one in found]
        if max(one.bracket.lower for one in found) <= level * (1 + _CLOSE):
            break
    return best


def _features(problem: ParallelProblem, neurons: Neurons) -> Float[ndarray, "q n"]:
    unit = neurons / torch.linalg.vector_norm(neurons, dim=1, keepdim=True)
    return (problem.X @ unit.to(problem.X).T).clamp(min=0).T.cpu().numpy()


def _solve(problem: ParallelProblem, F: Float[ndarray, "q n"], level: float) -> Float[ndarray, " x"] | None:
    """min F*(v) over (v, e, c, e', c'), the primed ones for -v, at a scale where the targets are of size one."""
    data, n = problem.datafit, F.shape[1]
    y, w = (part.cpu().numpy().ravel() for part in (data.targets, data.weights))
    size = max(float(np.abs(y).max()), 1e-300)
    P = sparse.csc_array(sparse.block_diag([sparse.diags_array(1 / w), sparse.csc_array((4 * n, 4 * n))]))
    equal = sparse.csr_array(np.concatenate([np.ones(n), np.zeros(4 * n)])[None] if data.intercept else (0, 5 * n))
    below = sparse.vstack([_order(n), sparse.kron(sparse.eye_array(5).tocsr()[1:], sparse.csr_array(F))])
    b = np.concatenate([np.zeros(equal.shape[0] + 6 * n), np.full(4 * len(F), level / size)])
    cones = [clarabel.ZeroConeT(equal.shape[0]), clarabel.NonnegativeConeT(below.shape[0])]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    q = np.concatenate([y / size, np.zeros(4 * n)])
    x = size * clarabel_answer(P, q, sparse.csc_array(sparse.vstack([equal, below])), b, cones, settings).x
    return x if np.isfinite(x).all() else None


def _order(n: int) -> sparse.sparray:
    """v <= e, -v <= e', -e <= c, -e' <= c', 0 <= c, 0 <= c' as rows M x <= 0."""
    signs = np.array(
        [[1, -1, 0, 0, 0], [-1, 0, 0, -1, 0], [0, -1, -1, 0, 0], [0, 0, 0, -1, -1], [0, 0, -1, 0, 0], [0, 0, 0, 0, -1]]
    )
    return sparse.kron(sparse.csr_array(signs), sparse.eye_array(n))
