"""Many fits in one process: does memory grow, and does one fit disturb another?

    python benchmarks/load.py --out benchmarks/results

Every model is fitted to the same seeds once in a row and once in threads; the memory of the process is read after a
warm-up and at the end.
"""

import argparse
import gc
import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import is_classifier

import bidual
from bidual.runtime.files import write_atomically

KINDS: dict[str, Callable[[], Any]] = {
    "gated regressor": lambda: bidual.ConvexMLPRegressor(activation="gated_relu", n_gates=6),
    "relu regressor": lambda: bidual.ConvexMLPRegressor(activation="relu"),
    "linear classifier": lambda: bidual.ConvexMLPClassifier(activation="linear"),
    "gated classifier": lambda: bidual.ConvexMLPClassifier(activation="gated_relu", n_gates=4, loss="logistic"),
}


@dataclass(frozen=True)
class Load:
    """What a load showed: megabytes of the process after the warm-up and at the end, and fits that came out otherwise
    than alone."""

    name: str
    fits: int
    threads: int
    megabytes_before: float
    megabytes_after: float
    different: int
    seconds: float

    @property
    def growth(self) -> float:
        return self.megabytes_after - self.megabytes_before


def one_fit(seed: int) -> str:
    """A digest of all that a small fit gives; kinds take turns."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(12, 2))
    model = list(KINDS.values())[seed % len(KINDS)]()
    y = X[:, 0] + 0.1 * rng.normal(size=12)
    model.fit(X, np.where(y > 0, 1, 0) if is_classifier(model) else y)
    certificate = model.certificate_
    parts = [np.asarray(model.predict(X)), certificate.point.numpy(), np.array([certificate.primal, certificate.dual])]
    return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()


def megabytes() -> float:
    """Resident memory of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def in_a_row(fits: int, warm_up: int, seeds: int) -> Load:
    """The same seeds over and over; every digest must be that of the first time."""
    alone = [one_fit(k % seeds) for k in range(max(warm_up, seeds))][:seeds]
    before, began = megabytes(), time.perf_counter()
    different = sum(one_fit(k % seeds) != alone[k % seeds] for k in range(fits))
    return Load("in a row", fits, 1, before, megabytes(), different, time.perf_counter() - began)


def in_threads(fits: int, warm_up: int, seeds: int, threads: int) -> Load:
    """The same, ``threads`` at a time."""
    alone = [one_fit(k) for k in range(seeds)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda k: one_fit(k % seeds), range(warm_up)))
        before, began = megabytes(), time.perf_counter()
        different = sum(pool.map(lambda k: one_fit(k % seeds) != alone[k % seeds], range(fits)))
        after, seconds = megabytes(), time.perf_counter() - began
    return Load("at a time", fits, threads, before, after, different, seconds)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fits", type=int, default=1000, help="in a row; a fifth of them in threads")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--out", type=Path, help="a folder for load.json")
    given = parser.parse_args(arguments)
    warm_up, seeds = max(given.fits // 5, 8), min(40, given.fits)
    loads = [
        in_a_row(given.fits, warm_up, seeds),
        in_threads(given.fits // 5, max(warm_up // 2, given.threads), seeds, given.threads),
    ]
    for load in loads:
        print(
            f"{load.fits} fits, {load.threads} {load.name}: {load.megabytes_before:.1f} MB after the warm-up, "
            f"{load.megabytes_after:.1f} MB at the end, {load.different} different, {load.seconds:.1f} s"
        )
    if given.out is not None:
        rows = [asdict(load) | {"growth": load.growth} for load in loads]
        write_atomically(given.out / "load.json", (json.dumps(rows, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
