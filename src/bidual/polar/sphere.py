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

from bidual.gauges import Bracket
from bidual.patterns.reduction import Reduced, reduce_rank
from bidual.polar.base import NeuronOracle, Peaks, steepness
from bidual.polar.search import LocalSearch
from bidual.polar.simplices import Bounded, SimplexBounds, Simplices, join

_EPS = float(np.finfo(np.float64).eps)
_BATCH = 2048  # cells that are cut at a time
_NUMBERS = 1_000_000  # of rows times cells that are bounded at a time
_LISTED = 2000  # about how many directions are listed
_GRID = 100.0  # directions whose coordinates agree to one part in this are listed once
_TRIED = 32  # candidates of a batch that are evaluated


@dataclass(eq=False)
class Sphere(NeuronOracle):
    X: Float[Tensor, "n d"]
    tol: float = 1e-6
    max_time: float | None = None
    max_cells: int = 400_000
    looseness: float = 0.1
    _reduced: Reduced = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.X = self.X.detach().to(torch.float64)
        self._reduced = reduce_rank(self.X.cpu().numpy())

    @property
    def rank(self) -> int:
        return self._reduced.rank

    def _peaks(self, V: Tensor, above: float, seeds: Tensor | None) -> Peaks:
        first = LocalSearch(self.X).peaks(V, above, seeds)
        run = _Run(self, self._reduced.samples, V.cpu().numpy(), above)
        run.note(first.neurons.cpu().numpy() @ self._reduced.basis)
        run.search()
        self.last=run
        neurons = torch.from_numpy(run.directions @ self._reduced.basis.T).to(self.X)
        neurons = torch.cat([neurons, first.neurons[:1]])
        values = steepness(self.X, V, neurons)
        lower = float(values.max())
        order = torch.argsort(values, descending=True)
        order = order[values[order] > min(above, lower * (1 - 1e-12))]
        return Peaks(Bracket(lower, max(run.upper, lower) + self._allowance(V)), neurons[order], values[order])

    def _allowance(self, V: Tensor) -> float:
        """Rounding of the forms, and the rank cut."""
        size = float(torch.linalg.vector_norm(V, dim=1) @ torch.linalg.vector_norm(self.X, dim=1))
        cut = self._reduced.remainder * float(torch.linalg.matrix_norm(V, ord=2))
        return 16 * len(V) * _EPS * size + cut


class _Run:
    """One search: a queue of batches of open cells, highest bound first."""

    def __init__(self, settings: Sphere, X: Float[ndarray, "n r"], V: Float[ndarray, "n c"], above: float) -> None:
        self.settings, self.X, self.V, self.above = settings, X, V, above
        self.began = time.perf_counter()
        self.bounds = SimplexBounds(X, V)
        self.queue: list[tuple[float, int, Simplices]] = []
        self.numbers = count()
        self.open = 0
        self.lower = self.closed = 0.0
        self.directions, self.values = np.zeros((0, X.shape[1])), np.zeros(0)
        self.cells=0

    @property
    def threshold(self) -> float:
        """Cells that do not exceed it are closed."""
        best, settings = max(self.lower, self.above), self.settings
        loose = settings.looseness * (best - self.above) if self.above > 0 else 0.0
        return best + max(settings.tol * best, loose)

    @property
    def upper(self) -> float:
        return max(self.closed, self.lower, -self.queue[0][0] if self.queue else 0.0)

    def search(self) -> None:
        n, r, c = *self.X.shape, self.V.shape[1]
        self._bounded(Simplices.orthants(n, r, c))
        while self.queue and not self._late():
            self._bounded(join(self._next(), n).halved())
            if getattr(self,'verbose',0): print(f"{time.perf_counter()-self.began:.1f} cells {self.cells} open {self.open} lower {self.lower} upper/lower-1 {self.upper/self.lower-1:.2e} rows {self.queue[0][2].rows.shape[1] if self.queue else 0}")

    def _late(self) -> bool:
        limit = self.settings.max_time
        return (limit is not None and time.perf_counter() - self.began > limit) or self.open > self.settings.max_cells

    def _next(self) -> list[Simplices]:
        parts: list[Simplices] = []
        while self.queue and sum(map(len, parts)) < _BATCH // 2:
            parts.append(heapq.heappop(self.queue)[2])
            self.open -= len(parts[-1])
        return parts

    def _bounded(self, cells: Simplices) -> None:
        size = max(1, _NUMBERS // (cells.rows.shape[1] * self.X.shape[1]))
        kept = []
        for start in range(0, len(cells), size):
            found = self.bounds(cells.take(slice(start, start + size)), self.threshold)
            self.cells+=len(found.values)
            self._learn(found)
            kept.append(self._kept(found.cells))
        self._push(join(kept, len(self.X)))

    def _learn(self, found: Bounded) -> None:
        """Lower bounds from this batch: f at all centres, and at the candidates of the highest cells."""
        highest = np.argsort(-found.cells.bound)[:_TRIED]
        listed = np.flatnonzero(found.values > max(self.above, 0.9 * self.lower))
        self.note(np.concatenate([found.centres[listed], found.candidates[highest]]))

    def note(self, directions: Float[ndarray, "q r"]) -> None:
        """Evaluate directions and list the best of every box of a grid."""
        values = np.linalg.norm(np.maximum(self.X @ directions.T, 0).T @ self.V, axis=1)
        self.lower = max(self.lower, float(values.max(initial=0.0)))
        directions, values = np.concatenate([self.directions, directions]), np.concatenate([self.values, values])
        order = np.argsort(-values)
        _, first = np.unique(np.round(directions[order] * _GRID), axis=0, return_index=True)
        order = order[np.sort(first)[:_LISTED]]
        self.directions, self.values = directions[order], values[order]

    def _kept(self, cells: Simplices) -> Simplices:
        above = cells.bound > self.threshold
        self.closed = max(self.closed, float(cells.bound[~above].max(initial=0.0)))
        return cells.take(above).packed(len(self.X))

    def _push(self, cells: Simplices) -> None:
        cells = cells.take(np.argsort(-cells.bound))
        for start in range(0, len(cells), _BATCH):
            part = cells.take(slice(start, start + _BATCH)).packed(len(self.X))
            heapq.heappush(self.queue, (-float(part.bound[0]), next(self.numbers), part))
            self.open += len(part)
