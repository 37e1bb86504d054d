"""A primal-dual interior point in one small matrix per block: squared loss with nuclear norms of short blocks."""

from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import blas, lapack
from torch import Tensor

from bidual.gauges import Factorised
from bidual.numerics.small_matrices import cholesky, diagonal, eigh, extreme_eigenvalues, product, symmetric, transposed
from bidual.numerics.sparse import written_out
from bidual.operators import HasKernel
from bidual.problems.problem import Problem
from bidual.solvers.driver import Solver
from bidual.types import as_protocol

Array = NDArray[np.float64]

_PATIENCE = 5  # steps without progress


@dataclass
class _State:
    A: Array  # (d, P, n): the columns of the design, weighted, and centred if there is an intercept
    Y: Array  # (n, c), likewise
    F: Array  # (d, d, P): Q = F F^T
    g: Array  # (d, P): F^T Lambda F = diag(g)
    scaled: Array  # (d, P, n): the columns of A F
    L: Array  # (n, n): the lower factor of M
    alpha: Array  # (n, c)
    S: Array  # (d, P, c)
    T: Array  # (d, P, c): F^T S
    gap: float = float("inf")
    idle: int = 0


@dataclass(frozen=True)
class QInteriorPoint(Solver):
    r"""|Z|_* = min_{Q >= 0} 1/2 tr Z^T Q^-1 Z + 1/2 tr Q turns squared loss with nuclear norms (BM eq. 5) into

        min_{Q_p >= 0}  phi(Q) = 1/2 tr Y^T M^-1 Y + 1/2 sum_p tr Q_p,   M = beta I + sum_p A_p Q_p A_p^T,

    after beta is divided out. (It is BM Lemma 3.1 without the signs: Q = U U^T for the best factors Z = U W^T.) With
    alpha = M^-1 Y and S_p = A_p^T alpha the minimum over Z is at Z_p = Q_p S_p, its residual is beta alpha, and

        grad_p phi = 1/2 (I - S_p S_p^T),     D^2 phi [U, U] = sum_pq tr (U_p A_p^T M^-1 A_q U_q S_q S_p^T).

    There are P d (d + 1) / 2 unknowns for any number of outputs, and the kernel is n x n.

    A step is Mehrotra's predictor and corrector in the direction of Nesterov and Todd for grad phi = Lambda, Q Lambda =
    mu I. Q and its multiplier are kept as Q = F F^T, Lambda = F^-T diag(g) F^-1: in the coordinates of F, where Q = I,
    the scaling is the diagonal sqrt(g_i g_j), and updates are products, so no small entry is lost beside a large one.
    Weights and intercept are treated as in EtaInteriorPoint. It runs on the CPU in float64.
    """

    max_rows: int = 4
    name = "q_interior_point"
    needs = {"operator": (HasKernel,), "gauge": (Factorised,)}  # noqa: RUF012
    needs_squared_loss = True
    check_every = 1000

    def _refusal(self, problem: Problem) -> str | None:
        (n, c), (p, rows, columns) = problem.operator.output_shape, problem.operator.block_shape
        if not as_protocol(problem.gauge, Factorised).smooth_factors(columns):
            return f"{self.name} needs nuclear norms; {problem.gauge.name} with several outputs is none."
        if columns != c:
            return f"{self.name} needs blocks with one column per output, got {columns} columns for {c} outputs."
        if rows > self.max_rows:
            return f"{self.name} needs blocks of at most {self.max_rows} rows, got {rows}."
        k, unknowns, least = p * rows, p * rows * (rows + 1) // 2, min(n, p * rows + c)
        need = 8 * (2 * n * k + 3 * least * k + 3 * least**2 + 3 * k**2 + 2 * unknowns**2)
        return self._memory_refusal(need, torch.device("cpu"))

    def init(self, problem: Problem, start: Tensor | None, dual: Tensor | None) -> _State:
        A, Y = _samples(problem)
        size, unset = _best_multiple(A, Y, problem.beta), np.empty(0)
        F = diagonal(np.full(A.shape[:2], np.sqrt(size)))
        state = _State(A, Y, F, np.full(A.shape[:2], 0.1 * size), unset, unset, unset, unset, unset)
        _evaluate(problem.beta, state)
        state.g = np.maximum(state.g, np.abs(_slope(state)).max())
        return state

    def step(self, problem: Problem, state: _State) -> _State:
        try:
            with np.errstate(all="ignore"):
                return self._step(problem, state)
        except np.linalg.LinAlgError:  # numbers are not finite
            return replace(state, idle=_PATIENCE)

    def _step(self, problem: Problem, state: _State) -> _State:
        slope, before, now, one = _slope(state), state.gap, diagonal(state.g), diagonal(np.ones_like(state.g))
        newton = _Newton(state)
        if newton.failed:  # by rounding
            return replace(state, idle=_PATIENCE)
        U, N = newton.solve(-now, slope)
        a, b = newton.lengths(U, N, 1.0)
        mu, predicted = float(state.g.mean()), float(((one + a * U) * (now + b * N)).sum()) / state.g.size
        aim = mu * min(max(predicted / mu, 0.0) ** 3, 1.0)
        U, N = newton.solve(aim * one - now - a * b * newton.second_order(U, N), slope)
        a, b = newton.lengths(U, N, 0.98)
        K = cholesky(one + a * U)
        g, V = eigh(symmetric(product(transposed(K), product(now + b * N, K))))
        moved = replace(state, g=g, F=product(state.F, product(K, V)))
        _evaluate(problem.beta, moved)
        if not np.isfinite(moved.gap):
            return replace(state, idle=_PATIENCE)
        moved.idle = state.idle + 1 if not moved.gap <= 0.9 * before else 0
        return moved

    def point(self, problem: Problem, state: _State) -> Tensor:
        Z = np.einsum("ijp,jpc->pic", state.F, state.T)
        return torch.from_numpy(Z).to(problem.operator.like.device)

    def estimate(self, problem: Problem, state: _State) -> float | None:
        return state.gap

    def finished(self, state: _State) -> bool:
        return state.idle >= _PATIENCE


class _Newton:
    """The system H U + sqrt(g) U sqrt(g) = C + diag(g) - slope in the coordinates of F, for symmetric U."""

    def __init__(self, state: _State) -> None:
        d, p, n = state.A.shape
        self.g, self.root = state.g, np.sqrt(state.g)
        self.pairs = list(combinations_with_replacement(range(d), 2))
        W = blas.dtrsm(1.0, state.L, state.scaled.reshape(d * p, n).T, lower=1)
        flat = state.T.reshape(d * p, -1)
        G, T = (W.T @ W).reshape(d, p, d, p), (flat @ flat.T).reshape(d, p, d, p)
        blocks = np.zeros((len(self.pairs), p, len(self.pairs), p))
        for i, one in enumerate(self.pairs):
            for j, other in enumerate(self.pairs[i:], i):
                _curvature(G, T, one, other, blocks[i, :, j])
        H = blocks.reshape(len(self.pairs) * p, -1)
        self.weight = np.array([1.0 if a == b else np.sqrt(2.0) for a, b in self.pairs])[:, None]
        H.reshape(-1)[:: len(H) + 1] += np.concatenate([self.root[a] * self.root[b] for a, b in self.pairs])
        self.L, self.failed = lapack.dpotrf(H.T, lower=1, overwrite_a=1, clean=0)

    def solve(self, C: Array, slope: Array) -> tuple[Array, Array]:
        """U and the change N of F^T Lambda F, which is C - sqrt(g) U sqrt(g)."""
        right = C + diagonal(self.g) - slope
        x = self.weight * np.stack([right[a, b] for a, b in self.pairs])
        x = blas.dtrsv(self.L, blas.dtrsv(self.L, x.ravel(), lower=1), lower=1, trans=1).reshape(x.shape) / self.weight
        U = np.empty_like(right)
        for (a, b), row in zip(self.pairs, x, strict=True):
            U[a, b] = U[b, a] = row
        return U, C - self.root[:, None] * self.root * U

    def lengths(self, U: Array, N: Array, share: float) -> tuple[float, float]:
        """The longest steps, at most 1, that go only a share of the way to the border: of I + a U, of diag(g) + b N."""
        least = (extreme_eigenvalues(X)[0] for X in (U, N / (self.root[:, None] * self.root)))
        a, b = (min(1.0, -share / low) if low < 0 else 1.0 for low in least)
        return a, b

    def second_order(self, U: Array, N: Array) -> Array:
        """The product of the two moves in Q Lambda, in the scaling where Q = Lambda = diag(sqrt(g))."""
        geometric = np.sqrt(self.root[:, None] * self.root)
        mixed = symmetric(product(geometric * U, N / geometric))
        return 2 * geometric / (self.root[:, None] + self.root) * mixed


def _curvature(G: Array, T: Array, one: tuple[int, int], other: tuple[int, int], out: Array) -> None:
    """One block of the Hessian between two entries of symmetric matrices, sqrt(2) apart from the diagonal."""
    (a, b), (c, e) = one, other
    np.multiply(G[a, :, c], T[b, :, e], out)
    if c != e:
        out += G[a, :, e] * T[b, :, c]
    if a != b:
        out += G[b, :, c] * T[a, :, e]
    if a != b and c != e:
        out += G[b, :, e] * T[a, :, c]
        out *= 0.5
    elif a != b or c != e:
        out *= np.sqrt(0.5)


def _samples(problem: Problem) -> tuple[Array, Array]:
    """A (d, P, n) and Y: weighted, without the intercept, and with no more samples than columns.

    The triangle R of [A, Y] has the same inner products, and so is the same problem.
    """
    (p, d, c), data = problem.operator.block_shape, problem.datafit
    design = written_out(as_protocol(problem.operator, HasKernel).design())  # a few columns for each block
    B, Y, w = (_numpy(x) for x in (design, data.targets, data.weights))
    if data.intercept:
        B, Y = B - (w * B).sum(0) / w.sum(), Y - (w * Y).sum(0) / w.sum()
    both = np.sqrt(w) * np.hstack([B, Y])
    if len(both) > p * d + c:
        both = np.asarray(np.linalg.qr(both, mode="r"))
    columns = both[:, :-c].reshape(-1, p, d).transpose(2, 1, 0)
    return np.ascontiguousarray(columns), np.asfortranarray(both[:, -c:])


def _best_multiple(A: Array, Y: Array, beta: float) -> float:
    """About the t with the least phi(t I), where tr (A^T alpha)^T (A^T alpha) = P d."""
    rows = A.reshape(-1, A.shape[2])
    K = rows.T @ rows
    t = np.linalg.norm(Y) / (np.sqrt(np.trace(K) / len(rows)) + 1e-300)
    for _ in range(8):
        alpha = lapack.dpotrs(_factor(t * K, beta), Y, lower=1)[0]
        square = float((alpha * (K @ alpha)).sum()) / len(rows)
        if not 0 < square < np.inf:  # rounding
            break
        change = np.sqrt(square)
        t *= change
        if 0.5 < change < 2:
            break
    return float(t)


def _factor(M: Array, beta: float) -> Array:
    M.reshape(-1)[:: len(M) + 1] += beta
    L, failed = lapack.dpotrf(M.T, lower=1)
    if failed:
        raise FloatingPointError("the kernel could not be factored; are the features finite and of similar scale?")
    return L


def _evaluate(beta: float, state: _State) -> None:
    """Everything at F, and a bound of the relative gap of Z = Q S and its residual."""
    (d, p, n), F, A = state.A.shape, state.F, state.A
    state.scaled = np.stack([sum(F[i, j, :, None] * A[i] for i in range(d)) for j in range(d)])
    flat, plain = state.scaled.reshape(d * p, n), A.reshape(d * p, n)
    M = blas.dsyrk(1.0, flat.T, lower=1)
    M[np.arange(n), np.arange(n)] += beta
    state.L, _ = lapack.dpotrf(M, lower=1, overwrite_a=1, clean=0)
    alpha = lapack.dpotrs(state.L, state.Y, lower=1)[0]
    for refined in (False, True):
        S = (plain @ alpha).reshape(d, p, -1)
        T = np.einsum("ijp,ipc->jpc", F, S)
        if not refined:
            off = state.Y - flat.T @ T.reshape(d * p, -1) - beta * alpha
            alpha = alpha + lapack.dpotrs(state.L, off, lower=1)[0]
    state.alpha, state.S, state.T = alpha, S, T
    residual = beta * alpha
    squares = float((residual * residual).sum())
    primal = 0.5 * squares + 0.5 * beta * float((T * T).sum() + (F * F).sum())
    s = 1 / max(1.0, extreme_eigenvalues(np.einsum("ipc,jpc->ijp", S, S))[1]) ** 0.5
    dual = s * float((residual * state.Y).sum()) - 0.5 * s * s * squares
    state.gap = (primal - dual) / max(primal, 1e-300)


def _slope(state: _State) -> Array:
    """grad phi in the coordinates of F."""
    return 0.5 * (product(transposed(state.F), state.F) - np.einsum("ipc,jpc->ijp", state.T, state.T))


def _numpy(tensor: Tensor) -> Array:
    return tensor.detach().to("cpu", torch.float64).numpy()
