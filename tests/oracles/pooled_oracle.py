"""Independent judges of networks on patches, in cvxpy, on rows and readouts made by explicit loops."""

import cvxpy as cp
import numpy as np
from torch import Tensor

from bidual.losses.datafit import Datafit
from oracles.cvxpy_oracle import _losses
from oracles.explicit_readouts import Explicit

TOLERANCES = {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9}


def gated_optimum(explicit: Explicit, active: Tensor, data: Datafit, beta: float) -> float:
    """BM (23), (127), (135) without cones: min F(sum_p L[D_p X Z_p]) + beta sum_p |Z_p|_*, patterns (P, R).

    Output c' of sample i is sum_p trace(B_p^i Z_p^(c')) with B_p^i = L_i D_p X (a, h) and Z_p = [Z_p^(1) ... Z_p^(c)]:
    the papers' order of columns.
    """
    X, L, D = explicit.rows.numpy(), explicit.readout.numpy(), active.double().numpy()
    c, a, h = data.targets.shape[1], L.shape[1], X.shape[1]
    Z = [cp.Variable((h, a * c)) for _ in D]
    B = np.einsum("iar,pr,rh->piha", L, D, X).reshape(len(D), len(L), h * a)
    columns = [
        sum(B[p] @ cp.reshape(Z[p][:, k * a : (k + 1) * a], (h * a,), order="C") for p in range(len(D)))
        for k in range(c)
    ]
    return _solved(data, cp.vstack(columns).T, beta * sum(cp.normNuc(block) for block in Z), [])


def dictionary_optimum(explicit: Explicit, neurons: Tensor, data: Datafit, beta: float) -> float:
    """min F(sum_j L[(X u_j)_+] Z_j) + beta sum_j |Z_j|_F over neurons of length one: an upper bound of the optimum."""
    features = explicit.features(neurons).numpy()
    n, m, a = features.shape
    Z = cp.Variable((m, a * data.targets.shape[1]))
    columns = [
        features.reshape(n, m * a) @ cp.reshape(Z[:, k * a : (k + 1) * a], (m * a,), order="C")
        for k in range(data.targets.shape[1])
    ]
    return _solved(data, cp.vstack(columns).T, beta * cp.sum(cp.norm(Z, 2, axis=1)), [])


def cone_optimum(explicit: Explicit, active: Tensor, data: Datafit, beta: float) -> float:
    """BM (23) for a = c = 1 as printed, all inequalities: a group lasso over w_p and v_p in cones, patterns (P, R)."""
    X, L, D = explicit.rows.numpy(), explicit.readout.numpy()[:, 0], active.double().numpy()
    w, v = cp.Variable((len(D), X.shape[1])), cp.Variable((len(D), X.shape[1]))
    outputs = L @ cp.sum(cp.multiply(D.T, X @ (w - v).T), axis=1, keepdims=True)
    price = cp.sum(cp.norm(w, 2, axis=1)) + cp.sum(cp.norm(v, 2, axis=1))
    inside = [cp.multiply(2 * D - 1, u @ X.T) >= 0 for u in (w, v)]
    return _solved(data, outputs, beta * price, inside)


def _solved(data: Datafit, outputs: cp.Expression, price: cp.Expression, constraints: list) -> float:
    if data.intercept:
        outputs = outputs + np.ones((len(data.targets), 1)) @ cp.Variable((1, data.targets.shape[1]))
    cost = cp.sum(cp.multiply(data.weights.numpy()[:, 0], _losses(data.loss, outputs, data.targets.numpy())))
    model = cp.Problem(cp.Minimize(cost + price), constraints)
    return float(model.solve(solver=cp.CLARABEL, use_quad_obj=False, **TOLERANCES))
