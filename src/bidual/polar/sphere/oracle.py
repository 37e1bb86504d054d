"""The oracle for few dimensions and many samples: branch and bound on the sphere."""

import heapq
import time
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from bidual.numerics.rounding import rounded_up
from bidual.patterns.reduction import Reduced, reduce_rank
from bidual.polar.ascents import ascend
from bidual.polar.base import NeuronOracle, SteepestNeurons, steepness
from bidual.polar.search import LocalSearch
from bidual.polar.sphere.simplex_bounds import Bounded, SimplexBounds
from bidual.polar.sphere.simplex_rounding import raised
from bidual.polar.sphere.simplices import Simplices, join

_TIGHTEST = 1e-9  # the tightest tolerance that rounding lets a search reach
_NARROW = 1e-10  # simplices are not cut below this width
_BATCH = 2048  # simplices of a batch in the queue
_NUMBERS = 1_000_000  # numbers that are handled at a time
_LISTED = 2000  # about how many directions are listed
_GRID = 100.0  # directions whose coordinates agree to one part in this are listed once
_TRIED = 32  # candidates that are evaluated for each batch
_STARTS, _ROUNDS = 64, 20  # of the local search at the beginning
_CLIMBED = 96  # directions that are moved up to ridges, at the beginning and at the end


@dataclass(eq=False)
class Sphere(NeuronOracle):
    r"""max over |u| = 1 of |V^T (X u)_+| for data of low rank r, by cutting the sphere of R^r into smaller simplices.

    A simplex is closed when its bound (:mod:`bidual.polar.sphere.simplex_bounds`) is at most (1 + tol) times the best
    value found, or ``above``. Bounds improve with the square of a simplex's size, so the work hardly depends on tol; it
    grows with the rank, to about five, and linearly with the number of samples. :class:`Faces` is exact and faster as
    long as n^(r - 1) is small.

    Attributes:
        tol: relative width of the bracket, at least 1e-9.
        max_time: seconds per query; a bracket that is stopped early is wider, and as valid.
        max_simplices: the most simplices per query, likewise.
        looseness: the share of the excess over ``above`` that stays open: steep neurons are enough to go on, the exact
            maximum is not needed.
    """

    X: Float[Tensor, "n d"]
    tol: float = 1e-6
    max_time: float | None = None
    max_simplices: int = 500_000
    looseness: float = 0.1
    _reduced: Reduced = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.tol >= _TIGHTEST:
            raise ValueError(f"tol must be at least {_TIGHTEST}, got {self.tol}. Faces has no tolerance.")
        self._take(self.X)
        self._reduced = reduce_rank(self.X.cpu().numpy())

    def _steepest(self, V: Tensor, above: float, seeds: Tensor | None) -> SteepestNeurons:
        found = LocalSearch(self.X, _STARTS, _ROUNDS).steepest(V, above, seeds).neurons
        run = _Search(self, self._reduced.samples, V.cpu().numpy(), above)
        run.start(found.cpu().numpy() @ self._reduced.basis)
        run.search()
        run.polish()
        neurons = torch.cat([torch.from_numpy(run.directions @ self._reduced.basis.T).to(self.X), found[:1]])
        upper = rounded_up(run.proved + self._reduced.lost(V))
        return SteepestNeurons.ranked(neurons, steepness(self.X, V, neurons), above, upper)


class _Search:
    """The state of one query: a queue of batches of open simplices, highest bound first."""

    def __init__(self, settings: Sphere, X: Float[ndarray, "n r"], V: Float[ndarray, "n c"], above: float) -> None:
        self.settings, self.X, self.V, self.above = settings, X, V, above
        self.began = time.perf_counter()
        self.bounds = SimplexBounds.of(X, V)
        self.queue: list[tuple[float, int, Simplices]] = []
        self.serial = count()
        self.seen = self.depth = 0
        self.stretch = 1.0
        self.lower = self.closed = 0.0
        self.directions, self.values = np.zeros((0, X.shape[1])), np.zeros(0)

    @property
    def threshold(self) -> float:
        """Simplices that do not exceed it are closed."""
        best, settings = max(self.lower, self.above), self.settings
        loose = settings.looseness * (best - self.above) if self.above > 0 else 0.0
        return best + max(settings.tol * best, loose)

    @property
    def upper(self) -> float:
        return max(self.closed, self.lower, -self.queue[0][0] if self.queue else 0.0)

    @property
    def proved(self) -> float:
        """The upper bound in real arithmetic, for the depth and width of all bounded simplices."""
        return raised(self.upper, self.X, self.V, self.depth, self.stretch)

    def start(self, known: Float[ndarray, "q r"]) -> None:
        """First lower bounds: known directions, and ascents from the best of these and from random ones."""
        self.note(known)
        drawn = np.random.default_rng(0).standard_normal((_CLIMBED, self.X.shape[1]))
        self.note(self._climbed(np.concatenate([self.directions[: _CLIMBED // 2], drawn])))

    def polish(self) -> None:
        """Climb from the best directions that are listed."""
        self.note(self._climbed(self.directions[self.values > self.above][:_CLIMBED]))

    def _climbed(self, U: Float[ndarray, "q r"]) -> Float[ndarray, "q r"]:
        climbed: Float[ndarray, "q r"] = ascend(
            torch.from_numpy(self.X), torch.from_numpy(self.V), torch.from_numpy(U)
        ).numpy()
        return climbed

    def search(self) -> None:
        n = len(self.X)
        self._process(Simplices.orthants(n, self.X.shape[1], self.V.shape[1]))
        while self.queue and not self._late():
            self._process(join(self._next(), n).halved())

    def _late(self) -> bool:
        limit, full = self.settings.max_time, self.seen > self.settings.max_simplices
        return full or (limit is not None and time.perf_counter() - self.began > limit)

    def _next(self) -> list[Simplices]:
        """The batches with the highest bounds, together about one batch."""
        parts: list[Simplices] = []
        while self.queue and sum(map(len, parts)) <= _BATCH // 2:
            parts.append(heapq.heappop(self.queue)[2])
        return parts

    def _process(self, simplices: Simplices) -> None:
        """Bound the simplices, note steep directions, and queue those that stay open."""
        self.seen += len(simplices)
        self.depth = int(simplices.depth.max(initial=self.depth))
        size = max(1, _NUMBERS // (simplices.rows.shape[1] * self.X.shape[1]))
        kept = []
        for start in range(0, len(simplices), size):
            found = self.bounds(simplices.take(slice(start, start + size)), self.threshold)
            self._learn(found)
            kept.append(self._kept(found.simplices))
        self._push(join(kept, len(self.X)))

    def _learn(self, found: Bounded) -> None:
        """f at the best centres, and at the candidates of the simplices with the highest bounds; the widest simplex."""
        self.stretch = float(np.fmax.reduce(found.stretch, initial=self.stretch))
        least = self.above if self.above > 0 else 0.9 * self.lower
        centres = np.argsort(-found.values)[:_LISTED]
        centres = centres[found.values[centres] > least]
        highest = np.argsort(-found.simplices.bound)[:_TRIED]
        self.note(np.concatenate([found.centres[centres], found.candidates[highest]]))

    def note(self, directions: Float[ndarray, "q r"]) -> None:
        """Evaluate directions, and list the best one of every box of a grid."""
        values = np.linalg.norm(np.maximum(self.X @ directions.T, 0).T @ self.V, axis=1)
        self.lower = max(self.lower, float(values.max(initial=0.0)))
        directions, values = np.concatenate([self.directions, directions]), np.concatenate([self.values, values])
        order = np.argsort(-values)
        _, first = np.unique(np.round(directions[order] * _GRID), axis=0, return_index=True)
        order = order[np.sort(first)[:_LISTED]]
        self.directions, self.values = directions[order], values[order]

    def _kept(self, simplices: Simplices) -> Simplices:
        """The simplices that stay open; the bounds of the others are remembered."""
        kept = (simplices.bound > self.threshold) & simplices.wider_than(_NARROW)
        self.closed = max(self.closed, float(simplices.bound[~kept].max(initial=0.0)))
        return simplices.take(kept).packed(len(self.X))

    def _push(self, simplices: Simplices) -> None:
        simplices = simplices.take(np.argsort(-simplices.bound))
        for start in range(0, len(simplices), _BATCH):
            part = simplices.take(slice(start, start + _BATCH)).packed(len(self.X))
            heapq.heappush(self.queue, (-float(part.bound[0]), next(self.serial), part))
