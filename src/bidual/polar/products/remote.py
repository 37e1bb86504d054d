"""Cells whose forms and slopes another process computes: the numbers are those of :class:`CellDescent`, made there.

A request is "cells" (they are described in the shared file), "forms" (at the V and the vectors in it) or "slopes" (for
the roots in it). It is answered with "done", or "none" where a cell has no bound.
"""

import time
from collections.abc import Sequence

import numpy as np
import torch

from bidual.polar.products.cells import Cell
from bidual.polar.products.coordinates import Coordinates
from bidual.polar.products.descent import Array, CellDescent, Workspace
from bidual.polar.products.multipliers import Pairs, Support
from bidual.runtime.helper_process import HelperLostError, HelperProcess, reply, requests
from bidual.runtime.shared_arrays import Arrays, read_arrays, write_arrays

_PATIENCE, _TIMES = 20.0, 20.0  # seconds, and times as long as the work here took, that an answer may take
_WATCHED = 1.0  # seconds of shared work after which its gain is looked at


class RemoteCells:
    """Cells in a helper process. Forms, then slopes: begin, do other work, and end.

    Args:
        process: is ready.
        places: at least one.
        share: their work over the work that is done here meanwhile.
    """

    def __init__(self, process: HelperProcess, places: Sequence[Coordinates], share: float = 1.0) -> None:
        self.process, self.count, self.share = process, len(places), share
        self._worked = self._passed = 0.0  # seconds of this processor, and by the clock
        try:
            self.shared = write_arrays(process.file, _described(places))
        except OSError as error:
            raise HelperLostError("there is no memory to share") from error
        process.user = self
        self._begin("cells")
        self._end()
        self._worked = self._passed = 0.0

    def begin_forms(self, V: Array, vectors: Sequence[Array]) -> None:
        self.shared["V"][...] = V
        for k, vector in enumerate(vectors):
            self.shared[f"vector {k}"][...] = vector
        self._begin("forms")

    def end_forms(self) -> list[Array] | None:
        """C of every cell, None where one has none; the next forms write over them."""
        return [self.shared[f"form {k}"] for k in range(self.count)] if self._end() else None

    def begin_slopes(self, roots: Sequence[Array]) -> None:
        for k, R in enumerate(roots):
            self.shared["ranks"][k] = R.shape[1]
            self.shared[f"root {k}"].ravel()[: R.size] = R.ravel()
        self._begin("slopes")

    def end_slopes(self) -> list[tuple[Array, Array]]:
        """The derivatives of every cell in its vector and in V; the next slopes write over them."""
        self._end()
        return [(self.shared[f"slope {k}"], self.shared[f"on V {k}"]) for k in range(self.count)]

    def _begin(self, request: str) -> None:
        if self.process.user is not self:
            raise HelperLostError("the helper process has other cells by now")
        self._asked = time.thread_time(), time.monotonic()
        self.process.ask(request)

    def _end(self) -> bool:
        worked, passed = (self._since(k) for k in range(2))
        answer = self.process.answer(_PATIENCE + _TIMES * passed)
        self._worked, self._passed = self._worked + worked, self._passed + self._since(1)
        return answer == "done"

    def _since(self, clock: int) -> float:
        return (time.thread_time(), time.monotonic())[clock] - self._asked[clock]

    def check_gain(self) -> None:
        """Lost where one process that has a core would be as fast, since others keep the second core busy."""
        if self._passed < _WATCHED:
            return
        if self._passed > (1 + self.share) * self._worked:
            raise HelperLostError("the second core is busy")
        self._worked = self._passed = 0.0


def _described(places: Sequence[Coordinates]) -> Arrays:
    """The cells, and room for what goes to and fro."""
    X, c = places[0].cell.X, places[0].cell.n_outputs
    found = {"X": X.numpy(), "V": np.empty((len(X), c)), "ranks": np.zeros(len(places), dtype=np.int64)}
    for k, place in enumerate(places):
        cell, pairs, square = place.cell, place.pairs, np.empty((place.cell.size, place.cell.size))
        found |= {f"form {k}": square, f"root {k}": square, f"on V {k}": found["V"]}
        found |= {f"vector {k}": np.empty(len(place.vector)), f"slope {k}": np.empty(len(place.vector))}
        found |= {f"pairs {k} {kind}": where.numpy() for kind, where in enumerate(pairs.where)}
        found[f"fixed {k}"] = np.array(cell.fixed, dtype=np.int64).reshape(-1, 2)
        found[f"count {k}"] = np.array(pairs.count)
        found |= {} if cell.signs is None else {f"signs {k}": cell.signs.numpy()}
        found |= {} if pairs.labels is None else {f"labels {k}": pairs.labels.numpy()}
    return found


def _place(shared: Arrays, k: int) -> Coordinates:
    """A cell as it was described, whose vector has no meaning."""
    signs, labels = (shared.get(f"{name} {k}") for name in ("signs", "labels"))
    fixed = tuple((int(row), int(sign)) for row, sign in shared[f"fixed {k}"])
    X, V = torch.from_numpy(shared["X"]), shared["V"]
    cell = Cell(X, V.shape[1], None if signs is None else torch.from_numpy(signs), fixed)
    where = tuple(torch.from_numpy(shared[f"pairs {k} {kind}"]) for kind in range(3))
    shares = None if labels is None else torch.ones(len(labels), dtype=torch.float64)
    at = Support(int(shared[f"count {k}"]), where)
    pairs = Pairs(at, (), None if labels is None else torch.from_numpy(labels), shares)
    return Coordinates(cell, pairs, torch.from_numpy(shared[f"vector {k}"]))


class _Worker:
    """The helper's side."""

    def __init__(self, file: int) -> None:
        self.shared, space = read_arrays(file), Workspace()
        self.cells = [CellDescent(_place(self.shared, k), space) for k in range(len(self.shared["ranks"]))]

    def forms(self) -> bool:
        for k, cell in enumerate(self.cells):
            C = cell.form(self.shared["V"], self.shared[f"vector {k}"])
            if C is None:
                return False
            self.shared[f"form {k}"][...] = C
        return True

    def slopes(self) -> bool:
        for k, (cell, rank) in enumerate(zip(self.cells, self.shared["ranks"], strict=True)):
            root, on_V = self.shared[f"root {k}"], self.shared[f"on V {k}"]
            R = root.ravel()[: len(root) * rank].reshape(len(root), rank)
            self.shared[f"slope {k}"][...], on_V[...] = cell.weighed(R, on_V.shape)
        return True


def serve() -> None:
    """Runs in the helper process."""
    torch.set_num_threads(1)
    np.seterr(all="ignore")  # what is not finite has no bound
    worker: _Worker | None = None
    for (request,), file in requests():
        if request == "cells":
            worker = None  # so that the memory of the last cells is free
            worker = _Worker(file)
            reply("done")
        else:
            assert worker is not None
            reply("done" if getattr(worker, request)() else "none")
