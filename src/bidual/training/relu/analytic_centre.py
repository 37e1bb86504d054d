r"""Analytic centres of what cuts leave of a dual, for the cutting-plane method of CP A.5.

In units in which sample weights and intercepts are gone, R = -V / sqrt(w) and a_k = sqrt(w) (X u_k)_+ / beta, the dual
of squared loss over the neurons at hand is max D(R) = <R, Y> - 1/2 |R|^2 subject to |R^T a_k| <= 1. The analytic centre
of { R : D(R) >= level, |R^T a_k| <= 1 } maximises q log(D(R) - level) + sum_k log(1 - |R^T a_k|^2) for some weight q of
the level; with mu = (D(R) - level) / q it is where

    Y - R = sum_k a_k 2 y_k (R^T a_k)^T,    y_k (1 - |R^T a_k|^2) = mu.

The first equation says that R is the residual of the network with output weights 2 y_k R^T a_k; its primal value is
then above D(R) by sum_k 2 mu |R^T a_k| / (1 + |R^T a_k|) < mu K, whatever the cuts are.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.numerics.linear_algebra import robust_cholesky
from bidual.types import Matrix

_LOOSE = 0.3  # how far from mu the products y_k s_k of a centre may be
_SHARE = 0.1  # of mu K, what an unsolved first equation may add to the primal value
_FALL = 0.1  # the most that a step lets the weight fall
_BORDER = 0.99  # of the way to the border, the most that a step goes


@dataclass(frozen=True, eq=False)
class Centre:
    """A point R strictly inside all cuts, and a multiplier y_k > 0 of every cut."""

    point: Matrix
    multipliers: Float[Tensor, " K"]

    def moved(self, step: "Centre", length: float) -> "Centre":
        return Centre(self.point + length * step.point, self.multipliers + length * step.multipliers)


@dataclass(frozen=True, eq=False)
class _Equations:
    """What is left of the two equations of a centre: T = A^T R, s_k = 1 - |T_k|^2, and both residuals."""

    T: Float[Tensor, "K c"]
    slack: Float[Tensor, " K"]
    stationarity: Matrix
    complementarity: Float[Tensor, " K"]


@dataclass(frozen=True, eq=False)
class Cuts:
    """The set { R : |R^T a_k| <= 1 for all k }, in which max D(R) = <R, Y> - 1/2 |R|^2 is looked for.

    Attributes:
        targets: Y.
        features: the columns a_k.
    """

    targets: Matrix
    features: Float[Tensor, "n K"]

    def slack(self, R: Matrix) -> Float[Tensor, " K"]:
        """1 - |R^T a_k|^2 of every cut."""
        return 1 - (self.features.T @ R).square().sum(1)

    def centre(self, start: Centre, mu: float, stop: Callable[[], bool], max_steps: int = 60) -> Centre:
        """The centre of weight ``mu`` from a point inside, by Newton's method on both equations, damped to stay there.

        Newton's method on the barrier alone has the same centres, but is lost in rounding as soon as a step comes near
        a cut; and asking every step to solve the equations better costs more steps than it saves.
        """
        n, cuts = self.features.shape
        if n <= cuts:
            return self._centre(start, mu, stop, max_steps)
        Q, coefficients = torch.linalg.qr(self.features)  # R differs from Y in the span of the a_k only
        inner = Cuts(Q.T @ self.targets, coefficients)
        found = inner._centre(Centre(Q.T @ start.point, start.multipliers), mu, stop, max_steps)
        return Centre(self.targets + Q @ (found.point - inner.targets), found.multipliers)

    def _centre(self, now: Centre, mu: float, stop: Callable[[], bool], max_steps: int) -> Centre:
        for _ in range(max_steps):
            left = self._equations(now, max(mu, _FALL * self._weight(now)))
            if self._is_centre(left, mu) or stop():
                break
            try:
                step = self._newton(now, left)
            except FloatingPointError:  # rounding has the last word
                break
            new = now.moved(step, self._length(now, left, step))
            if not bool((self.slack(new.point) > 0).all()):  # by rounding; false for NaN, too
                break
            now = new
        return now

    def _weight(self, at: Centre) -> float:
        """The mean of y_k s_k."""
        return float((at.multipliers * self.slack(at.point)).mean()) if len(at.multipliers) else 0.0

    def _equations(self, at: Centre, mu: float) -> _Equations:
        R, y = at.point, at.multipliers
        T = self.features.T @ R
        slack = 1 - T.square().sum(1)
        return _Equations(T, slack, self.targets - R - self.features @ (2 * y[:, None] * T), mu - y * slack)

    def _is_centre(self, left: _Equations, mu: float) -> bool:
        unsolved = float(torch.linalg.vector_norm(left.stationarity)) * float(torch.linalg.vector_norm(self.targets))
        loose = float(left.complementarity.abs().amax()) if len(left.slack) else 0.0
        return unsolved <= _SHARE * mu * len(left.slack) and loose <= _LOOSE * mu

    def _newton(self, at: Centre, left: _Equations) -> Centre:
        """The step that solves both equations, linearised; the multipliers are eliminated."""
        A, T, y, s = self.features, left.T, at.multipliers, left.slack
        L = robust_cholesky(self._hessian(T, y, s))
        right = left.stationarity - A @ (2 * (left.complementarity / s)[:, None] * T)
        dR = torch.cholesky_solve(right.reshape(-1, 1), L).reshape(right.shape)
        dy = (left.complementarity + 2 * y * (T * (A.T @ dR)).sum(1)) / s
        return Centre(dR, dy)

    def _hessian(self, T: Tensor, y: Tensor, s: Tensor) -> Tensor:
        """I + sum_k a_k a_k^T (x) (2 y_k I + 4 y_k / s_k T_k T_k^T), outputs counted fastest."""
        A, (n, c) = self.features, self.targets.shape
        H = torch.eye(n * c, dtype=A.dtype, device=A.device)
        blocks = H.view(n, c, n, c)
        for p in range(c):
            for q in range(p + 1):
                curvature = 4 * y / s * T[:, p] * T[:, q] + 2 * y * (p == q)
                block = (A * curvature) @ A.T
                blocks[:, p, :, q] += block
                if p != q:
                    blocks[:, q, :, p] += block
        return H

    def _length(self, at: Centre, left: _Equations, step: Centre) -> float:
        """A step length, at most 1, that keeps slacks and multipliers positive."""
        dT = self.features.T @ step.point
        square, cross = dT.square().sum(1), (left.T * dT).sum(1)
        ends = left.slack / (cross + (cross.square() + square * left.slack).sqrt()).clamp(min=1e-300)
        shrinking = step.multipliers < 0
        ends = torch.cat([ends, (-at.multipliers / step.multipliers)[shrinking]])
        return min(1.0, _BORDER * float(ends.amin())) if len(ends) else 1.0
