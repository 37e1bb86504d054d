"""The pattern-free semidefinite relaxation of ReLU training, by alternating projections of moment matrices."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from bidual.numerics.anderson import Anderson
from bidual.polar.relaxations.sign_regions import SignRegion, Square

Outputs = Float[ndarray, "n c"]
Prox = Callable[[Outputs, float], Outputs]  # (P, step) -> argmin_Q step * F(Q) + 1/2 |Q - P|^2
Moments = Float[ndarray, "q k k"]  # the moments of (h, w) in every region

ROUND, _PATIENCE = 50, 4  # steps between two evaluations of the bound; evaluations without progress before the end
_RELAXATION = 1.6
_MEMORY = 15  # of the acceleration
_BALANCE_EVERY, _BALANCE_UNTIL = 20, 600
_TILT = 4.0  # the multipliers make the bound, so their residual is kept smaller than that of the moments


@dataclass(frozen=True, eq=False)
class _Face:
    """The moment matrices of a region: ``frame`` G ``frame``^T with G >= 0, at the price <cost, G>."""

    region: SignRegion
    frame: Float[ndarray, "k l"]
    cost: Float[ndarray, "l l"]

    @classmethod
    def of(cls, region: SignRegion, beta: float, outputs: int) -> Self:
        m, p = region.H.shape
        basis, triangle = np.linalg.qr(region.H)
        frame = np.zeros((m + outputs, p + outputs))
        frame[:m, :p], frame[m:, p:] = basis, np.eye(outputs)
        u = np.linalg.solve(triangle.T, np.eye(p)[:, : region.x.shape[1]])  # the functional u, in the basis of h
        cost = np.zeros((p + outputs, p + outputs))
        cost[:p, :p], cost[p:, p:] = 0.5 * beta * u @ u.T, 0.5 * beta * np.eye(outputs)
        return cls(region, frame, cost)

    def nearest(self, target: Float[ndarray, "k k"], penalty: float) -> tuple[Float[ndarray, "k k"], float]:
        """argmin <cost, G> + penalty/2 |frame G frame^T - target|^2 over G >= 0, and its price."""
        values, vectors = np.linalg.eigh(self.frame.T @ target @ self.frame - self.cost / penalty)
        keep = values > 0
        root = vectors[:, keep] * np.sqrt(values[keep])
        lifted = self.frame @ root
        return lifted @ lifted.T, float(np.sum(root * (self.cost @ root)))


class MomentSplitting:
    r"""min F(sum_k P_k) + beta/2 sum_k (tr U_k + tr W_k) over the moment matrices of (u, a, w) in every region k.

    Each is positive semidefinite, its block of h = (a, b) is non-negative with E a_i b_i = 0, and P_k = E a w^T: the
    dual of the joint program of the notes on CP (17)-(20), in which V and the multipliers N move together. Douglas and
    Rachford's splitting alternates between semidefiniteness, one eigendecomposition per region, and everything else,
    entry by entry (Wen, Goldfarb & Yin 2010). Signs of N and V in dF(P) hold exactly at every step; only
    semidefiniteness is approximate, and :meth:`SignRegion.bound` accounts for that.
    """

    def __init__(self, regions: Sequence[SignRegion], outputs: int, beta: float, prox: Prox, penalty: float) -> None:
        self.beta, self.prox, self.penalty, self.steps = beta, prox, penalty, 0
        self.outputs, self.n = outputs, len(regions[0].x)
        self.faces = [_Face.of(region, beta, outputs) for region in regions]
        self.prices = np.zeros(len(regions))
        side = 2 * self.n + outputs
        self.mixing = Anderson(memory=_MEMORY)
        self._enter(np.zeros((len(regions), side, side)))

    def run(self, steps: int, deadline: float = math.inf) -> None:
        """``steps`` steps, fewer if the deadline (of time.perf_counter) passes."""
        for _ in range(steps):
            self._step()
            if time.perf_counter() > deadline:
                break

    def _enter(self, state: Moments) -> None:
        """Split a state into moments with the right signs and their scaled multipliers."""
        n, m, rho = self.n, 2 * self.n, self.penalty
        self.state, self.moments = state, state.copy()
        block, pair = self.moments[:, :m, :m], np.arange(n)
        np.maximum(block, 0, out=block)
        block[:, pair, n + pair] = block[:, n + pair, pair] = 0
        total = state[:, :n, m:].sum(0)
        self.P = self.prox(total, len(state) / (2 * rho))
        share = (self.P - total) / len(state)
        self.moments[:, :n, m:] += share
        self.moments[:, m:, :n] += share.T

    def _step(self) -> None:
        reflected = 2 * self.moments - self.state
        found = [face.nearest(target, self.penalty) for face, target in zip(self.faces, reflected, strict=True)]
        projected, self.prices = np.stack([G for G, _ in found]), np.array([price for _, price in found])
        before = self.moments
        image = self.state + _RELAXATION * (projected - before)
        mixed = self.mixing.mix(torch.from_numpy((image - self.state).ravel()), torch.from_numpy(image.ravel()))
        self._enter(mixed.numpy().reshape(image.shape))
        self.steps += 1
        if self.steps % _BALANCE_EVERY == 0 and self.steps <= _BALANCE_UNTIL:
            self._balance(float(np.linalg.norm(projected - before)), float(np.linalg.norm(self.moments - before)))

    def _balance(self, primal: float, dual: float) -> None:
        """Move the penalty so that the residuals of moments and multipliers shrink together."""
        size, force = float(np.linalg.norm(self.moments)), float(np.linalg.norm(self.state - self.moments))
        ratio = primal * force / max(dual * size, 1e-300) / _TILT
        factor = 1.5 if ratio > 5 else 1 / 1.5 if ratio < 0.2 else 1.0
        if factor != 1:
            state = self.moments + (self.state - self.moments) / factor
            self.penalty *= factor
            self.mixing.reset()
            self._enter(state)

    @property
    def regions(self) -> list[SignRegion]:
        return [face.region for face in self.faces]

    @property
    def V(self) -> Outputs:
        """The multiplier of the predictions, a subgradient of F at P."""
        n, m = self.n, 2 * self.n
        return 2 * self.penalty * (self.state - self.moments)[0, :n, m:]

    def multipliers(self) -> list[Square]:
        """The multipliers N of every region's products h h^T, for V at the level lambda = beta^2."""
        m = 2 * self.n
        return list(2 * self.beta * self.penalty * (self.moments - self.state)[:, :m, :m])

    def split(self, rows: Sequence[int | None]) -> Self:
        """The same relaxation, warm-started, with region k cut by the sign of row rows[k]; None leaves it whole."""
        pairs = zip(self.regions, rows, strict=True)
        halves = [[region] if row is None else region.split(row) for region, row in pairs]
        parent = np.repeat(np.arange(len(halves)), [len(half) for half in halves])
        finer = type(self)([r for half in halves for r in half], self.outputs, self.beta, self.prox, self.penalty)
        weight = np.array([1 / len(half) for half in halves])[parent][:, None, None]
        finer._enter(weight * self.moments[parent] + (self.state - self.moments)[parent])
        return finer

    def resume(self, other: "MomentSplitting") -> None:
        """Continue from the state of another splitting with as many regions."""
        self.penalty = other.penalty
        self._enter(other.state)

    def directions(self) -> Float[ndarray, "q r"]:
        """Starts for a local search: the tops of E h h^T, with u from x u = a - b, and the axes of E u u^T."""
        n, inverse = self.n, np.linalg.pinv(self.faces[0].region.x)
        tops = [np.linalg.eigh(moments[: 2 * n, : 2 * n])[1][:, -1:].T for moments in self._heavy]
        both = np.concatenate([*((top[:, :n] - top[:, n:]) @ inverse.T for top in tops), *self.factors()])
        return np.concatenate([both, -both])

    def factors(self) -> list[Float[ndarray, "r r"]]:
        """The axes of E u u^T in every region that carries weight, as rows whose squares sum to it."""
        n, inverse, found = self.n, np.linalg.pinv(self.faces[0].region.x), []
        for moments in self._heavy:
            spread = moments[:n, :n] - moments[:n, n : 2 * n] - moments[n : 2 * n, :n]
            spread = spread + moments[n : 2 * n, n : 2 * n]
            values, axes = np.linalg.eigh(inverse @ spread @ inverse.T)
            found.append((axes * np.sqrt(np.maximum(values, 0))).T)
        return found

    @property
    def _heavy(self) -> Moments:
        return self.moments[self.prices >= self._light]

    @property
    def _light(self) -> float:
        """Prices below it are negligible; the largest one is not, even if rounding made it negative."""
        largest = float(self.prices.max())
        return min(1e-3 * largest, largest)

    def rows_to_cut(self) -> list[int | None]:
        """The free row of every region whose sign matters most, None for regions of negligible weight."""
        weight, light = np.linalg.norm(self.V, axis=1), self._light
        parts = zip(self.regions, self.moments, self.prices, strict=True)
        return [row_to_cut(region, moments, weight) if price >= light else None for region, moments, price in parts]


def row_to_cut(region: SignRegion, moments: Float[ndarray, "k k"], weight: Float[ndarray, " n"]) -> int | None:
    """The free row with the largest |v_i| that the moments see farthest on both sides of zero, None if all are fixed.

    The notes rank rows by |v_i| |x_i|; this is as good and depends on the region.
    """
    if not len(region.free):
        return None
    n, spread = len(weight), np.diag(moments)
    both = np.sqrt(np.maximum(np.minimum(spread[:n], spread[n : 2 * n]), 0)) + 1e-9 * np.linalg.norm(region.x, axis=1)
    return int(np.argmax(np.where(region.signs == 0, weight * both, -1.0)))


def stalled(bounds: list[float], tol: float) -> bool:
    """Whether the last evaluations together gained less than ``tol``, relatively."""
    return len(bounds) > _PATIENCE + 1 and abs(bounds[-1 - _PATIENCE] - bounds[-1]) <= tol * abs(bounds[-1])
