"""The cheapest split of a vector into the difference of two points of a cone, by an interior point method."""

from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from bidual.papers.methods.gate_cones import GateCones, Units

_MOST_STEPS = 80
_INSIDE = 0.99  # of the way to the border, the longest step


def shortest_split(cone: GateCones, u: Units, *, tol: float = 1e-3, deadline: float | None = None) -> Units:
    r"""min over p of |u + p| + |p| subject to G p >= 0 and G (u + p) >= 0, for one sub-network: u = (u + p) - p.

    A primal-dual method with predictor and corrector. First-layer inequalities couple the d numbers of one unit only,
    so its matrix is m_1 blocks and a matrix of rank n + 2. Every iterate is a split. It starts from the closed form of
    :meth:`GateCones.split`, ends at the deadline or once complementarity and slope are within ``tol``, and returns the
    cheapest iterate.
    """
    best = cone.split(u)
    if float(cone.price(best, u)) <= (1 + tol) * float(_norm(u)):  # no split costs less than |u|
        return best
    size = torch.maximum(_norm(best), _norm(u)) / _norm(cone.interior)
    state = _State.at(cone, u, best + 0.1 * size * cone.interior)
    for _ in range(_MOST_STEPS):
        if state.done(tol) or (deadline is not None and monotonic() >= deadline):
            break
        try:
            state = state.step()
        except torch.linalg.LinAlgError:  # at the last digits
            break
        if state.price < float(cone.price(best, u)):
            best = state.p
    return best


@dataclass(frozen=True, eq=False)
class _State:
    """A strictly feasible p with its slacks and multipliers; inequalities 0 >= 0 have slack 1 and multiplier 0."""

    cone: GateCones
    u: Units
    p: Units
    slack: Float[Tensor, " k"]
    multiplier: Float[Tensor, " k"]
    counted: Float[Tensor, " k"]

    @classmethod
    def at(cls, cone: GateCones, u: Units, p: Units) -> "_State":
        once = _flat(*(part > 0 for part in cone.slacks(cone.interior)))
        counted = torch.cat([once, once]).to(u)
        slack = _positive(_both(cone, p, u + p), counted)
        mean = float(cone.price(p, u)) / float(counted.sum())
        return cls(cone, u, p, slack, mean * counted / slack, counted)

    @property
    def price(self) -> float:
        return float(self.cone.price(self.p, self.u))

    def done(self, tol: float) -> bool:
        slope = self._slope() - self._transposed(self.multiplier)
        return float(self.slack @ self.multiplier) <= tol * self.price and float(_norm(slope)) <= tol

    def _slope(self) -> Float[Tensor, "m d"]:
        """The gradient of |p| + |u + p|."""
        return sum((z[0] / _norm(z) for z in (self.p, self.u + self.p)), torch.zeros_like(self.u[0]))

    def _transposed(self, weights: Float[Tensor, " k"]) -> Float[Tensor, "m d"]:
        """G^T of both halves."""
        cone, (m, n) = self.cone, self.cone.on.shape[1:]
        first, second = weights.reshape(2, -1).sum(0).split([m * n, n])
        return (cone.sides[0] * first.reshape(m, n) + cone.on[0] * (cone.outer[0] * second)) @ cone.X

    def step(self) -> "_State":
        """Predictor, then a corrector whose centring depends on how far the predictor gets."""
        solve, slope = self._factored(), self._slope()
        mean = float(self.slack @ self.multiplier) / float(self.counted.sum())
        moved, changed, raised = self._direction(solve, slope, torch.zeros_like(self.slack))
        ahead = (self.slack + _longest(self.slack, changed) * changed) @ (
            self.multiplier + _longest(self.multiplier, raised) * raised
        )
        centring = (float(ahead) / float(self.counted.sum()) / mean) ** 3
        target = self.counted * (centring * mean) - changed * raised
        moved, changed, raised = self._direction(solve, slope, target)
        p = self.p + _longest(self.slack, changed) * moved
        slack = _positive(_both(self.cone, p, self.u + p), self.counted)
        multiplier = self.multiplier + _longest(self.multiplier, raised) * raised
        return _State(self.cone, self.u, p, slack, multiplier, self.counted)

    def _direction(self, solve: "_Woodbury", slope: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Moves of p, slack and multiplier towards slack o multiplier = target and slope = G^T multiplier."""
        moved = -solve(slope - self._transposed(target / self.slack))[None]
        changed = _both(self.cone, moved, moved) * self.counted
        return moved, changed, (target - self.multiplier * changed) / self.slack - self.multiplier

    def _factored(self) -> "_Woodbury":
        """The Hessian of the price and G^T diag(multiplier / slack) G."""
        X, on, (m, n) = self.cone.X, self.cone.on[0], self.cone.on.shape[1:]
        first, second = (self.multiplier / self.slack).reshape(2, -1).sum(0).split([m * n, n])
        points = [z[0] for z in (self.p, self.u + self.p)]
        bend = sum(1 / _norm(z) for z in points)
        blocks = (X.T * first.reshape(m, 1, n)) @ X + bend * torch.eye(X.shape[1]).to(X)
        flat = [(z / _norm(z) ** 1.5)[:, :, None] for z in points]
        low = torch.cat([on[:, None, :] * X.T * second.sqrt(), *flat], 2)
        return _Woodbury.of(blocks, low, torch.cat([X.new_ones(n), -X.new_ones(2)]))


class _Woodbury(NamedTuple):
    """Solves (B + U diag(sign) U^T) x = b with B block diagonal."""

    L: Float[Tensor, "m d d"]
    U: Float[Tensor, "m d r"]
    BU: Float[Tensor, "m d r"]
    small: tuple[Tensor, Tensor]

    @classmethod
    def of(cls, blocks: Tensor, U: Tensor, sign: Tensor) -> "_Woodbury":
        L = torch.linalg.cholesky(blocks)
        BU = torch.cholesky_solve(U, L)
        LU, pivots = torch.linalg.lu_factor(torch.diag(sign) + U.flatten(0, 1).T @ BU.flatten(0, 1))
        return cls(L, U, BU, (LU, pivots))

    def __call__(self, b: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
        Bb = torch.cholesky_solve(b[:, :, None], self.L)
        inner = torch.linalg.lu_solve(*self.small, self.U.flatten(0, 1).T @ Bb.flatten(0, 1))
        return (Bb - self.BU @ inner)[:, :, 0]


def _both(cone: GateCones, here: Units, there: Units) -> Float[Tensor, " k"]:
    return _flat(*cone.slacks(here), *cone.slacks(there))


def _flat(*parts: Tensor) -> Tensor:
    return torch.cat([part.flatten() for part in parts])


def _positive(slack: Tensor, counted: Tensor) -> Tensor:
    """Slacks, positive even where rounding reaches the border."""
    return torch.where(counted > 0, slack.clamp(min=1e-300), 1.0)


def _longest(x: Tensor, move: Tensor) -> float:
    """The step, at most one, that goes no further than a share of the way to the border of x >= 0."""
    ratio = float((-move / torch.where(x > 0, x, 1.0)).max())
    return min(1.0, _INSIDE / ratio) if ratio > 0 else 1.0


def _norm(z: Tensor) -> Tensor:
    return torch.linalg.vector_norm(z)
