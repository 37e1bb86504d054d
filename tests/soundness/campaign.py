"""The soundness campaign: certificates of many random and adversarial problems, each held against extended precision.

    PYTHONPATH=tests python -m soundness.campaign --problems 20000 --out benchmarks/results

A certificate is unsound if its dual exceeds the objective of any point that anybody found (other solvers, cvxpy, other
certificates of the same problem, the zero network), or if its primal is below the objective of its own point, both
evaluated in extended precision. What was done is kept in a file, so that a campaign that was stopped goes on.
"""

import argparse
import json
import math
import os
import time
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bidual.files import write_atomically
from soundness.blocks import block_case
from soundness.cases import Case, Issued
from soundness.networks import convolution_case, network_case, norm_case, parallel_case

CASES: list[tuple[Case, float]] = [
    (block_case, 0.62),
    (network_case, 0.26),
    (norm_case, 0.05),
    (convolution_case, 0.04),
    (parallel_case, 0.03),
]
_AT_ONCE = 25  # draws of one task; a file is written after each


@dataclass
class Tally:
    """What a number of problems came to."""

    problems: int = 0
    certificates: int = 0
    refused: int = 0
    closed: int = 0
    unsound: list[dict[str, Any]] = field(default_factory=list)
    crashed: list[dict[str, Any]] = field(default_factory=list)
    dual_slack: float = math.inf
    primal_slack: float = math.inf
    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def add(self, other: "Tally") -> None:
        for name in ("problems", "certificates", "refused", "closed", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.unsound += other.unsound
        self.crashed += other.crashed
        self.counts.update(other.counts)
        self.dual_slack = min(self.dual_slack, other.dual_slack)
        self.primal_slack = min(self.primal_slack, other.primal_slack)

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {"counts": dict(sorted(self.counts.items()))}

    def check(self, issued: Issued, seed: int) -> None:
        """Count a problem, and hold its certificates against all objectives that are known of it."""
        self.problems += 1
        self.refused += bool(issued.refused)
        self.counts.update(f"{name}: {value}" for name, value in issued.labels.items())
        objectives = [value for _, value in issued.certificates] + issued.attained
        least = min((value for value in objectives if np.isfinite(value)), default=np.longdouble(math.inf))
        for certificate, own in issued.certificates:
            self.certificates += 1
            self.closed += certificate.relative_gap <= 1e-6
            above, below = _share(least, certificate.dual), _share(np.longdouble(certificate.primal), own)
            self.dual_slack, self.primal_slack = min(self.dual_slack, above), min(self.primal_slack, below)
            if above < 0 or below < 0 or math.isnan(certificate.dual) or math.isnan(certificate.primal):
                numbers = {"dual": certificate.dual, "primal": certificate.primal, "least": float(least)}
                self.unsound.append(issued.labels | numbers | {"own": float(own), "seed": seed})


def _share(larger: np.longdouble, smaller: float | np.longdouble) -> float:
    """(larger - smaller) / larger: negative if it is not larger, beyond what extended precision can tell."""
    if not np.isfinite(smaller) or not np.isfinite(larger):
        return math.inf if larger >= smaller else -math.inf
    if larger == 0:
        return math.inf if smaller <= 0 else -math.inf
    if abs(larger - smaller) <= 1e-17 * abs(larger):
        return 0.0
    return float((larger - smaller) / larger)


def draw(seed: int) -> Tally:
    """All that one seed gives."""
    rng, tally, began = np.random.default_rng(seed), Tally(), time.perf_counter()
    case = CASES[int(rng.choice(len(CASES), p=[share for _, share in CASES]))][0]
    try:
        for issued in case(rng):
            tally.check(issued, seed)
    except Exception as error:  # a crash is a finding, not the end of the campaign
        tally.crashed.append({"seed": seed, "case": case.__name__, "error": f"{type(error).__name__}: {error}"[:300]})
    tally.seconds = time.perf_counter() - began
    return tally


def draws(first: int) -> Tally:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    total = Tally()
    for seed in range(first, first + _AT_ONCE):
        total.add(draw(seed))
    return total


class Kept:
    """What is done, in a file beside the report."""

    def __init__(self, path: Path) -> None:
        self.path, self.done, self.total = path, set[int](), Tally()
        if path.exists():
            for line in path.read_text().splitlines():
                story = json.loads(line)
                self._take(story.pop("first"), Tally(**story | {"counts": Counter(story["counts"])}))

    def _take(self, first: int, tally: Tally) -> None:
        self.done.add(first)
        self.total.add(tally)

    def keep(self, first: int, tally: Tally) -> None:
        self._take(first, tally)
        with self.path.open("a") as file:
            file.write(json.dumps({"first": first} | tally.to_json()) + "\n")


def run(kept: Kept, problems: int, seconds: float, workers: int, seed: int) -> None:
    """Until there are so many problems, or no time is left."""
    deadline, following = time.monotonic() + seconds, seed
    with ProcessPoolExecutor(workers) as pool:
        waiting = {}
        while (kept.total.problems < problems and time.monotonic() < deadline) or waiting:
            while len(waiting) < workers and kept.total.problems < problems and time.monotonic() < deadline:
                if following not in kept.done:
                    waiting[pool.submit(draws, following)] = following
                following += _AT_ONCE
            for future in as_completed(list(waiting)):
                kept.keep(waiting.pop(future), future.result())
                _tell(kept.total)
                break


def _tell(total: Tally) -> None:
    print(
        f"{total.problems} problems, {total.certificates} certificates, {len(total.unsound)} unsound, "
        f"{len(total.crashed)} crashed, worst slack {total.dual_slack:.1e} (dual) {total.primal_slack:.1e} (primal), "
        f"{total.seconds:.0f} s",
        flush=True,
    )


def report(total: Tally, seed: int) -> dict[str, Any]:
    """The numbers that are published."""
    story = total.to_json() | {"seed": seed, "cpus": os.cpu_count()}
    for name in ("unsound", "crashed"):
        story[f"number_{name}"] = len(story[name])
        story[name] = story[name][:20]
    return story


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=7200.0, help="stop after so long")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    kept = Kept(given.out / f"soundness-{given.seed}.jsonl")
    run(kept, given.problems, given.seconds, given.workers, given.seed)
    story = report(kept.total, given.seed)
    write_atomically(given.out / "soundness.json", json.dumps(story, indent=1).encode())
    _tell(kept.total)
    return 1 if kept.total.unsound or kept.total.problems < given.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
