"""The systems of the race: which worker, in which environment, and the tolerances it is asked for, loosest first."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from environments import HERE, python_of

OURS = "bidual"
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS")
_GAPS = tuple(10.0**-k for k in range(1, 10))


@dataclass(frozen=True)
class System:
    """One contestant.

    Attributes:
        worker: its file here, ``worker_NAME.py``.
        environment: one of ``ENVIRONMENTS``; None is the one that runs the race.
        packages: distributions whose versions the result states.
        ladder: tolerances, in the system's own meaning; None is a certified gap, down to the target of the case.
        relu_ladder: the same for ReLU networks, where it is another algorithm.
        method: which of a worker's methods.
        beyond: how far below the target a ladder of gaps goes.
        loosest: where a ladder of gaps begins; the target if it is smaller.
    """

    worker: str
    environment: str | None
    packages: tuple[str, ...]
    ladder: tuple[float, ...] | None = None
    relu_ladder: tuple[float, ...] | None = None
    method: str = "auto"
    beyond: float = 1.0
    loosest: float = 0.1

    def tolerances(self, target: float, relu: bool) -> tuple[float, ...]:
        """What it is asked for in turn."""
        if self.ladder is None:
            top, end = max(self.loosest, target), target * self.beyond
            return tuple(gap for gap in _GAPS if 0.99 * end <= gap <= 1.01 * top)
        return self.relu_ladder if relu and self.relu_ladder else self.ladder

    @property
    def script(self) -> Path:
        return HERE / f"worker_{self.worker}.py"

    def python(self, folder: Path) -> Path:
        return Path(sys.executable) if self.environment is None else python_of(folder, self.environment)


def _powers(*exponents: int) -> tuple[float, ...]:
    return tuple(10.0**-k for k in exponents)


_TORCH = ("bidual", "torch", "numpy", "scipy", "clarabel")
SYSTEMS: dict[str, System] = {
    OURS: System("bidual", None, _TORCH, beyond=1e-2),
    "bidual fista": System("bidual", None, _TORCH, method="fista"),
    "bidual last point": System("bidual", None, _TORCH, method="last", loosest=0.0),
    "pyscnn": System(
        "pyscnn", "pyscnn", ("pyscnn", "torch"), _powers(4, 6, 8, 10, 12, 14, 16), _powers(3, 4, 5, 6, 7, 8, 10)
    ),
    "adelie": System("adelie", "adelie", ("adelie", "numpy"), _powers(4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16)),
    "celer": System("celer", "modern", ("celer", "numpy"), _powers(2, 3, 4, 5, 6, 7, 8, 10)),
    "skglm": System("skglm", "modern", ("skglm", "numba"), _powers(2, 3, 4, 5, 6, 7, 8, 9)),
    "clarabel": System("clarabel", "modern", ("clarabel",), _powers(3, 4, 5, 6, 7, 8, 10)),
    "cvxpy clarabel": System(
        "cvxpy", "modern", ("cvxpy", "clarabel"), _powers(3, 4, 5, 6, 7, 8, 10), method="clarabel"
    ),
    "cvxpy scs": System("cvxpy", "modern", ("cvxpy", "scs"), _powers(2, 3, 4, 5, 6, 7, 8), method="scs"),
}


def one_thread() -> dict[str, str]:
    """The environment variables of a worker: one thread for everybody."""
    return {**os.environ, **dict.fromkeys(_THREADS, "1")}
